//! What plans ask for: each effect applied once, unchanged when repeated, refused when stale.

use homeostat::model::action::TicketChange;
use homeostat::model::budget::{Incident, IncidentKind, ScopeKey};
use homeostat::model::event::DomainEventType;
use homeostat::model::id::{ConversationId, MessageId, Uid, WakeId};
use homeostat::model::run::{EndReason, RunStatus};
use homeostat::model::spec::BudgetScopeKind;
use homeostat::model::ticket::TicketStatus;
use homeostat::model::units::Money;
use homeostat::model::wake::WakeState;
use homeostat::store::{Admission, Author, Closed, Effect, NewMessage, Salvage};

use super::world::{
    World, accept_into, assert_same, at, close, dump, facts, fleet, order, reference, uid, wake,
    worktree,
};

fn is_stale(effect: &Effect) -> bool {
    matches!(effect, Effect::Stale(_))
}

/// Applies `effect` twice: first it changes something, then nothing at all.
macro_rules! once {
    ($world:expr, $effect:expr) => {{
        assert_eq!($effect.await.unwrap(), Effect::Applied);
        let before = dump(&$world.path());
        assert_eq!($effect.await.unwrap(), Effect::Unchanged);
        assert_same(&before, &dump(&$world.path()), "again");
    }};
}

/// Tries `effect` in vain: it is stale and changes nothing.
macro_rules! never {
    ($world:expr, $effect:expr) => {{
        let before = dump(&$world.path());
        let effect = $effect.await.unwrap();
        assert!(is_stale(&effect), "{effect:?}");
        assert_same(&before, &dump(&$world.path()), "again");
    }};
}

#[tokio::test]
async fn a_ticket_is_assigned_once_with_its_wake() {
    let world = World::new().await;
    let store = &world.store;
    let assign = |count, to: Option<Uid>, name: &'static str| {
        store.assign_ticket(uid("fix"), to, count, Some(wake(name)), at(1))
    };
    once!(world, assign(1, Some(uid("ada")), "a1"));
    never!(world, assign(3, Some(uid("bob")), "a3"));
    never!(
        world,
        store.assign_ticket(uid("none"), None, 1, None, at(1))
    );
    once!(world, store.assign_ticket(uid("fix"), None, 1, None, at(2)));
    never!(world, assign(1, Some(uid("ada")), "a1"));
    once!(world, assign(2, Some(uid("bob")), "a2"));
    let wakes = store.observe(at(3)).await.unwrap().wakes;
    assert_eq!(wakes.len(), 2);

    accept_into(store, "r2", Vec::new(), 4).await.unwrap();
    never!(world, assign(3, Some(uid("ada")), "a3"));
}

#[tokio::test]
async fn a_ticket_moves_only_from_where_the_plan_saw_it() {
    let world = World::new().await;
    let change = |from, to| {
        let ticket = uid("fix");
        world
            .store
            .change_ticket(TicketChange { ticket, from, to }, at(1))
    };
    use TicketStatus::{Backlog, Done, Failed, InProgress, Open};
    never!(world, change(Backlog, InProgress));
    never!(world, change(Open, Done));
    once!(world, change(Open, InProgress));
    once!(world, change(InProgress, Done));
    never!(world, change(InProgress, Failed));
    never!(world, change(Done, Open));
}

#[tokio::test]
async fn a_dispatch_wakes_once_per_generation() {
    let world = World::new().await;
    let store = &world.store;
    let dispatch = |generation, name| store.dispatch_once(uid("once"), generation, wake(name));
    never!(world, dispatch(2, "d2"));
    once!(world, dispatch(1, "d1"));
    let mut documents = fleet();
    documents[6].spec_hash = "other".to_owned();
    accept_into(store, "r2", documents, 5).await.unwrap();
    assert_eq!(dispatch(1, "d1").await.unwrap(), Effect::Unchanged);
    once!(world, dispatch(2, "d2"));
    assert_eq!(store.observe(at(6)).await.unwrap().wakes.len(), 2);
    never!(world, store.dispatch_once(uid("none"), 1, wake("d3")));
}

#[tokio::test]
async fn a_schedules_slots_only_move_on() {
    let world = World::new().await;
    let store = &world.store;
    once!(
        world,
        store.fire_schedule(uid("daily"), at(60), Some(wake("s1")))
    );
    once!(world, store.fire_schedule(uid("daily"), at(120), None));
    let late = store
        .fire_schedule(uid("daily"), at(60), Some(wake("s0")))
        .await;
    assert_eq!(late.unwrap(), Effect::Unchanged);
    let observed = store.observe(at(130)).await.unwrap();
    assert_eq!(observed.schedule_slots[&uid("daily")], at(120));
    assert_eq!(observed.wakes.len(), 1);
    accept_into(store, "r2", Vec::new(), 140).await.unwrap();
    never!(world, store.fire_schedule(uid("daily"), at(180), None));
}

