//! The exec boundary: every gate, and races that it must win.

use std::collections::BTreeMap;

use homeostat::model::action::HoldReason;
use homeostat::model::id::{ConversationId, OverrideId};
use homeostat::model::observed::OperatorPause;
use homeostat::model::wake::WakeState;
use homeostat::store::{Admission, Closed, Effect};
use homeostat::task::Tracker;

use super::world::{
    World, accept_into, at, close, facts, fleet, order, order_without_trees, pinned, uid, wake,
    worktree,
};

fn reason(admission: &Admission) -> Option<HoldReason> {
    match admission {
        Admission::Refused(reason, _) => Some(*reason),
        Admission::Admitted | Admission::Stale(_) => None,
    }
}

#[tokio::test]
async fn a_claimed_wake_is_claimed() {
    let world = World::new().await;
    let store = &world.store;
    let admit = async || store.admit(&order(&wake("a")), facts(20)).await.unwrap();
    assert!(matches!(admit().await, Admission::Stale(_)));
    store.record_wake(wake("a"), None).await.unwrap();
    assert_eq!(admit().await, Admission::Admitted);
    assert!(matches!(admit().await, Admission::Stale(_)));
    let record = store.wake(wake("a").id).await.unwrap().unwrap();
    assert_eq!(record.state, WakeState::Claimed);
    assert_eq!(record.run, Some(order(&wake("a")).run));
    let live = store.observe(at(21)).await.unwrap().live_runs;
    assert_eq!(live[&order(&wake("a")).run].repos, [uid("app")]);
}

