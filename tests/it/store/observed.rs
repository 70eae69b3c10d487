//! What is recorded is observed, whole and in order.

use std::collections::BTreeMap;

use homeostat::model::id::{ConversationId, MessageId, OverrideId, RunId, WakeId, WorktreeId};
use homeostat::model::kind::Revision;
use homeostat::model::observed::{
    Backoff, OperatorPause, SpaceRoot, TreePhase, Worktree, WorktreeBackend,
};
use homeostat::model::spec::{GitIdentity, Priority};
use homeostat::model::wake::{Delay, Delivery, Wake, WakeReason};
use homeostat::store::Store;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use strum::IntoEnumIterator;

use super::world::{World, at, uid};

fn one_of<E: IntoEnumIterator + Clone + std::fmt::Debug + 'static>() -> impl Strategy<Value = E> {
    proptest::sample::select(E::iter().collect::<Vec<_>>())
}

prop_compose! {
    fn any_wake()(
        (reason, priority) in (one_of::<WakeReason>(), one_of::<Priority>()),
        (agent, space, lane) in ("[a-c]", "[a-c]", "[a-c]"),
        (ticket, message, cause) in (option::of("[a-c]"), option::of("[a-c]"), option::of("[a-c]")),
        (previous, attempt, delivery) in (option::of("[a-c]"), 0_u32..5, one_of::<Delivery>()),
        (prompt, continuation) in (".{0,40}", option::of(".{0,10}")),
        delay in option::of((0_i64..1_000, ".{0,9}")),
        (requested_by, author) in (option::of(".{0,9}"), option::of(".{0,9}")),
        env in proptest::collection::btree_map("[A-Z]{1,4}", ".{0,9}", 0..3),
        (revision, micros) in (option::of("[0-9a-f]{4}"), 0_i64..1_000_000),
    ) -> Wake {
        Wake {
            id: WakeId::derived(&["placeholder"]),
            reason,
            workspace: uid("acme"),
            agent: uid(&agent),
            space: uid(&space),
            conversation: ConversationId::derived(&[&lane]),
            ticket: ticket.map(|it| uid(&it)),
            message: message.map(|it| MessageId::derived(&[&it])),
            cause: cause.map(|it| uid(&it)),
            previous_run: previous.map(|it| RunId::derived(&[&it])),
            attempt,
            continuation,
            delay: delay.map(|(second, because)| Delay { until: at(second), because }),
            prompt,
            requested_by,
            env,
            git_identity: author.map(|name| GitIdentity { email: format!("{name}@x"), name }),
            delivery,
            priority,
            revision: revision.map(Revision::new),
            created_at: jiff::Timestamp::from_microsecond(1_796_000_000_000_000 + micros).unwrap(),
        }
    }
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    (any::<u32>(), option::of(0_i64..1_000), 0_i64..9, ".{0,9}").prop_map(
        |(failures, not_before, generation, message)| Backoff {
            failures,
            not_before: not_before.map(at),
            generation,
            code: "code".to_owned(),
            message,
        },
    )
}

fn any_worktrees() -> impl Strategy<Value = Vec<(WorktreeBackend, bool)>> {
    vec((one_of::<WorktreeBackend>(), any::<bool>()), 0..6)
}

#[derive(Debug)]
struct Records {
    wakes: Vec<Wake>,
    backoffs: BTreeMap<String, Backoff>,
    worktrees: Vec<(WorktreeBackend, bool)>,
    pauses: Vec<Option<i64>>,
}

prop_compose! {
    fn records()(
        mut wakes in vec(any_wake(), 0..12),
        backoffs in proptest::collection::btree_map("[a-z]{1,6}", any_backoff(), 0..5),
        worktrees in any_worktrees(),
        pauses in vec(option::of(0_i64..200), 0..5),
    ) -> Records {
        for (index, wake) in wakes.iter_mut().enumerate() {
            wake.id = WakeId::derived(&[&index.to_string()]);
        }
        Records { wakes, backoffs, worktrees, pauses }
    }
}

async fn record_worktrees(
    store: &Store,
    recorded: &[(WorktreeBackend, bool)],
) -> BTreeMap<WorktreeId, Worktree> {
    let mut worktrees = BTreeMap::new();
    for (index, (backend, is_ready)) in recorded.iter().enumerate() {
        let repo = index.to_string();
        let mut tree = Worktree {
            id: WorktreeId::of(uid("room"), uid(&repo)),
            workspace: uid("acme"),
            space: uid("room"),
            repo: uid(&repo),
            repo_name: repo.clone(),
            path: format!("/data/{repo}"),
            branch: "homeostat/room".to_owned(),
            base: None,
            backend: *backend,
            phase: TreePhase::Provisioning,
        };
        let _applied = store.record_worktree(tree.clone(), at(1)).await.unwrap();
        if *is_ready {
            let _applied = store
                .worktree_ready(tree.id, repo.clone(), at(2))
                .await
                .unwrap();
            tree.base = Some(repo);
            tree.phase = TreePhase::Ready;
        }
        worktrees.insert(tree.id, tree);
    }
    worktrees
}

async fn check(records: Records) {
    let world = World::empty();
    let store = &world.store;
    for wake in &records.wakes {
        store.record_wake(wake.clone(), None).await.unwrap();
    }
    for (key, backoff) in &records.backoffs {
        store
            .record_failure(key.clone(), backoff.clone())
            .await
            .unwrap();
    }
    let worktrees = record_worktrees(store, &records.worktrees).await;
    let mut pauses = Vec::new();
    for (index, until) in records.pauses.iter().enumerate() {
        let pause = OperatorPause {
            id: OverrideId::derived(&[&index.to_string()]),
            target: uid("ada"),
            by: "grace".to_owned(),
            reason: None,
            since: at(1),
            until: until.map(at),
        };
        let _applied = store.pause(pause.clone()).await.unwrap();
        pauses.push(pause);
    }
    let overlays = BTreeMap::from([(uid("ada"), "/data/ada".to_owned())]);
    let path = || "/data/room".to_owned();
    let _applied = store
        .record_root(uid("acme"), uid("room"), path(), at(1))
        .await
        .unwrap();
    let _applied = store
        .root_ready(uid("room"), overlays.clone())
        .await
        .unwrap();

    let observed = store.observe(at(100)).await.unwrap();
    let mut expected = records.wakes;
    // The sort is stable: of one priority, the first recorded goes first.
    expected.sort_by_key(|wake| wake.priority);
    let wakes: Vec<Wake> = observed
        .wakes
        .into_iter()
        .map(|queued| queued.wake)
        .collect();
    assert_eq!(wakes, expected);
    assert_eq!(observed.backoffs, records.backoffs);
    assert_eq!(observed.worktrees, worktrees);
    pauses.retain(|pause| pause.until.is_none_or(|until| until > at(100)));
    assert_eq!(observed.operator_pauses, pauses);
    let root = SpaceRoot {
        workspace: uid("acme"),
        path: path(),
        phase: TreePhase::Ready,
        overlays,
    };
    assert_eq!(observed.roots, BTreeMap::from([(uid("room"), root)]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_is_recorded_is_observed(records in records()) {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(check(records));
    }
}
