//! A revision, accepted in memory: what the store would make of it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, fields};

use crate::model::desired::Catalog;
use crate::model::id::Uid;
use crate::model::kind::{ObjectRef, Revision};
use crate::model::observed::{ObjectState, Observed};

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Step {
    /// It is new.
    Create,
    /// Its spec, or its name, is another one.
    Change,
    /// Nothing declares it any more.
    Remove,
}

/// One object that a revision touches.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Change {
    /// What becomes of it.
    pub(super) step: Step,
    /// Its whole reference.
    pub(super) object: String,
    /// What of its spec is another now; nothing when it is only renamed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<Field>,
}

/// Objects in canonical form.
pub(super) type Documents = BTreeMap<ObjectRef, Value>;

/// The objects that `catalog` touches, in reference order. `before` and `after` are their documents,
/// as far as they are known.
pub(super) fn changes_of(
    catalog: &Catalog,
    observed: &Observed,
    [before, after]: [&Documents; 2],
) -> Vec<Change> {
    let known = by_uid(observed);
    let declared = catalog.index();
    let mut steps: BTreeMap<&ObjectRef, Step> = BTreeMap::new();
    let mut kept: BTreeSet<Uid> = BTreeSet::new();
    let mut names_before: BTreeMap<&ObjectRef, &ObjectRef> = BTreeMap::new();
    for (reference, it) in &declared {
        let renamed = it.metadata.uid.and_then(|uid| known.get(&uid).copied());
        let state = renamed.or_else(|| observed.active(reference).map(|state| (reference, state)));
        let Some((earlier, state)) = state else {
            steps.insert(reference, Step::Create);
            continue;
        };
        kept.insert(state.uid);
        if earlier != reference || state.spec_hash != it.spec_hash {
            steps.insert(reference, Step::Change);
            names_before.insert(reference, earlier);
        }
    }
    for (reference, state) in &observed.objects {
        if state.deletion_requested_at.is_none() && !kept.contains(&state.uid) {
            steps.insert(reference, Step::Remove);
        }
    }
    let change = |(reference, step): (&ObjectRef, Step)| {
        let earlier = names_before.get(reference).and_then(|it| before.get(*it));
        let both = earlier.zip(after.get(reference));
        Change {
            step,
            object: reference.to_string(),
            fields: both.map_or_else(Vec::new, |(before, after)| fields(before, after)),
        }
    };
    steps.into_iter().map(change).collect()
}

/// Makes `observed` what it would be after the acceptance. New objects get an id that stands for
/// their name: what the daemon will mint is not known.
pub(super) fn accept(
    observed: &mut Observed,
    catalog: &Catalog,
    revision: &Revision,
    is_first_held: bool,
    now: Timestamp,
) {
    let known: BTreeMap<Uid, ObjectRef> = by_uid(observed)
        .into_iter()
        .map(|(uid, (reference, _))| (uid, reference.clone()))
        .collect();
    let mut after = BTreeMap::new();
    for (reference, it) in catalog.index() {
        let before = it.metadata.uid.and_then(|uid| known.get(&uid));
        let before = before.unwrap_or(&reference);
        let mut state = observed.objects.remove(before).unwrap_or_else(|| {
            let is_held = is_first_held && reference.kind.is_run_once();
            ObjectState {
                uid: it
                    .metadata
                    .uid
                    .unwrap_or_else(|| Uid::derived(&[&reference.to_string()])),
                generation: 1,
                spec_hash: it.spec_hash.to_owned(),
                revision: revision.clone(),
                created_at: now,
                generation_since: now,
                dispatched_generation: None,
                first_revision_generation: is_held.then_some(1),
                deletion_requested_at: None,
            }
        });
        state.deletion_requested_at = None;
        if state.spec_hash != it.spec_hash {
            it.spec_hash.clone_into(&mut state.spec_hash);
            state.generation += 1;
            state.revision = revision.clone();
            state.generation_since = now;
        }
        after.insert(reference, state);
    }
    for (reference, mut state) in std::mem::take(&mut observed.objects) {
        state.deletion_requested_at.get_or_insert(now);
        after.insert(reference, state);
    }
    observed.objects = after;
    observed.revision = Some(revision.clone());
}

fn by_uid(observed: &Observed) -> BTreeMap<Uid, (&ObjectRef, &ObjectState)> {
    let objects = observed.objects.iter();
    objects
        .map(|(reference, state)| (state.uid, (reference, state)))
        .collect()
}