#[tokio::test]
async fn only_a_waiting_wake_is_cancelled() {
    let world = World::new().await;
    let store = &world.store;
    for name in ["a", "b"] {
        store.record_wake(wake(name), None).await.unwrap();
    }
    let cancel = |name| store.cancel_wake(wake(name).id, "its agent is gone".to_owned(), at(20));
    once!(world, cancel("a"));
    let record = store.wake(wake("a").id).await.unwrap().unwrap();
    assert_eq!(record.state, WakeState::Cancelled);
    assert_eq!(record.because.as_deref(), Some("its agent is gone"));
    let admitted = store.admit(&order(&wake("b")), facts(21)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    never!(world, cancel("b"));
    never!(
        world,
        store.cancel_wake(WakeId::derived(&["none"]), String::new(), at(20))
    );
}

#[tokio::test]
async fn a_run_is_settled_once_and_whole() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    let run = order(&wake("a")).run;
    let mut retry = wake("a2");
    retry.previous_run = Some(run);
    retry.attempt = 1;
    let settle = |from| {
        let change = TicketChange {
            ticket: uid("fix"),
            from,
            to: TicketStatus::InProgress,
        };
        store.settle_run(run, Some(retry.clone()), Some(change), at(40))
    };
    never!(world, settle(TicketStatus::Open));
    assert_eq!(
        store.admit(&order(&wake("a")), facts(20)).await.unwrap(),
        Admission::Admitted
    );
    never!(world, settle(TicketStatus::Open));
    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    assert_eq!(store.observe(at(31)).await.unwrap().ended_runs.len(), 1);
    // A stale part makes the whole stale.
    never!(world, settle(TicketStatus::Blocked));
    once!(world, settle(TicketStatus::Open));
    let observed = store.observe(at(41)).await.unwrap();
    assert!(observed.ended_runs.is_empty());
    assert_eq!(observed.wakes.len(), 1);
    assert_eq!(observed.wakes[0].wake, retry);
    assert_eq!(
        observed.tickets[&uid("fix")].status,
        TicketStatus::InProgress
    );
}

#[tokio::test]
async fn a_crossing_is_recorded_once_and_pauses_until_lifted() {
    let world = World::new().await;
    let store = &world.store;
    let scope = ScopeKey {
        kind: BudgetScopeKind::Agent,
        uid: Some(uid("ada")),
    };
    let incident = |window: &str, kind| Incident {
        scope,
        workspace: Some(uid("acme")),
        budget: reference("Agent/acme/ada"),
        window: window.to_owned(),
        kind,
        spent: Money::from_cents(110).into(),
        ceiling: Money::from_cents(100).into(),
    };
    let hard = || incident("2026-11", IncidentKind::Hard);
    once!(
        world,
        store.record_incident(incident("2026-11", IncidentKind::Soft), false, at(1))
    );
    once!(world, store.record_incident(hard(), true, at(2)));
    let observed = store.observe(at(3)).await.unwrap();
    assert_eq!(observed.incidents.len(), 2);
    assert_eq!(
        observed.budget_pauses[&scope].ceiling,
        Money::from_cents(100).into()
    );
    once!(
        world,
        store.lift_budget_pause(scope, "the ceiling rose".to_owned(), at(4))
    );
    // A ceiling that is crossed anew pauses anew, and is no second incident.
    once!(world, store.record_incident(hard(), true, at(5)));
    assert_eq!(store.incidents(10).await.unwrap().len(), 2);
    let fleet = ScopeKey {
        kind: BudgetScopeKind::Fleet,
        uid: None,
    };
    let wide = Incident {
        scope: fleet,
        ..hard()
    };
    once!(world, store.record_incident(wide.clone(), true, at(6)));
    assert_eq!(store.incidents(1).await.unwrap()[0].incident, wide);
    let events = store.outbox_after(0, 100).await.unwrap();
    let count = |r#type| events.iter().filter(|it| it.r#type == r#type).count();
    assert_eq!(count(DomainEventType::BudgetThresholdCrossed), 3);
    assert_eq!(count(DomainEventType::BudgetPauseLifted), 1);
}