#[tokio::test]
async fn git_and_operators_close_the_gate() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    let admit = async |second| {
        store
            .admit(&order(&wake("a")), facts(second))
            .await
            .unwrap()
    };
    let with = |replaced: &str, spec: &str| {
        let mut documents = fleet();
        let name = replaced.rsplit('/').next().unwrap();
        documents.retain(|it| it.reference.name.as_str() != name);
        documents.push(pinned(replaced, spec));
        documents
    };
    for (revision, documents, expected) in [
        (
            "e",
            with("Fleet/fleet", r#"{"estop":true}"#),
            HoldReason::Estop,
        ),
        (
            "s",
            with("Fleet/fleet", r#"{"suspend":true}"#),
            HoldReason::Suspended,
        ),
        (
            "p",
            with("Agent/acme/ada", r#"{"lifecycle":"paused"}"#),
            HoldReason::PausedByGit,
        ),
        (
            "x",
            with("Agent/acme/ada", r#"{"lifecycle":"archived"}"#),
            HoldReason::AgentArchived,
        ),
        ("d", Vec::new(), HoldReason::AgentArchived),
    ] {
        accept_into(store, revision, documents, 12).await.unwrap();
        assert_eq!(reason(&admit(20).await), Some(expected), "{revision}");
    }
    accept_into(store, "back", fleet(), 13).await.unwrap();

    let pause = |name: &str, until| OperatorPause {
        id: OverrideId::derived(&[name]),
        target: uid("ada"),
        by: "grace".to_owned(),
        reason: None,
        since: at(14),
        until,
    };
    let short = pause("short", Some(at(30)));
    assert_eq!(store.pause(short.clone()).await.unwrap(), Effect::Applied);
    assert_eq!(store.pause(short).await.unwrap(), Effect::Unchanged);
    assert_eq!(
        store.pause(pause("long", None)).await.unwrap(),
        Effect::Applied
    );
    assert_eq!(reason(&admit(20).await), Some(HoldReason::PausedByOperator));
    assert_eq!(reason(&admit(40).await), Some(HoldReason::PausedByOperator));
    let by = || "grace".to_owned();
    assert_eq!(store.resume(uid("ada"), by(), at(15)).await.unwrap(), 2);
    assert_eq!(store.resume(uid("ada"), by(), at(16)).await.unwrap(), 0);
    assert_eq!(admit(41).await, Admission::Admitted);
}

#[tokio::test]
async fn an_expired_pause_holds_nothing() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    let pause = OperatorPause {
        id: OverrideId::derived(&["p"]),
        target: uid("ada"),
        by: "grace".to_owned(),
        reason: Some("lunch".to_owned()),
        since: at(14),
        until: Some(at(30)),
    };
    assert_eq!(store.pause(pause.clone()).await.unwrap(), Effect::Applied);
    let pauses = async |second| store.observe(at(second)).await.unwrap().operator_pauses;
    assert_eq!(pauses(29).await, [pause]);
    assert!(pauses(30).await.is_empty());
    let admit = async |second| {
        store
            .admit(&order(&wake("a")), facts(second))
            .await
            .unwrap()
    };
    assert_eq!(reason(&admit(29).await), Some(HoldReason::PausedByOperator));
    assert_eq!(admit(30).await, Admission::Admitted);
}

#[tokio::test]
async fn one_run_a_conversation_and_one_a_worktree() {
    let world = World::new().await;
    let store = &world.store;
    let mut side = wake("side");
    side.conversation = ConversationId::derived(&["side"]);
    for wake in [wake("a"), wake("b"), side.clone()] {
        store.record_wake(wake, None).await.unwrap();
    }
    let first = order(&wake("a"));
    assert_eq!(
        store.admit(&first, facts(20)).await.unwrap(),
        Admission::Admitted
    );
    let same_conversation = store.admit(&order(&wake("b")), facts(21)).await.unwrap();
    assert_eq!(
        reason(&same_conversation),
        Some(HoldReason::ConversationBusy)
    );
    let same_tree = store.admit(&order(&side), facts(21)).await.unwrap();
    assert_eq!(reason(&same_tree), Some(HoldReason::WorktreeBusy));

    assert_eq!(
        store.close_run(close(first.run, 30)).await.unwrap(),
        Closed::Closed
    );
    assert_eq!(
        store.admit(&order(&side), facts(31)).await.unwrap(),
        Admission::Admitted
    );
    let beside = order_without_trees(&wake("b"));
    assert_eq!(
        store.admit(&beside, facts(32)).await.unwrap(),
        Admission::Admitted
    );
}

#[tokio::test]
async fn a_worktree_that_is_not_ready_starts_nothing() {
    let world = World::new().await;
    let store = &world.store;
    store.record_wake(wake("a"), None).await.unwrap();
    assert_eq!(
        store.worktree_reclaiming(worktree().id).await.unwrap(),
        Effect::Applied
    );
    let admit = async || store.admit(&order(&wake("a")), facts(20)).await.unwrap();
    assert_eq!(reason(&admit().await), Some(HoldReason::NotProvisioned));
    let removed = store.remove_worktree(worktree().id, None, at(21)).await;
    assert_eq!(removed.unwrap(), Effect::Applied);
    assert_eq!(reason(&admit().await), Some(HoldReason::NotProvisioned));
}

/// A thousand starts race for seven conversations, each closing what it won.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_runs_of_a_conversation_are_never_live_at_once() {
    const WAKES: usize = 1_000;
    const CONVERSATIONS: usize = 7;
    let world = World::new().await;
    let tracker = Tracker::new();
    let racing = |number: usize| {
        let mut wake = wake(&number.to_string());
        let lane = number % CONVERSATIONS;
        wake.conversation = ConversationId::derived(&[&lane.to_string()]);
        wake
    };
    let mut recorded = Vec::new();
    for number in 0..WAKES {
        let store = world.store.clone();
        let wake = racing(number);
        recorded.push(tracker.spawn("record", async move { store.record_wake(wake, None).await }));
    }
    for record in recorded {
        assert!(!record.await.unwrap().unwrap().was_duplicate);
    }
    let mut starts = Vec::new();
    for number in 0..WAKES {
        let store = world.store.clone();
        let order = order_without_trees(&racing(number));
        starts.push(tracker.spawn("start", async move {
            let admission = store.admit(&order, facts(20)).await.unwrap();
            match &admission {
                Admission::Admitted => {
                    let observed = store.observe(at(21)).await.unwrap();
                    let mut lanes = BTreeMap::new();
                    for run in observed.live_runs.values() {
                        *lanes.entry(run.conversation).or_insert(0) += 1;
                    }
                    assert!(lanes.values().all(|count| *count == 1), "{lanes:?}");
                    assert!(observed.live_runs.contains_key(&order.run));
                    let closed = store.close_run(close(order.run, 22)).await.unwrap();
                    assert_eq!(closed, Closed::Closed);
                    true
                }
                Admission::Refused(HoldReason::ConversationBusy, _) => false,
                Admission::Refused(..) | Admission::Stale(_) => panic!("{admission:?}"),
            }
        }));
    }
    let mut admitted = 0;
    for start in starts {
        admitted += usize::from(start.await.unwrap());
    }
    assert!(admitted >= CONVERSATIONS);
    let observed = world.store.observe(at(30)).await.unwrap();
    assert!(observed.live_runs.is_empty());
    assert_eq!(observed.ended_runs.len(), admitted);
    assert_eq!(observed.wakes.len(), WAKES - admitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_wake_is_claimed_once_however_many_try() {
    let world = World::new().await;
    world.store.record_wake(wake("a"), None).await.unwrap();
    let tracker = Tracker::new();
    let mut tries = Vec::new();
    for _ in 0..100 {
        let store = world.store.clone();
        tries.push(tracker.spawn("try", async move {
            store.admit(&order(&wake("a")), facts(20)).await.unwrap()
        }));
    }
    let mut admitted = 0;
    for attempt in tries {
        match attempt.await.unwrap() {
            Admission::Admitted => admitted += 1,
            Admission::Stale(_) => {}
            refused @ Admission::Refused(..) => panic!("{refused:?}"),
        }
    }
    assert_eq!(admitted, 1);
}
