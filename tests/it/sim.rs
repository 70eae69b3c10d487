//! The planner against a model world: random fleets, random events, crashes between actions.
//!
//! P1: applying plans reaches an empty plan within a bounded number of rounds once runs end.
//! P2: equal input, byte-identical plan. P3: cutting a pass off after any action and planning anew
//! reaches the same end. P4 (asserted by the world at every step): never two runs in one
//! conversation or one worktree, never a run of a paused agent, no cap exceeded, nothing taken from
//! under a run. P5: nothing is planned for a thing that was removed. P6: in a conversation the next
//! attempt of a lost run starts before what waits.

use std::collections::BTreeMap;
use std::fmt::Debug;

use homeostat::model::action::{Action, HoldReason, HoldSubject, Plan};
use homeostat::model::budget::Totals;
use homeostat::model::id::{OverrideId, RunId};
use homeostat::model::kind::{Kind, ObjectRef};
use homeostat::model::observed::{Backoff, Estop, Observed, OperatorPause, Takeover};
use homeostat::model::run::{EndReason, Liveness, ProviderAsk, RunStatus};
use homeostat::model::units::{Money, Tokens};
use homeostat::model::wake::{Delivery, Wake, WakeReason};
use homeostat::plan::conditions::conditions;
use homeostat::plan::plan;
use homeostat::plan::render::Report;
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::Just;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use proptest::{prop_assert, prop_assert_eq, prop_oneof};

use crate::fleet::{Shape, catalog_of, shapes};
use crate::world::{Ending, World};

/// What happens to the world.
#[derive(Clone, Debug)]
enum Event {
    Revise(Box<Shape>),
    Message(u8, u8, u8),
    TakeOver(u8),
    HandBack,
    End(u8, u8),
    /// The provider of a run's model fails it, and may ask for some minutes.
    Upstream(u8, Option<(u16, bool)>),
    Restart,
    Pause(u8),
    Resume,
    Estop(bool),
    Drain(bool),
    Spend(u8),
    Minutes(u16),
    /// Plans and applies so many of the actions.
    Pass(u8),
    /// An action of the plan fails, for a while or for good.
    Fail(u8, bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => shapes().prop_map(|shape| Event::Revise(Box::new(shape))),
        3 => (any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(space, agent, how)| Event::Message(space, agent, how)),
        1 => any::<u8>().prop_map(Event::TakeOver),
        1 => Just(Event::HandBack),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(run, how)| Event::End(run, how)),
        2 => (any::<u8>(), prop::option::of((1..90_u16, any::<bool>())))
            .prop_map(|(run, ask)| Event::Upstream(run, ask)),
        1 => Just(Event::Restart),
        1 => any::<u8>().prop_map(Event::Pause),
        1 => Just(Event::Resume),
        1 => prop::bool::weighted(0.3).prop_map(Event::Estop),
        1 => prop::bool::weighted(0.3).prop_map(Event::Drain),
        1 => any::<u8>().prop_map(Event::Spend),
        1 => (0..900_u16).prop_map(Event::Minutes),
        8 => any::<u8>().prop_map(Event::Pass),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(action, for_good)| Event::Fail(action, for_good)),
    ];
    let first = shapes().prop_map(|shape| Event::Revise(Box::new(shape)));
    (first, prop::collection::vec(event, 4..28)).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        rest
    })
}

/// Runs `test` on a share of the cases that proptest is told to try (`PROPTEST_CASES`).
fn check<S: Strategy>(
    share: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) where
    S::Value: Debug,
{
    let all = Config::default();
    let config = Config {
        cases: all.cases / share,
        failure_persistence: None,
        ..all
    };
    TestRunner::new(config).run(strategy, test).unwrap();
}

#[test]
fn plans_are_reproducible_safe_and_reach_an_end() {
    check(6, &events(), |events| {
        let mut world = World::at("2026-11-30T12:00:00Z");
        for event in events {
            happen(&mut world, &event)?;
        }
        calm(&mut world);
        converge(&mut world, usize::MAX)
    });
}

#[test]
fn a_pass_may_be_cut_off_after_any_action() {
    let strategy = (events(), prop::collection::vec(0..4_usize, 1..6));
    check(16, &strategy, |(events, cuts)| {
        let mut world = World::at("2026-11-30T12:00:00Z");
        for event in events {
            happen(&mut world, &event)?;
        }
        calm(&mut world);
        let mut whole = world.clone();
        converge(&mut whole, usize::MAX)?;
        for cut in cuts {
            // Once it cannot get shorter, a cut-off pass still applies one action.
            let mut cut_off = world.clone();
            converge(&mut cut_off, cut + 1)?;
            prop_assert_eq!(end_of(&cut_off), end_of(&whole));
        }
        Ok(())
    });
}

