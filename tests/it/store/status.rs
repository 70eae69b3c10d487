//! Conditions, holds, failures and the audit: written only where something differs.

use homeostat::model::action::{Hold, HoldReason, HoldSubject};
use homeostat::model::condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
use homeostat::model::observed::Backoff;

use super::world::{World, assert_same, at, dump, reference, uid, wake};

fn ready(status: ConditionStatus, message: &str) -> Condition {
    Condition {
        kind: ConditionType::Ready,
        status,
        reason: ConditionReason::AsDeclared,
        message: message.to_owned(),
        observed_generation: 1,
    }
}

#[tokio::test]
async fn a_condition_dates_from_its_last_flip() {
    let world = World::new().await;
    let store = &world.store;
    let ada = uid("ada");
    use ConditionStatus::{False, True};
    // (written at, status, message, objects changed, since)
    for (second, status, message, changed, since) in [
        (1, True, "a", 1, 1),
        (2, True, "a", 0, 1),
        (3, True, "b", 1, 1),
        (4, False, "b", 1, 4),
        (5, False, "b", 0, 4),
    ] {
        let statuses = vec![(ada, vec![ready(status, message)])];
        let count = store.write_conditions(statuses, at(second)).await.unwrap();
        assert_eq!(count, changed, "at {second}");
        let stored = store.conditions(ada).await.unwrap();
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0].condition, ready(status, message));
        assert_eq!(stored[0].since, at(since), "at {second}");
    }
    // What is not said any more is gone; other objects keep theirs.
    let bob = vec![(uid("bob"), vec![ready(True, "a")])];
    assert_eq!(store.write_conditions(bob, at(6)).await.unwrap(), 1);
    let none = vec![(ada, Vec::new())];
    assert_eq!(store.write_conditions(none, at(7)).await.unwrap(), 1);
    assert!(store.conditions(ada).await.unwrap().is_empty());
    assert_eq!(store.conditions(uid("bob")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_subject_has_one_hold_that_remembers_its_reasons() {
    let world = World::new().await;
    let store = &world.store;
    let hold = |subject: HoldSubject, reason| Hold {
        subject,
        reason,
        message: format!("{reason}"),
    };
    let first = || HoldSubject::Wake(wake("a").id);
    let second = || HoldSubject::Object(reference("Space/acme/room"));
    use HoldReason::{ConversationBusy, FleetCap};
    // (written at, reason of the first subject, changed, since, count)
    for (second, reason, changed, since, count) in [
        (1, FleetCap, true, 1, 1),
        (2, FleetCap, false, 1, 1),
        (3, ConversationBusy, true, 3, 1),
        (4, FleetCap, true, 4, 2),
        (5, FleetCap, false, 4, 2),
    ] {
        let holds = vec![hold(first(), reason)];
        let is_changed = store.replace_holds(holds, at(second)).await.unwrap();
        assert_eq!(is_changed, changed, "at {second}");
        let stored = store.holds().await.unwrap();
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0].reason, reason);
        assert_eq!(
            (stored[0].since, stored[0].count),
            (at(since), count),
            "at {second}"
        );
    }
    let mut reworded = hold(first(), FleetCap);
    reworded.message = "8 of 8 runs are live".to_owned();
    let both = vec![reworded, hold(second(), HoldReason::Backoff)];
    assert!(store.replace_holds(both.clone(), at(6)).await.unwrap());
    let before = dump(&world.path());
    assert!(!store.replace_holds(both, at(7)).await.unwrap());
    assert_same(&before, &dump(&world.path()), "again");
    let stored = store.holds().await.unwrap();
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].message, "8 of 8 runs are live");
    assert_eq!(stored[0].since, at(4), "other words are no other reason");
    assert!(store.replace_holds(Vec::new(), at(8)).await.unwrap());
    assert!(store.holds().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_failure_waits_until_it_is_cleared() {
    let world = World::new().await;
    let store = &world.store;
    let key = || "provisionWorktree/x".to_owned();
    let backoff = |failures, not_before| Backoff {
        failures,
        not_before,
        generation: 3,
        code: "noReflink".to_owned(),
        message: "the volume cannot reflink".to_owned(),
    };
    for backoff in [backoff(1, Some(at(5))), backoff(2, None)] {
        store.record_failure(key(), backoff.clone()).await.unwrap();
        let backoffs = store.observe(at(1)).await.unwrap().backoffs;
        assert_eq!(backoffs.into_iter().collect::<Vec<_>>(), [(key(), backoff)]);
    }
    assert!(store.clear_failure(key()).await.unwrap());
    assert!(!store.clear_failure(key()).await.unwrap());
    assert!(store.observe(at(1)).await.unwrap().backoffs.is_empty());
}

#[tokio::test]
async fn the_audit_names_who_did_what() {
    let world = World::new().await;
    let store = &world.store;
    let detail = serde_json::json!({ "run": "x" });
    let entry = ("grace".to_owned(), "stop".to_owned(), "run/x".to_owned());
    let (actor, action, subject) = entry;
    store
        .audit(actor, action, subject, detail.clone(), at(5))
        .await
        .unwrap();
    let log = store.audit_log(10).await.unwrap();
    assert_eq!(log.len(), 1);
    assert_eq!(
        (log[0].actor.as_str(), log[0].action.as_str()),
        ("grace", "stop")
    );
    assert_eq!((log[0].at, &log[0].detail), (at(5), &detail));
}
