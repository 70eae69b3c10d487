//! Messages that a live run is told of: claimed by it, finished with it, or waiting again.

use homeostat::model::id::{ConversationId, MessageId, RunId};
use homeostat::model::run::{EndReason, RunStatus};
use homeostat::model::wake::{Wake, WakeState};
use homeostat::store::{Admission, Author, Effect, NewMessage, RunClose};

use super::world::{World, at, close, facts, order, uid, wake};

/// A message for ada, and the wake that it causes.
async fn post(world: &World, name: &str) -> Wake {
    let message = NewMessage {
        id: MessageId::derived(&[name]),
        workspace: uid("acme"),
        space: uid("room"),
        conversation: ConversationId::main_of(uid("room")),
        author: Author::Human {
            name: "grace".to_owned(),
        },
        text: name.to_owned(),
        requested_by: None,
        created_at: at(10),
    };
    let wake = Wake {
        message: Some(message.id),
        ..wake(name)
    };
    let posted = world.store.post_message(message, Some(wake.clone()), None);
    posted.await.unwrap();
    wake
}

/// A world with the live run of a message, and two more messages that wait.
async fn live() -> (World, RunId, [Wake; 2]) {
    let world = World::new().await;
    let order = order(&post(&world, "first").await);
    let admission = world.store.admit(&order, facts(20)).await.unwrap();
    assert_eq!(admission, Admission::Admitted);
    let waiting = [post(&world, "second").await, post(&world, "third").await];
    (world, order.run, waiting)
}

/// How a run is closed.
type End = fn(RunId) -> RunClose;

async fn state(world: &World, wake: &Wake) -> (WakeState, Option<RunId>) {
    let record = world.store.wake(wake.id).await.unwrap().unwrap();
    (record.state, record.run)
}

#[tokio::test]
async fn a_message_is_told_once_and_not_to_a_run_that_ends() {
    let (world, run, [second, third]) = live().await;
    let tell = async |wake: &Wake| world.store.tell_wake(wake.id, run).await.unwrap();
    assert_eq!(tell(&second).await, Effect::Applied);
    assert!(matches!(tell(&second).await, Effect::Stale(_)));
    assert_eq!(
        state(&world, &second).await,
        (WakeState::Claimed, Some(run))
    );
    // The id of its own run leads to the one that it was told to.
    let own = RunId::of(second.id).to_string();
    assert_eq!(world.store.run(&own).await.unwrap().unwrap().id, run);
    let untell = async || world.store.untell_wake(second.id, run).await.unwrap();
    assert_eq!(untell().await, Effect::Applied);
    assert_eq!(untell().await, Effect::Unchanged);
    assert_eq!(state(&world, &second).await, (WakeState::Pending, None));
    let by = "grace".to_owned();
    let stop = world
        .store
        .request_stop(run, EndReason::StoppedByHuman, by, at(30));
    assert_eq!(stop.await.unwrap(), Effect::Applied);
    assert!(matches!(tell(&third).await, Effect::Stale(_)));
}

#[tokio::test]
async fn what_a_run_was_told_is_over_with_it_unless_it_may_be_tried_again() {
    let lost = |run| RunClose {
        status: RunStatus::Error,
        end_reason: EndReason::DaemonLost,
        is_retryable: true,
        ..close(run, 40)
    };
    let stopped = |run| RunClose {
        status: RunStatus::Error,
        end_reason: EndReason::StoppedByHuman,
        ..close(run, 40)
    };
    let ends: [(End, bool, bool); 3] = [
        (|run| close(run, 40), false, true),
        (stopped, false, false),
        (lost, true, false),
    ];
    for (end, waits, is_heard) in ends {
        let (world, run, [second, third]) = live().await;
        let tell = world.store.tell_wake(second.id, run).await.unwrap();
        assert_eq!(tell, Effect::Applied);
        let closed = world.store.close_run(end(run)).await.unwrap();
        assert_eq!(closed, homeostat::store::Closed::Closed);
        let expected = match waits {
            true => (WakeState::Pending, None),
            false => (WakeState::Finished, Some(run)),
        };
        assert_eq!(state(&world, &second).await, expected);
        assert_eq!(state(&world, &third).await, (WakeState::Pending, None));
        // Its session is sure to have only what it heard to the end.
        let room = ConversationId::main_of(uid("room"));
        let heard = async |after| world.store.heard(room, uid("ada"), after).await.unwrap();
        let all: Vec<_> = heard(0).await.into_iter().collect();
        assert_eq!(
            all == [MessageId::derived(&["second"])],
            is_heard,
            "{all:?}"
        );
        assert!(heard(i64::MAX).await.is_empty());
        let other = world.store.heard(room, uid("bob"), 0).await.unwrap();
        assert!(other.is_empty());
    }
}
