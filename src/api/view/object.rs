//! Objects with their status.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::name::find;
use crate::api::dto::{Condition, Hold, Object, ObjectList};
use crate::api::problem::Failure;
use crate::model::action::HoldSubject;
use crate::model::condition::StoredCondition;
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::observed::TicketState;
use crate::store::{ObjectView, Store, StoredHold};

/// Objects of one kind, or all, in reference order.
///
/// # Errors
/// When the database fails.
pub async fn objects(
    store: &Store,
    kind: Option<Kind>,
    now: Timestamp,
) -> Result<ObjectList, Failure> {
    let observed = store.observe(now).await?;
    let holds = object_holds(store.holds().await?);
    let views = store.objects(kind).await?;
    let objects = views
        .into_iter()
        .map(|view| {
            let hold = holds.get(&view.reference).cloned();
            shown(view, hold, &observed.tickets)
        })
        .collect();
    Ok(ObjectList {
        revision: observed.revision,
        source_fault: None,
        objects,
    })
}

/// The one object of `kind` that `name` (`NAME` or `WORKSPACE/NAME`) names.
///
/// # Errors
/// When there is none, or more than one.
pub async fn object(
    store: &Store,
    kind: Kind,
    name: &str,
    now: Timestamp,
) -> Result<Object, Failure> {
    let view = find(store, kind, name).await?;
    let observed = store.observe(now).await?;
    let hold = object_holds(store.holds().await?).remove(&view.reference);
    Ok(shown(view, hold, &observed.tickets))
}

/// What holds each object.
pub(super) fn object_holds(holds: Vec<StoredHold>) -> BTreeMap<ObjectRef, Hold> {
    let of_object = |stored: StoredHold| match stored.subject.clone() {
        HoldSubject::Object(reference) => Some((reference, hold(stored))),
        HoldSubject::Wake(_) => None,
    };
    holds.into_iter().filter_map(of_object).collect()
}

/// A hold as it is shown.
pub(super) fn hold(stored: StoredHold) -> Hold {
    Hold {
        reason: stored.reason,
        message: stored.message,
        since: stored.since,
        count: stored.count,
    }
}

/// An object as it is shown.
pub(super) fn shown(
    view: ObjectView,
    hold: Option<Hold>,
    tickets: &BTreeMap<Uid, TicketState>,
) -> Object {
    let ObjectView {
        reference,
        state,
        json,
        origin,
        conditions,
    } = view;
    Object {
        kind: reference.kind,
        workspace: reference.workspace.map(|it| it.to_string()),
        name: reference.name.to_string(),
        uid: state.uid,
        generation: state.generation,
        revision: state.revision,
        created_at: state.created_at,
        deletion_requested_at: state.deletion_requested_at,
        origin,
        ticket: tickets.get(&state.uid).map(|it| it.status),
        conditions: conditions.into_iter().map(condition).collect(),
        hold,
        // The store holds what our own encoder wrote.
        manifest: json.and_then(|text| serde_json::from_str(&text).ok()),
    }
}

fn condition(stored: StoredCondition) -> Condition {
    let StoredCondition { condition, since } = stored;
    Condition {
        kind: condition.kind,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        observed_generation: condition.observed_generation,
        since,
    }
}