/// What both ways have to arrive at. Instants are left out: the ways take other times.
fn end_of(world: &World) -> impl Debug + PartialEq + use<> {
    let Observed {
        objects,
        roots,
        worktrees,
        tickets,
        incidents,
        ..
    } = world.observed.clone();
    let objects: BTreeMap<_, _> = objects
        .into_iter()
        .map(|(it, state)| {
            (
                it,
                (state.uid, state.generation, state.dispatched_generation),
            )
        })
        .collect();
    let worktrees: Vec<_> = worktrees.into_values().map(|tree| tree.path).collect();
    let recorded = world.recorded().clone();
    (objects, roots, worktrees, tickets, incidents, recorded)
}

/// Plans twice, and checks what must hold of every plan.
fn planned(world: &mut World) -> Result<Plan, TestCaseError> {
    let plan_of_it = world.plan();
    let again = world.clone();
    let input = again.input();
    let repeated = plan(&input);
    prop_assert_eq!(format!("{plan_of_it:?}"), format!("{repeated:?}"));
    let report = Report::of(&input, &plan_of_it);
    let repeated = Report::of(&input, &repeated);
    prop_assert_eq!(
        serde_json::to_vec(&report).unwrap(),
        serde_json::to_vec(&repeated).unwrap()
    );
    let conditions = conditions(&input, &plan_of_it);
    prop_assert!(conditions.keys().eq(world.observed.objects.keys()));
    nothing_for_the_removed(world, &plan_of_it)?;
    every_wake_is_accounted_for(world, &plan_of_it)?;
    lost_work_goes_first(world, &plan_of_it)?;
    providers_are_left_alone(world, &plan_of_it)?;
    Ok(plan_of_it)
}

/// P5: what begins something is about things that are there.
fn nothing_for_the_removed(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let objects = &world.observed.objects;
    let active = |uid| {
        let mut states = objects.values().filter(|state| state.uid == uid);
        states.all(|state| state.deletion_requested_at.is_none())
            && objects.values().any(|state| state.uid == uid)
    };
    for action in &plan.actions {
        let about = match action {
            Action::EnsureSpaceRoot { space, .. } => vec![*space],
            Action::ProvisionWorktree(order) => vec![order.space, order.repo],
            Action::StartRun(order) => vec![order.agent, order.space],
            Action::TellRun { wake, .. } => {
                let wakes = world.observed.wakes.iter().map(|queued| &queued.wake);
                let told = wakes.filter(|it| it.id == *wake);
                told.flat_map(|wake| [wake.agent, wake.space]).collect()
            }
            Action::AssignTicket { ticket, .. } => vec![*ticket],
            Action::ChangeTicket(change) => vec![change.ticket],
            Action::DispatchOnce { dispatch, wake, .. } => vec![*dispatch, wake.agent, wake.space],
            Action::FireSchedule { schedule, .. } => vec![*schedule],
            Action::SettleRun {
                retry: Some(wake), ..
            } => vec![wake.agent, wake.space],
            Action::StopRun { .. }
            | Action::ReapRun { .. }
            | Action::SettleRun { retry: None, .. }
            | Action::RecordIncident { .. }
            | Action::LiftBudgetPause { .. }
            | Action::ReclaimWorktree { .. }
            | Action::ReclaimSpaceRoot { .. }
            | Action::CancelWake { .. }
            | Action::FinishDeletion { .. } => Vec::new(),
        };
        for uid in about {
            prop_assert!(active(uid), "{action:?} is about {uid}, which is gone");
        }
    }
    Ok(())
}

/// Every wake is started, cancelled, or held: exactly one of them.
fn every_wake_is_accounted_for(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    for queued in &world.observed.wakes {
        let id = queued.wake.id;
        let acts = plan.actions.iter().filter(|action| match action {
            Action::StartRun(order) => order.wake == id,
            Action::CancelWake { wake, .. } | Action::TellRun { wake, .. } => *wake == id,
            _ => false,
        });
        let holds = plan.holds.iter();
        let holds = holds.filter(|hold| hold.subject == HoldSubject::Wake(id));
        prop_assert_eq!(acts.count() + holds.count(), 1, "{:?}", queued);
    }
    Ok(())
}