#[tokio::test]
async fn an_object_goes_when_nothing_needs_it_and_its_history_stays() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    let run = order(&wake("a")).run;
    let admitted = store.admit(&order(&wake("a")), facts(20)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    let (agent, space) = (reference("Agent/acme/ada"), reference("Space/acme/room"));
    let finish_agent = || store.finish_deletion(agent.clone(), uid("ada"), at(40));
    let finish_space = || store.finish_deletion(space.clone(), uid("room"), at(40));
    never!(world, finish_agent());
    accept_into(store, "r2", Vec::new(), 21).await.unwrap();
    never!(world, finish_agent());
    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    once!(world, finish_agent());
    never!(
        world,
        store.finish_deletion(reference("Agent/acme/bob"), uid("room"), at(40))
    );

    never!(world, finish_space());
    never!(world, store.remove_worktree(worktree().id, None, at(41)));
    never!(world, store.root_reclaiming(uid("room")));
    once!(world, store.worktree_reclaiming(worktree().id));
    let salvage = Salvage {
        reference: "refs/homeostat/salvage/room/1".to_owned(),
        commit: "5a1a6e".to_owned(),
    };
    once!(
        world,
        store.record_salvage(worktree().id, salvage.clone(), at(42))
    );
    once!(
        world,
        store.remove_worktree(worktree().id, Some(salvage.clone()), at(43))
    );
    never!(world, finish_space());
    once!(world, store.root_reclaiming(uid("room")));
    once!(world, store.remove_root(uid("room"), at(44)));
    once!(world, finish_space());

    assert_eq!(
        store.run(&run.to_string()).await.unwrap().unwrap().status,
        RunStatus::Completed
    );
    let main = ConversationId::main_of(uid("room"));
    assert_eq!(store.messages(main, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.salvages(Some(uid("room"))).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_tree_in_a_runs_hands_or_on_its_way_out_is_not_touched() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    let admitted = store.admit(&order(&wake("a")), facts(20)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    never!(world, store.worktree_reclaiming(worktree().id));
    let run = order(&wake("a")).run;
    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    once!(world, store.worktree_reclaiming(worktree().id));
    never!(world, store.record_worktree(worktree(), at(31)));
    never!(
        world,
        store.worktree_ready(worktree().id, "x".to_owned(), at(31))
    );
}

#[tokio::test]
async fn a_message_and_its_wake_are_posted_once_per_key() {
    let world = World::new().await;
    let store = &world.store;
    let main = ConversationId::main_of(uid("room"));
    let message = |name: &str| NewMessage {
        id: MessageId::derived(&[name]),
        workspace: uid("acme"),
        space: uid("room"),
        conversation: main,
        author: Author::Human {
            name: "grace".to_owned(),
        },
        text: "x".repeat(500),
        requested_by: Some("grace".to_owned()),
        created_at: at(10),
    };
    let post = |name, key: Option<&str>| {
        store.post_message(message(name), Some(wake(name)), key.map(str::to_owned))
    };
    let first = post("m1", Some("key")).await.unwrap();
    assert!(!first.was_duplicate);
    let again = post("m2", Some("key")).await.unwrap();
    assert!(again.was_duplicate);
    assert_eq!((again.message, again.wake), (first.message, first.wake));
    assert!(!post("m3", None).await.unwrap().was_duplicate);
    assert!(post("m3", None).await.unwrap().was_duplicate);
    let keyed = store
        .record_wake(wake("w"), Some("key".to_owned()))
        .await
        .unwrap();
    assert_eq!(keyed.wake, first.wake);

    let messages = store.messages(main, None, 10).await.unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0].id, MessageId::derived(&["m1"]));
    let older = store
        .messages(main, Some(messages[1].seq), 10)
        .await
        .unwrap();
    assert_eq!(older, messages[..1]);
    let events = store.outbox_after(0, 100).await.unwrap();
    let received: Vec<_> = events
        .iter()
        .filter(|event| event.r#type == DomainEventType::MessageReceived)
        .collect();
    assert_eq!(received.len(), 2);
    let preview = received[0].payload["contentPreview"].as_str().unwrap();
    assert_eq!(preview.len(), 120);
}

#[tokio::test]
async fn a_stop_is_asked_for_once_and_only_while_live() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    let run = order(&wake("a")).run;
    let stop = |reason| store.request_stop(run, reason, "grace".to_owned(), at(25));
    never!(world, stop(EndReason::StoppedByHuman));
    let admitted = store.admit(&order(&wake("a")), facts(20)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    once!(world, stop(EndReason::StoppedByHuman));
    assert_eq!(stop(EndReason::Removed).await.unwrap(), Effect::Unchanged);
    let asked = store.stop_requested(run).await.unwrap().unwrap();
    assert_eq!(
        (asked.reason, asked.by.as_str()),
        (EndReason::StoppedByHuman, "grace")
    );
    assert_eq!(
        store.close_run(close(run, 30)).await.unwrap(),
        Closed::Closed
    );
    never!(world, stop(EndReason::Estop));
}
