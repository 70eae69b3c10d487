//! From a run back to the commit, file and line that made it.

use super::run::shown;
use crate::api::dto::{Run, Trace, TracedObject, TracedRevision};
use crate::api::problem::Failure;
use crate::model::id::Uid;
use crate::model::kind::{Kind, Revision};
use crate::store::{ObjectView, RevisionView, Store, StoreError};

/// The origins of the run whose id is, or alone begins with, `id`.
///
/// # Errors
/// When there is none, or more than one.
pub async fn trace(store: &Store, id: &str) -> Result<Trace, Failure> {
    let run = store.run(id).await?;
    let run = run.ok_or_else(|| Failure::not_found(format!("there is no run '{id}'")))?;
    let run = shown(run);
    let wake = store.wake(run.wake).await?;
    let cause = wake.and_then(|record| record.wake.cause);
    let objects = store.objects(None).await?;
    let by_uid = |uid: Uid| objects.iter().find(|it| it.state.uid == uid);
    let adapter = objects
        .iter()
        .find(|it| it.reference.kind == Kind::Adapter && it.reference.name.as_str() == run.adapter);
    let roles = [
        ("cause", cause.and_then(by_uid)),
        ("ticket", run.ticket.and_then(by_uid)),
        ("agent", by_uid(run.agent)),
        ("adapter", adapter),
        ("space", by_uid(run.space)),
    ];
    let objects = roles
        .into_iter()
        .filter_map(|(role, object)| Some(traced(role, object?, &run)));
    Ok(Trace {
        objects: objects.collect(),
        revision: revision(store, &run.revision).await?,
        run,
    })
}

fn traced(role: &str, object: &ObjectView, run: &Run) -> TracedObject {
    TracedObject {
        role: role.to_owned(),
        object: object.reference.to_string(),
        origin: object.origin.clone(),
        revision: object.state.revision.clone(),
        generation: object.state.generation,
        has_changed: object.state.generation_since > run.started_at,
    }
}

async fn revision(store: &Store, revision: &Revision) -> Result<TracedRevision, StoreError> {
    let known = store.revision(revision.clone()).await?;
    let (author, committed_at, is_current) = known
        .map(
            |RevisionView {
                 author,
                 committed_at,
                 is_current,
                 ..
             }| (author, committed_at, is_current),
        )
        .unwrap_or_default();
    Ok(TracedRevision {
        revision: revision.clone(),
        author,
        committed_at,
        is_current,
    })
}
