//! Overrides: an emergency stop ends every live run, a takeover those of its space; an operator's
//! pause may run out, and so may a provider's and the delay of a next attempt.

use super::cx::PlanCx;
use super::view::Standing;
use crate::model::action::Action;
use crate::model::run::EndReason;

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let observed = cx.view.observed;
    if let Standing::Stopped(_) = cx.view.standing {
        // A run that no task drives is reaped instead; one that is stopping needs no second word.
        let runs = observed.live_runs.values();
        for run in runs.filter(|run| run.is_attached && run.stop_requested.is_none()) {
            cx.push(Action::StopRun {
                run: run.id,
                reason: EndReason::Estop,
            });
        }
    }
    let live = observed.live_runs.values();
    for run in live.filter(|run| run.is_attached && run.stop_requested.is_none()) {
        if observed.takeovers.contains_key(&run.space) && cx.view.standing.may_remove() {
            cx.push(Action::StopRun {
                run: run.id,
                reason: EndReason::TakenOver,
            });
        }
    }
    let by_operators = observed.operator_pauses.iter().filter_map(|it| it.until);
    let by_providers = observed.provider_pauses.values().map(|it| it.until);
    let delays = observed.wakes.iter();
    let delays = delays.filter_map(|it| Some(it.wake.delay.as_ref()?.until));
    for until in by_operators.chain(by_providers).chain(delays) {
        cx.look_at(until);
    }
}
