//! Dispatches: one wake for each generation, never again on resync.
//!
//! The reason is always `followUp`, also with a ticket: nobody assigned anything, an operator
//! follows something up.

use super::cx::PlanCx;
use super::tickets::{first_revision_message, is_first_revision};
use super::view::{View, sibling};
use crate::model::action::{Action, HoldReason, HoldSubject};
use crate::model::id::{ConversationId, WakeId};
use crate::model::kind::{Kind, ObjectRef, Resource};
use crate::model::observed::ObjectState;
use crate::model::spec::{DispatchSpec, Priority};
use crate::model::wake::{Delivery, Wake, WakeReason};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    for (reference, dispatch) in &view.catalog.dispatches {
        let Some(state) = view.observed.active(reference) else {
            continue;
        };
        if state.dispatched_generation == Some(state.generation) {
            continue;
        }
        let subject = HoldSubject::Object(reference.clone());
        if is_first_revision(view, state) {
            cx.hold(subject, HoldReason::FirstRevision, first_revision_message());
            continue;
        }
        if !view.standing.may_record() {
            cx.hold_for_standing(subject);
            continue;
        }
        let wake = wake_of(view, reference, dispatch, state);
        let is_ticket_busy = |it: &Wake| it.ticket.is_some_and(|uid| cx.changes_ticket(uid));
        if let Some(wake) = wake.filter(|it| !is_ticket_busy(it)) {
            let action = Action::DispatchOnce {
                dispatch: state.uid,
                generation: state.generation,
                wake: Box::new(wake),
            };
            cx.act(action, subject);
        }
    }
}

fn wake_of(
    view: &View<'_>,
    reference: &ObjectRef,
    dispatch: &Resource<DispatchSpec>,
    state: &ObjectState,
) -> Option<Wake> {
    let spec = &dispatch.spec;
    let space = view.uid_beside(reference, Kind::Space, &spec.space)?;
    let ticket = match &spec.ticket {
        Some(name) => Some(view.uid_beside(reference, Kind::Ticket, name)?),
        None => None,
    };
    let about = spec.ticket.as_ref().and_then(|name| {
        let ticket = sibling(reference, Kind::Ticket, name);
        view.catalog.tickets.get(&ticket)
    });
    let conversation = match &spec.conversation {
        Some(name) => ConversationId::derived(&[&space.to_string(), name.as_str()]),
        None => ConversationId::main_of(space),
    };
    let id = WakeId::derived(&[
        "dispatch",
        &state.uid.to_string(),
        &state.generation.to_string(),
    ]);
    Some(Wake {
        id,
        reason: WakeReason::FollowUp,
        workspace: view.workspace_of(reference)?,
        agent: view.uid_beside(reference, Kind::Agent, &spec.agent)?,
        space,
        conversation,
        ticket,
        message: None,
        cause: Some(state.uid),
        previous_run: None,
        attempt: 0,
        continuation: None,
        delay: None,
        prompt: spec.prompt.clone(),
        requested_by: spec.requested_by.clone(),
        env: spec.env.clone(),
        git_identity: spec.git_identity.clone(),
        delivery: Delivery::FollowUp,
        priority: about.map_or_else(Priority::default, |it| it.spec.priority),
        revision: view.revision(),
        created_at: view.now,
    })
}
