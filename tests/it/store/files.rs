//! The file: its mode, its version, readers beside a writer, copies, and what a crash leaves.

use std::os::unix::fs::PermissionsExt;

use homeostat::model::wake::WakeState;
use homeostat::store::{OpenError, Store, StoreError};

use super::world::{World, at, fleet, wake};

#[tokio::test]
async fn only_the_owner_may_read_it() {
    let world = World::new().await;
    for name in ["homeostat.db", "homeostat.db-wal"] {
        let mode = std::fs::metadata(world.dir.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn what_was_stored_is_there_after_opening_again() {
    let world = World::new().await;
    let World { store, dir } = world;
    let before = store.observe(at(50)).await.unwrap();
    drop(store);
    let store = Store::open(&dir.path().join("homeostat.db")).unwrap();
    assert_eq!(store.observe(at(50)).await.unwrap(), before);
}

#[tokio::test]
async fn a_reader_beside_a_live_writer_sees_commits_and_writes_nothing() {
    let world = World::new().await;
    let reader = Store::open_read_only(&world.path()).unwrap();
    world.store.record_wake(wake("a"), None).await.unwrap();
    let wakes = reader.wakes(WakeState::Pending, 10).await.unwrap();
    assert_eq!(wakes.len(), 1);
    let refused = reader.record_wake(wake("b"), None).await;
    assert!(
        matches!(refused, Err(StoreError::ReadOnly { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_database_that_is_absent_empty_newer_or_foreign_is_refused() {
    let dir = tempfile::Builder::new().prefix("store-").tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let absent = Store::open_read_only(&path("absent"));
    assert!(
        matches!(absent, Err(OpenError::Missing { .. })),
        "{absent:?}"
    );
    assert!(!path("absent").exists(), "looking makes nothing");

    std::fs::write(path("empty"), b"").unwrap();
    let empty = Store::open_read_only(&path("empty"));
    assert!(matches!(empty, Err(OpenError::Missing { .. })), "{empty:?}");

    drop(Store::open(&path("newer")).unwrap());
    rusqlite::Connection::open(path("newer"))
        .unwrap()
        .execute_batch("PRAGMA user_version = 2")
        .unwrap();
    for newer in [
        Store::open(&path("newer")),
        Store::open_read_only(&path("newer")),
    ] {
        let Err(OpenError::NewerSchema { found, known, .. }) = newer else {
            panic!("{newer:?}");
        };
        assert_eq!((found, known), (2, 1));
    }

    rusqlite::Connection::open(path("foreign"))
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    let foreign = Store::open(&path("foreign"));
    assert!(
        matches!(foreign, Err(OpenError::Foreign { .. })),
        "{foreign:?}"
    );

    std::fs::write(
        path("text"),
        "not a database, but long enough to look at".repeat(40),
    )
    .unwrap();
    let text = Store::open(&path("text"));
    assert!(matches!(text, Err(OpenError::Sqlite { .. })), "{text:?}");
}

/// What a killed process leaves is what its files hold at that instant.
#[tokio::test]
async fn an_answered_write_is_in_the_files() {
    let world = World::new().await;
    for step in 0..20 {
        let name = format!("w{step}");
        world.store.record_wake(wake(&name), None).await.unwrap();
        let image = tempfile::Builder::new().prefix("store-").tempdir().unwrap();
        for file in ["homeostat.db", "homeostat.db-wal"] {
            std::fs::copy(world.dir.path().join(file), image.path().join(file)).unwrap();
        }
        let after = Store::open(&image.path().join("homeostat.db")).unwrap();
        let wakes = after.observe(at(50)).await.unwrap().wakes;
        assert_eq!(wakes.len(), step + 1);
        assert_eq!(wakes[step].wake, wake(&name));
    }
}

#[tokio::test]
async fn a_backup_is_a_whole_database_and_overwrites_nothing() {
    let world = World::new().await;
    let copy = world.dir.path().join("copy.db");
    world.store.backup(&copy).await.unwrap();
    let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_, documents) = Store::open(&copy)
        .unwrap()
        .last_good()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(documents.len(), fleet().len());
    let again = world.store.backup(&copy).await;
    assert!(
        matches!(again, Err(StoreError::BackupFile { .. })),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_commit_that_changes_something_is_announced() {
    let world = World::new().await;
    let mut commits = world.store.subscribe();
    let before = *commits.borrow_and_update();
    world.store.record_wake(wake("a"), None).await.unwrap();
    commits.changed().await.unwrap();
    let after = *commits.borrow_and_update();
    assert!(after > before);
    // A write that finds everything as it should be says nothing; the next one does.
    assert!(
        world
            .store
            .record_wake(wake("a"), None)
            .await
            .unwrap()
            .was_duplicate
    );
    world.store.record_wake(wake("b"), None).await.unwrap();
    commits.changed().await.unwrap();
    assert_eq!(*commits.borrow(), after + 1);
}
