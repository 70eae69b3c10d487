//! Reaping: orphans are killed and confirmed, and runs of removed things are told to end.
//!
//! An orphan is a live row that no task of this daemon drives. It is reaped whatever stands over
//! the fleet: nothing may start in its place before it is confirmed gone.

use jiff::{Timestamp, ToSpan};

use super::cx::PlanCx;
use super::view::View;
use crate::model::action::{Action, HoldReason, HoldSubject};
use crate::model::kind::ObjectRef;
use crate::model::run::{EndReason, LiveRun};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let observed = cx.view.observed;
    for run in observed.live_runs.values() {
        if !run.is_attached {
            let subject = HoldSubject::Wake(run.wake);
            cx.act(Action::ReapRun { run: run.id }, subject);
        }
        if let Some(leaving) = leaving(cx.view, run) {
            end_run_of(cx, run, leaving);
        }
    }
}

/// A thing that takes its runs with it when it goes.
#[derive(Clone, Copy)]
struct Leaving<'a> {
    object: &'a ObjectRef,
    since: Timestamp,
}

/// What of the run's agent, space and ticket is leaving, the earliest first.
fn leaving<'a>(view: &View<'a>, run: &LiveRun) -> Option<Leaving<'a>> {
    let removed = [Some(run.agent), Some(run.space), run.ticket];
    let removed = removed.into_iter().flatten().filter_map(|uid| {
        let (object, state) = view.object(uid)?;
        let since = state.deletion_requested_at?;
        Some(Leaving { object, since })
    });
    let agent = view.agents.get(&run.agent);
    let archived = agent.filter(|it| it.is_archived()).map(|it| Leaving {
        object: it.reference,
        since: it.state.generation_since,
    });
    removed.chain(archived).min_by_key(|it| it.since)
}

/// Holds the leaving object, and stops the run once it had `Fleet.spec.drain` to end by itself.
fn end_run_of(cx: &mut PlanCx<'_>, run: &LiveRun, leaving: Leaving<'_>) {
    let view = cx.view;
    let drain = i64::try_from(view.fleet.drain.secs()).unwrap_or(i64::MAX);
    let deadline = leaving.since.checked_add(drain.seconds());
    let deadline = deadline.unwrap_or(Timestamp::MAX);
    let agent = view.name(run.agent);
    let is_ending = run.stop_requested.is_some() || !run.is_attached;
    let message = if is_ending || view.now >= deadline {
        format!("run {} of {agent} is ending", run.id.short())
    } else {
        format!(
            "run {} of {agent} may go on until {deadline}",
            run.id.short()
        )
    };
    let subject = HoldSubject::Object(leaving.object.clone());
    cx.hold(subject, HoldReason::RunLive, message);
    if is_ending || !view.standing.may_remove() {
        return;
    }
    if view.now >= deadline {
        cx.push(Action::StopRun {
            run: run.id,
            reason: EndReason::Removed,
        });
    } else {
        cx.look_at(deadline);
    }
}