/// P6: nothing else of the conversation starts while the next attempt of a lost run is to come,
/// or waits for anything but its agent.
fn lost_work_goes_first(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let to_come = plan.actions.iter().filter_map(|action| match action {
        Action::SettleRun { retry, .. } => retry.as_deref(),
        _ => None,
    });
    let is_there = |uid| {
        let mut states = world.observed.objects.values();
        states.any(|state| state.uid == uid && state.deletion_requested_at.is_none())
    };
    let takes_no_work = |wake: &Wake| {
        // It is cancelled now, or when that does not fail any more.
        let needed = [Some(wake.agent), Some(wake.space), wake.ticket, wake.cause];
        let is_lost = needed.into_iter().flatten().any(|uid| !is_there(uid));
        let is_held = plan.holds.iter().any(|hold| {
            let is_not_in_line = match hold.reason {
                HoldReason::AgentArchived
                | HoldReason::PausedByGit
                | HoldReason::PausedByOperator
                | HoldReason::TakenOver
                | HoldReason::PausedByProvider => true,
                _ => hold.message.contains("does not declare"),
            };
            hold.subject == HoldSubject::Wake(wake.id) && is_not_in_line
        });
        is_lost || is_held
    };
    let waiting = world.observed.wakes.iter().map(|queued| &queued.wake);
    let waiting = waiting.filter(|it| it.reason == WakeReason::Recovery && !takes_no_work(it));
    let lost: Vec<&Wake> = to_come.chain(waiting).collect();
    for action in &plan.actions {
        let Action::StartRun(order) = action else {
            continue;
        };
        let mut lost = lost.iter();
        let passed = lost.find(|it| it.conversation == order.conversation);
        prop_assert!(
            passed.is_none() || order.reason == WakeReason::Recovery,
            "{order:?} starts before {passed:?}"
        );
    }
    Ok(())
}

/// No run starts before its time, or its provider's, and the plan looks again when that has come.
fn providers_are_left_alone(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let paused = |adapter: &str| {
        let pause = world.observed.provider_pauses.get(adapter);
        pause.map(|pause| pause.until)
    };
    for action in &plan.actions {
        if let Action::StartRun(order) = action {
            let mut wakes = world.observed.wakes.iter();
            let queued = wakes.find(|queued| queued.wake.id == order.wake).unwrap();
            let delay = queued.wake.delay.as_ref().map(|delay| delay.until);
            for until in [delay, paused(&order.adapter_name)].into_iter().flatten() {
                prop_assert!(until <= world.now, "{order:?} starts before {until}");
            }
        }
    }
    let delays = world.observed.wakes.iter();
    let delays = delays.filter_map(|queued| Some(queued.wake.delay.as_ref()?.until));
    let pauses = world.observed.provider_pauses.values();
    for until in pauses.map(|pause| pause.until).chain(delays) {
        let is_looked_at = plan.wake_at.is_some_and(|at| at <= until);
        prop_assert!(
            until <= world.now || is_looked_at,
            "nobody looks at {until}"
        );
    }
    Ok(())
}

fn happen(world: &mut World, event: &Event) -> Result<(), TestCaseError> {
    match event {
        Event::Revise(shape) => {
            world.accept(catalog_of(shape), shape.holds_first);
        }
        Event::TakeOver(space) => {
            if let Some(space) = active(world, Kind::Space, *space) {
                take_over(world, &space);
            }
        }
        Event::HandBack => world.observed.takeovers.clear(),
        Event::Message(space, agent, how) => {
            let space = active(world, Kind::Space, *space);
            let agent = active(world, Kind::Agent, *agent);
            if let (Some(space), Some(agent)) = (space, agent) {
                let all = [Delivery::Steer, Delivery::FollowUp, Delivery::Interrupt];
                let delivery = all[usize::from(*how) % all.len()];
                world.message(&space, &agent, "hello", delivery);
            }
        }
        Event::End(run, how) => {
            if let Some(run) = pick(world.observed.live_runs.keys(), *run) {
                let attached = world.observed.live_runs[&run].is_attached;
                if attached {
                    world.end(run, ENDINGS[usize::from(*how) % ENDINGS.len()]);
                }
            }
        }
        Event::Upstream(run, ask) => {
            let live = world.observed.live_runs.values();
            let attached = live.filter(|run| run.is_attached).map(|run| run.id);
            let attached: Vec<RunId> = attached.collect();
            if let Some(run) = pick(attached.iter(), *run) {
                let ask = ask.map(|(minutes, is_shared)| {
                    let span = std::time::Duration::from_secs(u64::from(minutes) * 60);
                    ProviderAsk {
                        until: world.now.checked_add(span).unwrap(),
                        status: 429,
                        is_shared,
                    }
                });
                world.end_upstream(run, "rate_limit_error", ask);
            }
        }
        Event::Restart => world.lose_daemon(),
        Event::Pause(agent) => pause(world, *agent),
        Event::Resume => world.observed.operator_pauses.clear(),
        Event::Estop(is_set) => {
            world.observed.estop = is_set.then(|| Estop {
                by: "ada".to_owned(),
                reason: None,
            });
        }
        Event::Drain(is_set) => world.observed.is_draining = *is_set,
        Event::Spend(dollars) => {
            let budgets: Vec<ObjectRef> = world.observed.spend.keys().cloned().collect();
            if let Some(budget) = pick(budgets.iter(), *dollars) {
                let label = world.now.strftime("%Y-%m").to_string();
                let totals = Totals {
                    money: Money::from_cents(i64::from(*dollars) * 10),
                    tokens: Tokens::new(i64::from(*dollars) * 5_000),
                };
                world.spent.insert(budget, (label, totals));
            }
        }
        Event::Minutes(minutes) => minutes_pass(world, u64::from(*minutes)),
        Event::Pass(actions) => {
            let plan = planned(world)?;
            for action in plan.actions.iter().take(usize::from(*actions)) {
                world.apply(action);
            }
        }
        Event::Fail(action, for_good) => {
            let plan = planned(world)?;
            if let Some(action) = pick(plan.actions.iter(), *action) {
                fail(world, &action, *for_good);
            }
        }
    }
    Ok(())
}

