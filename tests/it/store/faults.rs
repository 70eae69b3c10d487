//! Writes that fail: each write of a long story is failed in turn, tried again, and the story ends
//! the same.

use std::collections::BTreeMap;

use homeostat::model::action::{Hold, HoldReason, HoldSubject, TicketChange};
use homeostat::model::budget::{Incident, IncidentKind, ScopeKey};
use homeostat::model::condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
use homeostat::model::event::AgentEvent;
use homeostat::model::id::{ConversationId, MessageId, OverrideId};
use homeostat::model::kind::Revision;
use homeostat::model::observed::{Backoff, OperatorPause};
use homeostat::model::process::ProcessIdentity;
use homeostat::model::run::{EndReason, Liveness};
use homeostat::model::spec::BudgetScopeKind;
use homeostat::model::ticket::TicketStatus;
use homeostat::model::tool::Verb;
use homeostat::model::units::Money;
use homeostat::store::{
    AdmitFacts, Author, Delivery, NewFact, NewMessage, RunEvent, Salvage, Store,
};

use super::world::{
    World, accept_into, assert_same, at, close, dump, facts, fleet, order, provision, reference,
    uid, wake, worktree,
};

/// Who tells the story.
#[derive(Clone, Copy)]
struct Teller<'a> {
    store: &'a Store,
    /// Whether every step is taken again when it is done.
    is_stuttering: bool,
}

/// Takes a step; if it fails, tries it again.
macro_rules! tell {
    ($teller:expr, $step:expr) => {{
        if let Err(error) = $step.await {
            assert!(error.is_transient(), "{error:?}");
            $step.await.map(drop).unwrap();
        }
        if $teller.is_stuttering {
            $step.await.map(drop).unwrap();
        }
    }};
}

/// Writes everything that can be written.
async fn story(teller: Teller<'_>) {
    let store = teller.store;
    let text = str::to_owned;
    tell!(
        teller,
        store.reject(Revision::new("bad"), text("[]"), at(0))
    );
    let held = || Revision::new("held");
    tell!(teller, store.hold_revision(held(), text("big"), at(0)));
    tell!(teller, store.approve_revision(held(), text("grace"), at(0)));
    tell!(teller, accept_into(store, "r1", fleet(), 1));
    tell!(teller, provision(store));
    work(teller).await;
    run(teller).await;
    status(teller).await;
    removal(teller).await;
}

async fn work(teller: Teller<'_>) {
    let store = teller.store;
    let change = TicketChange {
        ticket: uid("fix"),
        from: TicketStatus::Open,
        to: TicketStatus::InProgress,
    };
    let message = || NewMessage {
        id: MessageId::derived(&["m"]),
        workspace: uid("acme"),
        space: uid("room"),
        conversation: ConversationId::main_of(uid("room")),
        author: Author::System,
        text: "hello".to_owned(),
        requested_by: None,
        created_at: at(6),
    };
    let ada = || Some(uid("ada"));
    let key = || Some("key".to_owned());
    let wakes = |name| Some(wake(name));
    tell!(
        teller,
        store.assign_ticket(uid("fix"), ada(), 1, wakes("ticket"), at(4))
    );
    tell!(teller, store.change_ticket(change.clone(), at(5)));
    tell!(
        teller,
        store.dispatch_once(uid("once"), 1, wake("dispatch"))
    );
    tell!(
        teller,
        store.fire_schedule(uid("daily"), at(60), wakes("slot"))
    );
    tell!(
        teller,
        store.cancel_wake(wake("slot").id, "enough".to_owned(), at(61))
    );
    tell!(
        teller,
        store.post_message(message(), wakes("message"), key())
    );
    tell!(teller, store.record_wake(wake("wake"), None));
}

async fn run(teller: Teller<'_>) {
    let store = teller.store;
    let order = order(&wake("message"));
    let run = order.run;
    let identity = || ProcessIdentity {
        pid: 7,
        start_time: 8,
        boot_id: "boot".to_owned(),
    };
    let events = || {
        vec![RunEvent {
            seq: 0,
            at: at(23),
            event: AgentEvent::Done {},
        }]
    };
    let change = TicketChange {
        ticket: uid("fix"),
        from: TicketStatus::InProgress,
        to: TicketStatus::Done,
    };
    let retry = || {
        let mut retry = wake("retry");
        retry.previous_run = Some(run);
        Some(retry)
    };
    let by = || "grace".to_owned();
    let facts = || AdmitFacts {
        contract: Some(Verb::SubmitPlan),
        ..facts(20)
    };
    let fact = |text: &str| NewFact {
        workspace: uid("acme"),
        key: "port".to_owned(),
        text: text.to_owned(),
        agent: uid("ada"),
        run,
        created_at: at(22),
    };
    let plan = || serde_json::json!({ "plan": "Do it." });
    tell!(teller, store.admit(&order, facts()));
    tell!(teller, store.store_identity(run, identity(), None));
    tell!(teller, store.store_prompt(run, "prompt".to_owned()));
    tell!(teller, store.mark_running(run, at(21)));
    tell!(teller, store.append_events(run, events()));
    tell!(teller, store.remember(fact("It is 4000.")));
    tell!(teller, store.remember(fact("It is 5000.")));
    tell!(teller, store.hand_in(run, Verb::SubmitPlan, plan()));
    tell!(teller, store.set_liveness(run, Liveness::Looping));
    tell!(
        teller,
        store.request_stop(run, EndReason::StoppedByHuman, by(), at(24))
    );
    tell!(teller, store.close_run(close(run, 25)));
    tell!(
        teller,
        store.settle_run(run, retry(), Some(change.clone()), at(26))
    );
}

