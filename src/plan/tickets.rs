//! Tickets: an assignment wakes its agent, and a ticket that is worked on is in progress.

use super::cx::PlanCx;
use super::settle::step_towards_work;
use super::view::View;
use crate::model::action::{Action, HoldReason, HoldSubject, TicketChange};
use crate::model::id::{ConversationId, Uid, WakeId};
use crate::model::kind::{Kind, ObjectRef, Resource};
use crate::model::observed::ObjectState;
use crate::model::spec::{FirstRevision, TicketSpec};
use crate::model::wake::{Delivery, Wake, WakeReason};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    for (reference, ticket) in &view.catalog.tickets {
        if let Some(state) = view.observed.active(reference) {
            assign(cx, reference, ticket, state);
            advance(cx, reference, state.uid);
        }
    }
}

/// Records a change of assignee, with the wake that it causes.
fn assign(
    cx: &mut PlanCx<'_>,
    reference: &ObjectRef,
    ticket: &Resource<TicketSpec>,
    state: &ObjectState,
) {
    let view = cx.view;
    let known = view.ticket_state(state.uid);
    let named = ticket.spec.assignee.as_ref();
    let assignee = named.and_then(|name| view.uid_beside(reference, Kind::Agent, name));
    let is_unknown = named.is_some() && assignee.is_none();
    if is_unknown || assignee == known.assignee || cx.changes_ticket(state.uid) {
        return;
    }
    let subject = HoldSubject::Object(reference.clone());
    if assignee.is_some() && is_first_revision(view, state) {
        cx.hold(subject, HoldReason::FirstRevision, first_revision_message());
        return;
    }
    if !view.standing.may_record() {
        cx.hold_for_standing(subject);
        return;
    }
    let assignments = known.assignments.saturating_add(1);
    let is_wanted = ticket.spec.wake_on_assign && !known.status.is_terminal();
    let agent = assignee.filter(|_| is_wanted);
    let wake =
        agent.and_then(|agent| wake_of(view, reference, ticket, state, (agent, assignments)));
    if agent.is_some() && wake.is_none() {
        // An assignment recorded without its wake would have lost it: it waits for the space.
        return;
    }
    let action = Action::AssignTicket {
        ticket: state.uid,
        assignee,
        assignments,
        wake: wake.map(Box::new),
    };
    cx.act(action, subject);
}

fn wake_of(
    view: &View<'_>,
    reference: &ObjectRef,
    ticket: &Resource<TicketSpec>,
    state: &ObjectState,
    (agent, assignments): (Uid, u32),
) -> Option<Wake> {
    let spec = &ticket.spec;
    let space = view.uid_beside(reference, Kind::Space, &spec.space)?;
    let id = WakeId::derived(&[
        "assignment",
        &state.uid.to_string(),
        &assignments.to_string(),
    ]);
    let prompt = match &spec.description {
        Some(description) => format!("{}\n\n{description}", spec.title),
        None => spec.title.clone(),
    };
    Some(Wake {
        id,
        reason: WakeReason::Assignment,
        workspace: view.workspace_of(reference)?,
        agent,
        space,
        conversation: ConversationId::main_of(space),
        ticket: Some(state.uid),
        message: None,
        cause: None,
        previous_run: None,
        attempt: 0,
        continuation: None,
        delay: None,
        prompt,
        requested_by: spec.requested_by.clone(),
        env: std::collections::BTreeMap::new(),
        git_identity: None,
        delivery: Delivery::FollowUp,
        priority: spec.priority,
        revision: view.revision(),
        created_at: view.now,
    })
}

/// Takes a ticket that a live run is about one legal step towards `inProgress`.
fn advance(cx: &mut PlanCx<'_>, reference: &ObjectRef, ticket: Uid) {
    let mut runs = cx.view.runs_of_ticket(ticket).iter();
    let is_worked_on = runs.any(|run| run.is_attached && run.stop_requested.is_none());
    let from = cx.ticket_status(ticket);
    let Some(to) = step_towards_work(from) else {
        return;
    };
    if !is_worked_on || cx.changes_ticket(ticket) {
        return;
    }
    let change = TicketChange { ticket, from, to };
    cx.note_change(&change);
    cx.act(
        Action::ChangeTicket(change),
        HoldSubject::Object(reference.clone()),
    );
}

/// Whether the object was brought by the first revision of a database and the fleet holds those.
pub(super) fn is_first_revision(view: &View<'_>, state: &ObjectState) -> bool {
    view.fleet.first_revision == FirstRevision::Hold
        && state.first_revision_generation == Some(state.generation)
}

/// What the hold says.
pub(super) fn first_revision_message() -> String {
    "the database never accepted a revision before, so this may have run already; change the spec, \
     or set firstRevision: run on the Fleet"
        .to_owned()
}
