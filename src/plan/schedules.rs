//! Schedules: each slot that came fires once; of several missed ones only the latest does.
//!
//! A slot counts from when the schedule got its present spec, so that an edited expression does
//! not fire for a time before the edit.

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan};

use super::cx::PlanCx;
use super::settle::next_attempt;
use super::view::View;
use crate::model::action::{Action, HoldSubject};
use crate::model::cron::CronSchedule;
use crate::model::id::{ConversationId, Uid, WakeId};
use crate::model::kind::{Kind, ObjectRef, Resource};
use crate::model::observed::ObjectState;
use crate::model::spec::{Overlap, Priority, ScheduleSpec};
use crate::model::wake::{Delivery, Wake, WakeReason};

/// How far back the latest slot is looked for, nearest first, in minutes: whatever the expression,
/// the first stretch that holds a slot holds few.
const LOOK_BACK_MINUTES: [i64; 4] = [2, 2 * 60, 2 * 24 * 60, 62 * 24 * 60];

/// More slots than any of those stretches holds: the walk to the latest one ends.
const WALK_MAX: usize = 3_000;

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    if !view.standing.may_record() {
        return;
    }
    for (reference, schedule) in &view.catalog.schedules {
        if let Some(state) = view.observed.active(reference) {
            fire(cx, reference, schedule, state);
        }
    }
}

fn fire(
    cx: &mut PlanCx<'_>,
    reference: &ObjectRef,
    schedule: &Resource<ScheduleSpec>,
    state: &ObjectState,
) {
    let view = cx.view;
    let spec = &schedule.spec;
    let zone = spec.zone.as_deref().unwrap_or(&view.fleet.zone);
    // Validation read both; an expression that this program no longer reads fires nothing.
    let Ok(cron) = CronSchedule::parse(&spec.cron, zone) else {
        return;
    };
    let last = view.observed.schedule_slots.get(&state.uid).copied();
    let base = last.map_or(state.generation_since, |it| it.max(state.generation_since));
    let Some(first) = cron.next_after(base) else {
        return;
    };
    if first > view.now {
        cx.look_at(first);
        return;
    }
    let slot = latest_slot(&cron, first, view.now);
    if let Some(next) = cron.next_after(slot) {
        cx.look_at(next);
    }
    let is_skipped = match spec.overlap {
        Overlap::Skip => waits(view, state.uid) || runs(view, state.uid),
        Overlap::QueueOne => waits(view, state.uid),
    };
    let wake = wake_of(view, reference, spec, state, slot);
    if wake.is_none() && !is_skipped {
        // A slot recorded without its wake would have lost it: it waits for agent and space.
        return;
    }
    let wake = wake.filter(|_| !is_skipped);
    let action = Action::FireSchedule {
        schedule: state.uid,
        slot,
        wake: wake.map(Box::new),
    };
    cx.act(action, HoldSubject::Object(reference.clone()));
}

/// The latest slot in `[first, now]`.
fn latest_slot(cron: &CronSchedule, first: Timestamp, now: Timestamp) -> Timestamp {
    let slot_after = |after: Timestamp| cron.next_after(after).filter(|slot| *slot <= now);
    let stretches = LOOK_BACK_MINUTES.map(|minutes| now.checked_sub(minutes.minutes()));
    let mut starts = stretches.into_iter().filter_map(Result::ok);
    let near = starts.find_map(|start| slot_after(start.max(first)));
    let slots = std::iter::successors(Some(near.unwrap_or(first)), |slot| slot_after(*slot));
    slots.take(WALK_MAX).last().unwrap_or(first)
}

/// Whether a wake of the schedule waits, or will: a lost run is about to be tried again.
fn waits(view: &View<'_>, schedule: Uid) -> bool {
    let is_ours = |wake: &Wake| wake.cause == Some(schedule);
    let observed = view.observed;
    let mut ended = observed.ended_runs.iter();
    observed.wakes.iter().any(|queued| is_ours(&queued.wake))
        || ended.any(|run| is_ours(&run.wake) && next_attempt(view, run).is_some())
}

/// Whether a run of the schedule is live.
fn runs(view: &View<'_>, schedule: Uid) -> bool {
    let mut runs = view.observed.live_runs.values();
    runs.any(|run| run.cause == Some(schedule))
}

fn wake_of(
    view: &View<'_>,
    reference: &ObjectRef,
    spec: &ScheduleSpec,
    state: &ObjectState,
    slot: Timestamp,
) -> Option<Wake> {
    let space = view.uid_beside(reference, Kind::Space, &spec.space)?;
    let id = WakeId::derived(&["schedule", &state.uid.to_string(), &slot.to_string()]);
    Some(Wake {
        id,
        reason: WakeReason::FollowUp,
        workspace: view.workspace_of(reference)?,
        agent: view.uid_beside(reference, Kind::Agent, &spec.agent)?,
        space,
        conversation: ConversationId::main_of(space),
        ticket: None,
        message: None,
        cause: Some(state.uid),
        previous_run: None,
        attempt: 0,
        continuation: None,
        delay: None,
        prompt: spec.prompt.clone(),
        requested_by: None,
        env: BTreeMap::new(),
        git_identity: None,
        delivery: Delivery::FollowUp,
        priority: Priority::default(),
        revision: view.revision(),
        created_at: view.now,
    })
}
