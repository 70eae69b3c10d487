//! What a provider asks one run for, as all others find it.

use homeostat::model::action::HoldReason;
use homeostat::model::id::{ConversationId, RunId};
use homeostat::model::observed::ProviderPause;
use homeostat::model::run::{ErrorFamily, Liveness, ProviderAsk, RunOrder, RunStatus};
use homeostat::model::wake::Wake;
use homeostat::store::{Admission, Closed, Effect, RunClose, Store};

use super::world::{
    World, accept_into, at, close, facts, fleet, order_without_trees, pinned, provision, wake,
};

/// The small fleet with the adapter of its orders.
async fn world() -> World {
    let world = World::empty();
    adapter(&world.store, "r1", "{}", 0).await;
    provision(&world.store).await.unwrap();
    world
}

async fn adapter(store: &Store, revision: &str, spec: &str, second: i64) {
    let mut documents = fleet();
    documents.push(pinned("Adapter/script", spec));
    let accepted = accept_into(store, revision, documents, second).await;
    accepted.unwrap();
}

/// The order of a run in a conversation of its own, whose wake waits.
async fn waiting(store: &Store, name: &str) -> RunOrder {
    let wake = Wake {
        conversation: ConversationId::derived(&[name]),
        ..wake(name)
    };
    store.record_wake(wake.clone(), None).await.unwrap();
    order_without_trees(&wake)
}

/// A live run whose key is every run's, or its own.
async fn live(store: &Store, name: &str, is_shared: bool) -> RunId {
    let order = waiting(store, name).await;
    let admission = store.admit(&order, facts(20)).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    let source = "daemonStore (work)".to_owned();
    let stored = store.store_credential_source(order.run, source, is_shared);
    assert_eq!(stored.await.unwrap(), Effect::Applied);
    order.run
}

fn failed(run: RunId, second: i64) -> RunClose {
    RunClose {
        status: RunStatus::Error,
        liveness: Liveness::Failed,
        family: Some(ErrorFamily::TransientUpstream),
        error_code: Some("rate_limit_error".to_owned()),
        is_retryable: true,
        ..close(run, second)
    }
}

async fn pause(store: &Store, second: i64) -> Option<ProviderPause> {
    let observed = store.observe(at(second)).await.unwrap();
    assert!(observed.provider_pauses.len() <= 1);
    observed.provider_pauses.get("script").cloned()
}

#[tokio::test]
async fn others_are_held_while_the_run_goes_on_and_after_its_end() {
    let world = world().await;
    let store = &world.store;
    let run = live(store, "a", true).await;
    assert_eq!(pause(store, 21).await, None);
    let note = async |until| store.note_provider(run, at(until), 429).await.unwrap();
    assert_eq!(note(90).await, Effect::Applied);
    assert_eq!(note(60).await, Effect::Applied);
    let asked = ProviderPause {
        until: at(60),
        status: 429,
        run,
    };
    assert_eq!(pause(store, 22).await, Some(asked.clone()));
    let other = waiting(store, "b").await;
    let Admission::Refused(reason, why) = store.admit(&other, facts(22)).await.unwrap() else {
        panic!("it was let through");
    };
    assert_eq!(reason, HoldReason::PausedByProvider);
    assert!(why.contains(&at(60).to_string()), "{why}");
    // What the row says outlives the run, and the database's next opening.
    assert_eq!(
        store.close_run(failed(run, 30)).await.unwrap(),
        Closed::Closed
    );
    assert!(matches!(note(99).await, Effect::Unchanged));
    let store = &Store::open(&world.path()).unwrap();
    assert_eq!(pause(store, 31).await, Some(asked));
    let ended = store.observe(at(31)).await.unwrap().ended_runs;
    let [ended] = ended.as_slice() else {
        panic!("{ended:?}");
    };
    assert!(ended.is_retryable);
    assert_eq!(ended.error_code.as_deref(), Some("rate_limit_error"));
    let ask = ProviderAsk {
        until: at(60),
        status: 429,
        is_shared: true,
    };
    assert_eq!(ended.provider, Some(ask));
    assert_eq!(pause(store, 60).await, None);
    let admission = store.admit(&other, facts(60)).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
}

#[tokio::test]
async fn what_holds_nobody_else() {
    let day = 24 * 60 * 60;
    for (name, is_shared, until, does_complete, is_changed) in [
        ("its own key", false, 60, false, false),
        ("it was answered after all", true, 60, true, false),
        ("another adapter since", true, 60, false, true),
        (
            "a clock that was put back",
            true,
            40 + day + 1,
            false,
            false,
        ),
    ] {
        let world = world().await;
        let store = &world.store;
        let run = live(store, "a", is_shared).await;
        let noted = store.note_provider(run, at(until), 529).await.unwrap();
        assert_eq!(noted, Effect::Applied);
        let close = match does_complete {
            true => close(run, 30),
            false => failed(run, 30),
        };
        assert_eq!(store.close_run(close).await.unwrap(), Closed::Closed);
        if is_changed {
            adapter(store, "r2", r#"{"command":"other"}"#, 35).await;
        }
        assert_eq!(pause(store, 40).await, None, "{name}");
        let mut other = waiting(store, "b").await;
        other.adapter_generation += i64::from(is_changed);
        let admission = store.admit(&other, facts(40)).await.unwrap();
        assert_eq!(admission, Admission::Admitted, "{name}");
    }
}
