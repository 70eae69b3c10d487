//! Ended runs: the next attempt, and what becomes of the ticket.
//!
//! | how the run ended | its ticket |
//! |---|---|
//! | completed, `productive` or `completed` | `done` |
//! | completed with anything less (blocked, empty) | `blocked`: somebody has to look |
//! | stopped by a person, the emergency stop or removal | `blocked`: the agent did not fail |
//! | any other error, with no next attempt | `failed` |
//! | any error, with a next attempt | unchanged |
//!
//! The last run decides: a ticket that another run is about, live, waiting or ended later, keeps
//! its status. Where the status graph has no direct edge (a run that ended before it was seen live
//! leaves its ticket `open`), the ticket takes one step and the run is settled in a later pass.
//! Nothing else is planned for a ticket in a pass that changes its status, so that it makes no
//! difference after which action a pass is cut off.

use super::cx::PlanCx;
use super::view::View;
use crate::model::action::{Action, HoldSubject, TicketChange};
use crate::model::id::{Uid, WakeId};
use crate::model::run::{ATTEMPTS_MAX, EndReason, EndedRun, Liveness, RunStatus};
use crate::model::ticket::TicketStatus;
use crate::model::wake::{Wake, WakeReason};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    for run in &cx.view.observed.ended_runs {
        settle(cx, run);
    }
}

fn settle(cx: &mut PlanCx<'_>, run: &EndedRun) {
    let subject = HoldSubject::Wake(run.wake.id);
    let retry = next_attempt(cx.view, run);
    let target = target_of(run);
    let change = match &retry {
        Some(_) => None,
        None => change_towards(cx, run, target),
    };
    if let Some(change) = &change {
        cx.note_change(change);
        if change.to != target {
            cx.act(Action::ChangeTicket(change.clone()), subject);
            return;
        }
    }
    let action = Action::SettleRun {
        run: run.id,
        retry: retry.map(Box::new),
        ticket: change,
    };
    cx.act(action, subject);
}

/// The wake of the next attempt, if the lineage has one left and everything that it needs is
/// there. Its agent may be paused: the gates hold it then, like any other wake.
pub(super) fn next_attempt(view: &View<'_>, run: &EndedRun) -> Option<Wake> {
    let attempt = run.wake.attempt + u32::from(run.end_reason.counts_as_attempt());
    let has_attempt_left = run.end_reason.is_retryable() && attempt < ATTEMPTS_MAX;
    let is_agent_there = view
        .agents
        .get(&run.wake.agent)
        .is_some_and(|agent| !agent.is_archived());
    if !has_attempt_left || !is_agent_there || view.lost_by(&run.wake).is_some() {
        return None;
    }
    Some(Wake {
        id: WakeId::derived(&["recovery", &run.id.to_string()]),
        reason: WakeReason::Recovery,
        previous_run: Some(run.id),
        attempt,
        continuation: run.continuation.clone(),
        revision: view.revision(),
        created_at: view.now,
        ..run.wake.clone()
    })
}

/// What the ticket becomes when no attempt follows.
const fn target_of(run: &EndedRun) -> TicketStatus {
    if matches!(run.status, RunStatus::Completed) {
        return if matches!(run.liveness, Liveness::Productive | Liveness::Completed) {
            TicketStatus::Done
        } else {
            TicketStatus::Blocked
        };
    }
    match run.end_reason {
        EndReason::StoppedByHuman | EndReason::Estop | EndReason::Removed => TicketStatus::Blocked,
        EndReason::AgentFinished
        | EndReason::Silence
        | EndReason::Budget
        | EndReason::DaemonShutdown
        | EndReason::DaemonLost
        | EndReason::LaunchFailed => TicketStatus::Failed,
    }
}

/// The next legal step of the run's ticket towards `target`.
fn change_towards(cx: &PlanCx<'_>, run: &EndedRun, target: TicketStatus) -> Option<TicketChange> {
    let ticket = run.wake.ticket?;
    if !cx.view.is_active(ticket) || !has_last_word(cx.view, run, ticket) {
        return None;
    }
    let from = cx.ticket_status(ticket);
    if from == target {
        return None;
    }
    let to = if from.may_become(target) {
        target
    } else {
        step_towards_work(from)?
    };
    Some(TicketChange { ticket, from, to })
}

/// Whether no other run about the ticket is live, waits, follows, or ended later.
fn has_last_word(view: &View<'_>, run: &EndedRun, ticket: Uid) -> bool {
    let is_about = |wake: &Wake| wake.ticket == Some(ticket);
    let mut waiting = view.observed.wakes.iter().map(|queued| &queued.wake);
    let waits = waiting.any(|wake| is_about(wake) && view.lost_by(wake).is_none());
    let ended = view.observed.ended_runs.iter();
    let ended: Vec<&EndedRun> = ended.filter(|it| is_about(&it.wake)).collect();
    view.runs_of_ticket(ticket).is_empty()
        && !waits
        && ended.last().is_some_and(|last| last.id == run.id)
        && ended.iter().all(|it| next_attempt(view, it).is_none())
}

/// The legal step that brings a ticket nearer to `inProgress`, from where every outcome is legal.
pub(super) const fn step_towards_work(from: TicketStatus) -> Option<TicketStatus> {
    match from {
        TicketStatus::Backlog => Some(TicketStatus::Open),
        TicketStatus::Open | TicketStatus::Blocked | TicketStatus::InReview => {
            Some(TicketStatus::InProgress)
        }
        TicketStatus::InProgress
        | TicketStatus::Done
        | TicketStatus::Failed
        | TicketStatus::Cancelled => None,
    }
}
