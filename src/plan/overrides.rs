//! Overrides: an emergency stop ends every live run; an operator's pause may run out.

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
    for until in observed.operator_pauses.iter().filter_map(|it| it.until) {
        cx.look_at(until);
    }
}