fn take_over(world: &mut World, space: &ObjectRef) {
    let takeover = Takeover {
        id: OverrideId::derived(&["takeover"]),
        space: world.uid(space),
        by: "ada".to_owned(),
        reason: None,
        since: world.now,
    };
    world.observed.takeovers.insert(takeover.space, takeover);
}

fn pause(world: &mut World, agent: u8) {
    if let Some(agent) = active(world, Kind::Agent, agent) {
        let pause = OperatorPause {
            id: OverrideId::derived(&["pause"]),
            target: world.uid(&agent),
            by: "ada".to_owned(),
            reason: None,
            since: world.now,
            until: None,
        };
        world.observed.operator_pauses.push(pause);
    }
}

fn fail(world: &mut World, action: &Action, for_good: bool) {
    let at = world.now.checked_add(jiff::SignedDuration::from_mins(3));
    let failure = Backoff {
        failures: 1,
        not_before: (!for_good).then(|| at.unwrap()),
        generation: action.generation(),
        code: "EIO".to_owned(),
        message: "unwell".to_owned(),
    };
    world.observed.backoffs.insert(action.key(), failure);
}

const ENDINGS: [Ending; 7] = [
    (
        RunStatus::Completed,
        Liveness::Productive,
        EndReason::AgentFinished,
    ),
    (
        RunStatus::Completed,
        Liveness::Completed,
        EndReason::AgentFinished,
    ),
    (
        RunStatus::Completed,
        Liveness::Empty,
        EndReason::AgentFinished,
    ),
    (RunStatus::Error, Liveness::Failed, EndReason::AgentFinished),
    (
        RunStatus::Error,
        Liveness::Failed,
        EndReason::StoppedByHuman,
    ),
    (
        RunStatus::Error,
        Liveness::Failed,
        EndReason::DaemonShutdown,
    ),
    (RunStatus::Error, Liveness::Dead, EndReason::DaemonLost),
];

fn pick<'a, T: Clone + 'a>(items: impl Iterator<Item = &'a T>, nth: u8) -> Option<T> {
    let items: Vec<&T> = items.collect();
    let nth = usize::from(nth).checked_rem(items.len())?;
    Some(items[nth].clone())
}

fn active(world: &World, kind: Kind, nth: u8) -> Option<ObjectRef> {
    let objects = world.observed.objects.iter();
    let active =
        objects.filter(|(it, state)| it.kind == kind && state.deletion_requested_at.is_none());
    pick(active.map(|(it, _)| it), nth)
}

fn minutes_pass(world: &mut World, minutes: u64) {
    let span = std::time::Duration::from_secs(minutes * 60);
    world.now = world.now.checked_add(span).unwrap();
}

/// Ends whatever keeps the world from coming to rest by itself.
fn calm(world: &mut World) {
    world.observed.estop = None;
    world.observed.is_draining = false;
    world.observed.operator_pauses.clear();
    world.observed.takeovers.clear();
    world.observed.backoffs.clear();
    minutes_pass(world, 90);
}

/// Applies plans, at most `cut` actions of each, until one is empty; whenever nothing is left to
/// do, what runs ends well. Without an end there is a livelock.
fn converge(world: &mut World, cut: usize) -> Result<(), TestCaseError> {
    for _ in 0..600 {
        let plan = world.plan();
        for action in plan.actions.iter().take(cut) {
            world.apply(action);
        }
        if !plan.actions.is_empty() {
            continue;
        }
        if world.observed.live_runs.is_empty() {
            return Ok(());
        }
        let live: Vec<RunId> = world.observed.live_runs.keys().copied().collect();
        for run in live {
            world.end(run, ENDINGS[0]);
        }
    }
    Err(TestCaseError::fail("no end after 600 rounds"))
}