async fn status(teller: Teller<'_>) {
    let store = teller.store;
    let scope = ScopeKey {
        kind: BudgetScopeKind::Fleet,
        uid: None,
    };
    let incident = || Incident {
        scope,
        workspace: None,
        budget: reference("BudgetPolicy/all"),
        window: "2026-11".to_owned(),
        kind: IncidentKind::Hard,
        spent: Money::from_cents(2).into(),
        ceiling: Money::from_cents(1).into(),
    };
    let pause = || OperatorPause {
        id: OverrideId::derived(&["p"]),
        target: uid("bob"),
        by: "grace".to_owned(),
        reason: None,
        since: at(30),
        until: None,
    };
    let backoff = || Backoff {
        failures: 1,
        not_before: Some(at(90)),
        generation: 1,
        code: "x".to_owned(),
        message: "y".to_owned(),
    };
    let conditions = || {
        let condition = Condition {
            kind: ConditionType::Ready,
            status: ConditionStatus::True,
            reason: ConditionReason::AsDeclared,
            message: String::new(),
            observed_generation: 1,
        };
        vec![(uid("bob"), vec![condition])]
    };
    let holds = || {
        vec![Hold {
            subject: HoldSubject::Wake(wake("wake").id),
            reason: HoldReason::FleetCap,
            message: String::new(),
        }]
    };
    let text = str::to_owned;
    tell!(teller, store.record_incident(incident(), true, at(31)));
    tell!(
        teller,
        store.lift_budget_pause(scope, text("raised"), at(32))
    );
    tell!(teller, store.pause(pause()));
    tell!(teller, store.resume(uid("bob"), text("grace"), at(33)));
    tell!(teller, store.record_failure(text("a/b"), backoff()));
    tell!(teller, store.record_failure(text("c/d"), backoff()));
    tell!(teller, store.clear_failure(text("c/d")));
    tell!(teller, store.write_conditions(conditions(), at(34)));
    tell!(teller, store.replace_holds(holds(), at(35)));
    tell!(
        teller,
        store.record_delivery(1, text("hook"), Delivery::Delivered, at(36))
    );
}

async fn removal(teller: Teller<'_>) {
    let store = teller.store;
    let tree = worktree().id;
    let salvage = || Salvage {
        reference: "refs/homeostat/salvage/room/1".to_owned(),
        commit: "c0".to_owned(),
    };
    let without_room = || {
        let mut documents = fleet();
        documents.retain(|it| it.reference.name.as_str() != "room");
        documents
    };
    let space = || reference("Space/acme/room");
    tell!(teller, store.worktree_reclaiming(tree));
    tell!(teller, store.record_salvage(tree, salvage(), at(40)));
    tell!(teller, store.remove_worktree(tree, Some(salvage()), at(41)));
    tell!(teller, store.root_reclaiming(uid("room")));
    tell!(teller, store.remove_root(uid("room"), at(42)));
    tell!(teller, accept_into(store, "r2", without_room(), 43));
    tell!(teller, store.finish_deletion(space(), uid("room"), at(44)));
}

/// The story as it should be.
async fn told() -> Vec<String> {
    let world = World::empty();
    let teller = Teller {
        store: &world.store,
        is_stuttering: false,
    };
    story(teller).await;
    dump(&world.path())
}

#[tokio::test]
async fn whichever_write_fails_the_story_ends_the_same() {
    let expected = told().await;
    let mut writes = 0;
    loop {
        let world = World::empty();
        world.store.fail_nth_write(writes + 1);
        let teller = Teller {
            store: &world.store,
            is_stuttering: false,
        };
        story(teller).await;
        if world.store.writes_until_failure() > 0 {
            break;
        }
        writes += 1;
        assert_same(
            &expected,
            &dump(&world.path()),
            &format!("after write {writes} failed"),
        );
    }
    assert!(writes >= 40, "only {writes} writes were failed");
}

#[tokio::test]
async fn a_story_whose_every_step_is_taken_twice_ends_the_same() {
    let world = World::empty();
    let teller = Teller {
        store: &world.store,
        is_stuttering: true,
    };
    story(teller).await;
    assert_same(&told().await, &dump(&world.path()), "twice");
}

/// A failed write takes none of those with it that share its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failure_in_a_group_is_one_callers() {
    let world = World::new().await;
    let tracker = homeostat::task::Tracker::new();
    world.store.fail_nth_write(50);
    let mut writes = Vec::new();
    for number in 0..100 {
        let store = world.store.clone();
        let name = number.to_string();
        writes.push((
            wake(&name).id,
            tracker.spawn("write", async move {
                store.record_wake(wake(&name), None).await
            }),
        ));
    }
    let mut outcomes = BTreeMap::new();
    for (id, write) in writes {
        outcomes.insert(id, write.await.unwrap().is_ok());
    }
    assert_eq!(outcomes.values().filter(|is_ok| !**is_ok).count(), 1);
    for queued in world.store.observe(at(50)).await.unwrap().wakes {
        assert_eq!(outcomes.remove(&queued.wake.id), Some(true));
    }
    assert_eq!(outcomes.into_values().collect::<Vec<_>>(), [false]);
}
