//! Messages for a conversation whose run goes on: the run is told, or ended for them.
//!
//! Which of the two a message asks for is in its wake. What can't be told now (another agent's
//! run, an agent that takes no messages, one that has not begun or is ending) waits for a run of its
//! own, where every wake does. An agent that takes no work is told nothing either.

use std::collections::BTreeSet;

use super::admit::lifecycle;
use super::cx::PlanCx;
use super::view::View;
use crate::model::action::{Action, HoldSubject};
use crate::model::run::{EndReason, LiveRun};
use crate::model::wake::{Delivery, Wake, WakeReason};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    if !view.standing.may_begin() {
        return;
    }
    let mut queue: Vec<_> = view.observed.wakes.iter().collect();
    queue.sort_by_key(|queued| queued.sequence);
    let wakes = queue.into_iter().map(|queued| &queued.wake);
    let messages: Vec<_> = wakes
        .filter_map(|wake| Some((wake, addressed(view, wake)?)))
        .collect();
    let mut interrupted = BTreeSet::new();
    for (wake, run) in &messages {
        if wake.delivery == Delivery::Interrupt && interrupted.insert(run.id) {
            cx.push(Action::StopRun {
                run: run.id,
                reason: EndReason::Interrupted,
            });
        }
    }
    for (wake, run) in messages {
        let is_same = run.agent == wake.agent;
        let hears = run.is_listening && !interrupted.contains(&run.id);
        if wake.delivery == Delivery::Steer && is_same && hears {
            tell(cx, run, wake);
        }
    }
}

/// The run that a message finds in its conversation, if that run goes on and its agent takes work.
fn addressed<'a>(view: &View<'a>, wake: &Wake) -> Option<&'a LiveRun> {
    if wake.reason != WakeReason::UserMessage
        || view.observed.takeovers.contains_key(&wake.space)
        || view.lost_by(wake).is_some()
    {
        return None;
    }
    lifecycle(view, view.agents.get(&wake.agent)?).ok()?;
    let run = view.run_in(wake.conversation)?;
    (run.is_attached && run.stop_requested.is_none()).then_some(run)
}

fn tell(cx: &mut PlanCx<'_>, run: &LiveRun, wake: &Wake) {
    let tell = Action::TellRun {
        run: run.id,
        wake: wake.id,
    };
    if cx.act(tell, HoldSubject::Wake(wake.id)) {
        cx.note_told(wake.id);
    }
}
