//! Accepting, refusing and holding revisions; identity over edits, removals and returns.

use homeostat::model::event::DomainEventType;
use homeostat::model::kind::Revision;
use homeostat::store::{Effect, FirstObjects, RevisionState, StoreError};

use super::world::{
    World, accept, accept_into, assert_same, at, document, dump, fleet, reference, uid, wake,
};

#[tokio::test]
async fn accepting_twice_changes_nothing() {
    let world = World::empty();
    let store = &world.store;
    let first = accept_into(store, "r1", fleet(), 0).await.unwrap();
    assert_eq!(first.created.len(), fleet().len());
    let before = dump(&world.path());
    let again = accept_into(store, "r1", fleet(), 5).await.unwrap();
    assert!(again.created.is_empty() && again.changed.is_empty() && again.removed.is_empty());
    assert_same(&before, &dump(&world.path()), "again");

    let (revision, documents) = store.last_good().await.unwrap().unwrap();
    assert_eq!(revision, Revision::new("r1"));
    let mut expected = fleet();
    expected.sort_by(|a, b| a.reference.cmp(&b.reference));
    assert_eq!(documents, expected);
}

#[tokio::test]
async fn an_object_keeps_its_uid_over_edits_and_counts_them() {
    let world = World::empty();
    let store = &world.store;
    let agent = reference("Agent/acme/ada");
    let state = async || store.object(agent.clone()).await.unwrap().unwrap().state;
    let with = |spec: &str| vec![document("Agent/acme/ada", None, spec)];

    accept_into(store, "r1", with("{}"), 1).await.unwrap();
    let first = state().await;
    assert_eq!((first.generation, first.generation_since), (1, at(1)));

    let accepted = accept_into(store, "r2", with(r#"{"role":"x"}"#), 2)
        .await
        .unwrap();
    assert_eq!(accepted.changed, std::slice::from_ref(&agent));
    let second = state().await;
    assert_eq!(second.uid, first.uid);
    assert_eq!((second.generation, second.generation_since), (2, at(2)));
    assert_eq!(second.revision, Revision::new("r2"));

    // Another revision with the same spec is no new generation.
    accept_into(store, "r3", with(r#"{"role":"x"}"#), 3)
        .await
        .unwrap();
    assert_eq!(state().await, second);
}

#[tokio::test]
async fn an_object_that_returns_before_it_is_gone_is_the_same() {
    let world = World::empty();
    let store = &world.store;
    let agent = reference("Agent/acme/ada");
    let with = || vec![document("Agent/acme/ada", None, "{}")];
    accept_into(store, "r1", with(), 1).await.unwrap();
    let uid = store
        .object(agent.clone())
        .await
        .unwrap()
        .unwrap()
        .state
        .uid;

    let accepted = accept_into(store, "r2", Vec::new(), 2).await.unwrap();
    assert_eq!(accepted.removed, std::slice::from_ref(&agent));
    let leaving = store.object(agent.clone()).await.unwrap().unwrap();
    assert_eq!(leaving.state.deletion_requested_at, Some(at(2)));
    assert_eq!(leaving.json, None);

    accept_into(store, "r3", with(), 3).await.unwrap();
    let back = store.object(agent.clone()).await.unwrap().unwrap();
    assert_eq!(
        (back.state.uid, back.state.deletion_requested_at),
        (uid, None)
    );
    assert!(back.json.is_some());

    // Gone and made again, it is another one.
    accept_into(store, "r4", Vec::new(), 4).await.unwrap();
    let gone = store.finish_deletion(agent.clone(), uid, at(5)).await;
    assert_eq!(gone.unwrap(), Effect::Applied);
    assert_eq!(store.object(agent.clone()).await.unwrap(), None);
    assert_eq!(
        store.reference_of(uid).await.unwrap(),
        Some(agent.clone()),
        "history still knows its name"
    );
    accept_into(store, "r5", with(), 6).await.unwrap();
    let other = store.object(agent).await.unwrap().unwrap().state;
    assert_ne!(other.uid, uid);
    assert_eq!(other.generation, 1);
}

#[tokio::test]
async fn a_revert_of_a_revert_does_not_dispatch_again() {
    let world = World::new().await;
    let store = &world.store;
    let dispatch = reference("Dispatch/acme/once");
    let with = |spec: &str| vec![document("Dispatch/acme/once", None, spec)];
    accept_into(store, "r2", with(r#"{"prompt":"go"}"#), 20)
        .await
        .unwrap();
    let state = store.object(dispatch.clone()).await.unwrap().unwrap().state;
    let done = store
        .dispatch_once(state.uid, state.generation, wake("once"))
        .await
        .unwrap();
    assert_eq!(done, Effect::Applied);

    accept_into(store, "r3", Vec::new(), 21).await.unwrap();
    let gone = store
        .finish_deletion(dispatch.clone(), state.uid, at(22))
        .await
        .unwrap();
    assert_eq!(gone, Effect::Applied);

    let accepted = accept_into(store, "r4", with(r#"{"prompt":"go"}"#), 23)
        .await
        .unwrap();
    assert_eq!(accepted.created, std::slice::from_ref(&dispatch));
    let back = store.object(dispatch.clone()).await.unwrap().unwrap().state;
    assert_eq!(back.uid, state.uid);
    assert_eq!(back.dispatched_generation, Some(back.generation));

    // Another prompt is other work.
    accept_into(store, "r5", Vec::new(), 24).await.unwrap();
    let gone = store
        .finish_deletion(dispatch.clone(), state.uid, at(25))
        .await
        .unwrap();
    assert_eq!(gone, Effect::Applied);
    accept_into(store, "r6", with(r#"{"prompt":"else"}"#), 26)
        .await
        .unwrap();
    let other = store.object(dispatch).await.unwrap().unwrap().state;
    assert_ne!(other.uid, state.uid);
    assert_eq!(other.dispatched_generation, None);
}

#[tokio::test]
async fn a_pin_keeps_identity_over_a_rename_and_two_may_swap() {
    let world = World::empty();
    let store = &world.store;
    let with = |first: &str, second: &str| {
        vec![
            document(first, Some(uid("1")), "{}"),
            document(second, Some(uid("2")), "{}"),
        ]
    };
    let name_of = async |name: &str| {
        let reference = store.reference_of(uid(name)).await.unwrap();
        reference.unwrap().to_string()
    };
    accept_into(store, "r1", with("Agent/acme/a", "Agent/acme/b"), 1)
        .await
        .unwrap();
    accept_into(store, "r2", with("Agent/acme/c", "Agent/acme/b"), 2)
        .await
        .unwrap();
    assert_eq!(name_of("1").await, "Agent/acme/c");
    accept_into(store, "r3", with("Agent/acme/b", "Agent/acme/c"), 3)
        .await
        .unwrap();
    assert_eq!(name_of("1").await, "Agent/acme/b");
    assert_eq!(name_of("2").await, "Agent/acme/c");
    let objects = store.objects(None).await.unwrap();
    assert!(
        objects
            .iter()
            .all(|it| it.state.deletion_requested_at.is_none())
    );
}

#[tokio::test]
async fn a_contradicting_pin_is_refused_whole() {
    let world = World::empty();
    let store = &world.store;
    accept_into(
        store,
        "r1",
        vec![
            document("Agent/acme/a", Some(uid("1")), "{}"),
            document("Agent/acme/b", None, "{}"),
        ],
        1,
    )
    .await
    .unwrap();
    let before = dump(&world.path());
    for (case, documents) in [
        (
            "of another kind",
            vec![document("Space/acme/a", Some(uid("1")), "{}")],
        ),
        (
            "has another",
            vec![document("Agent/acme/b", Some(uid("3")), "{}")],
        ),
        (
            "twice",
            vec![
                document("Agent/acme/a", Some(uid("1")), "{}"),
                document("Agent/acme/c", Some(uid("1")), "{}"),
            ],
        ),
        (
            "name is taken",
            vec![document("Agent/acme/b", Some(uid("1")), "{}")],
        ),
    ] {
        let refused = accept_into(store, "r2", documents, 2).await;
        assert!(
            matches!(refused, Err(StoreError::UidConflict { .. })),
            "{case}: {refused:?}"
        );
        assert_same(&before, &dump(&world.path()), "again");
    }
}

#[tokio::test]
async fn a_first_revision_holds_what_runs_once() {
    for (first_revision, held) in [(FirstObjects::Hold, Some(1)), (FirstObjects::Run, None)] {
        let world = World::empty();
        let store = &world.store;
        let mut first = accept("r1", fleet(), 0);
        first.first_revision = first_revision;
        let ids = || std::sync::Arc::new(homeostat::clock::SeededIds::new(1));
        store.accept(first, ids()).await.unwrap();
        let mut second = accept("r2", fleet(), 1);
        second.first_revision = first_revision;
        second
            .documents
            .push(document("Dispatch/acme/later", None, "{}"));
        store.accept(second, ids()).await.unwrap();
        for (name, expected) in [
            ("Dispatch/acme/once", held),
            ("Ticket/acme/fix", held),
            ("Agent/acme/ada", None),
            ("Dispatch/acme/later", None),
        ] {
            let object = store.object(reference(name)).await.unwrap().unwrap();
            assert_eq!(object.state.first_revision_generation, expected, "{name}");
        }
    }
}

#[tokio::test]
async fn a_refused_revision_leaves_the_last_good_one() {
    let world = World::new().await;
    let store = &world.store;
    let bad = Revision::new("bad");
    let reject = async || {
        let diagnostics = "[]".to_owned();
        store.reject(bad.clone(), diagnostics, at(9)).await.unwrap()
    };
    assert_eq!(reject().await, Effect::Applied);
    assert_eq!(reject().await, Effect::Unchanged);
    assert_eq!(
        store.last_good().await.unwrap().unwrap().0,
        Revision::new("r1")
    );
    let views = store.revisions(10).await.unwrap();
    let verdicts: Vec<_> = views
        .iter()
        .map(|view| (view.revision.as_str(), view.state, view.is_current))
        .collect();
    assert_eq!(
        verdicts,
        [
            ("bad", RevisionState::Rejected, false),
            ("r1", RevisionState::Accepted, true)
        ]
    );
    let rejected = store.outbox_after(0, 100).await.unwrap();
    let count = |r#type| rejected.iter().filter(|it| it.r#type == r#type).count();
    assert_eq!(count(DomainEventType::RevisionRejected), 1);
}

#[tokio::test]
async fn a_held_revision_passes_when_a_person_says_so() {
    let world = World::new().await;
    let store = &world.store;
    let revision = Revision::new("r2");
    let approve = async || {
        let by = "grace".to_owned();
        store
            .approve_revision(revision.clone(), by, at(11))
            .await
            .unwrap()
    };
    assert!(matches!(approve().await, Effect::Stale(_)));
    let held = store
        .hold_revision(revision.clone(), "removes 12 objects".to_owned(), at(10))
        .await
        .unwrap();
    assert_eq!(held, Effect::Applied);
    assert!(!store.is_approved(revision.clone()).await.unwrap());
    assert_eq!(approve().await, Effect::Applied);
    assert_eq!(approve().await, Effect::Unchanged);
    assert!(store.is_approved(revision).await.unwrap());
}

#[tokio::test]
async fn going_back_to_an_accepted_revision_makes_it_current_again() {
    let world = World::new().await;
    let store = &world.store;
    accept_into(store, "r2", fleet(), 1).await.unwrap();
    accept_into(store, "r1", fleet(), 2).await.unwrap();
    assert_eq!(
        store.last_good().await.unwrap().unwrap().0,
        Revision::new("r1")
    );
}
