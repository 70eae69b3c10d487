//! Ended runs: the next attempt, and what becomes of the ticket.
//!
//! | how the run ended | its ticket |
//! |---|---|
//! | completed, `productive` or `completed` | `done` |
//! | completed with anything less (blocked, empty) | `blocked`: somebody has to look |
//! | stopped, taken over or interrupted by a person, the emergency stop or removal | `blocked`: the agent did not fail |
//! | any other error, with no next attempt | `failed` |
//! | any error, with a next attempt | unchanged |
//!
//! The last run decides: a ticket that another run is about, live, waiting or ended later, keeps
//! its status. Where the status graph has no direct edge (a run that ended before it was seen live
//! leaves its ticket `open`), the ticket takes one step and the run is settled in a later pass.
//! A run that was lost with the daemon, or that its model's provider failed in a way that passes, has a
//! next attempt; the latter not at once (`delay`).
//!
//! Nothing else is planned for a ticket in a pass that changes its status, so that it makes no
//! difference after which action a pass is cut off.

use std::time::Duration;

use super::cx::PlanCx;
use super::view::View;
use crate::model::action::{Action, HoldSubject, TicketChange};
use crate::model::backoff::backoff;
use crate::model::id::{Uid, WakeId};
use crate::model::run::{
    ATTEMPTS_MAX, EndReason, EndedRun, ErrorFamily, Liveness, ProviderAsk, RunStatus,
};
use crate::model::ticket::TicketStatus;
use crate::model::wake::{Delay, Wake, WakeReason};

/// The first wait of a run that its provider failed. Its program has tried for some seconds by then,
/// and a run begins anew: trying at once would cost a prompt and find the same.
const RETRY_FIRST: Duration = Duration::from_secs(30);

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
    let has_attempt_left = run.is_retryable && attempt < ATTEMPTS_MAX;
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
        delay: delay(run),
        revision: view.revision(),
        created_at: view.now,
        ..run.wake.clone()
    })
}

/// How long the next attempt of a run that its provider failed waits: as long as the provider said,
/// else for a back-off. Where the provider's word is everybody's to heed, it is a gate of all runs of
/// the Adapter, and no delay of this one besides.
fn delay(run: &EndedRun) -> Option<Delay> {
    if run.family != Some(ErrorFamily::TransientUpstream) {
        return None;
    }
    let failed = format!(
        "the model's provider failed run {}: {}",
        run.id.short(),
        run.error_code.as_deref().unwrap_or("no code")
    );
    match run.provider {
        Some(ProviderAsk {
            is_shared: true, ..
        }) => None,
        Some(ProviderAsk { until, status, .. }) => Some(Delay {
            until,
            because: format!("{failed}, and asked with status {status} to be left alone"),
        }),
        None => {
            let wait = backoff(RETRY_FIRST, run.wake.attempt, &run.id.to_string());
            Some(Delay {
                until: run.ended_at.saturating_add(wait).unwrap_or(run.ended_at),
                because: failed,
            })
        }
    }
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
        EndReason::StoppedByHuman
        | EndReason::TakenOver
        | EndReason::Interrupted
        | EndReason::Estop
        | EndReason::Removed => TicketStatus::Blocked,
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
