//! Threads that own the connections: one writes, a few read. Nobody else touches SQLite.
//!
//! **Group commit.** The writer takes whatever waits, runs each job in its own savepoint inside one
//! transaction, commits once, and only then answers: a caller that got an answer has a durable row
//! (`synchronous=FULL`). A job that fails is rolled back alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{mpsc, oneshot, watch};

use super::error::{OpenError, StoreError};
use super::fault::Faults;
use super::schema;

/// Jobs that may wait for the writer before callers wait too.
const QUEUE: usize = 1_024;
/// Jobs that share one commit at most, so that an answer never waits for an endless group.
const GROUP_MAX: usize = 512;
/// Reader connections: reads are short, and the pages are shared through the OS.
const READERS: usize = 3;
/// Statements kept prepared by each connection; about as many as the program has.
const STATEMENTS: usize = 256;
/// How long a connection waits for another process (a backup, an operator's shell).
const BUSY: Duration = Duration::from_secs(5);

/// Told whether the group committed; answers the caller.
type Reply = Box<dyn FnOnce(Result<(), Arc<rusqlite::Error>>) + Send>;
/// Runs inside the group's transaction; without a connection when there is none.
type WriteJob = Box<dyn FnOnce(Option<&Connection>) -> Reply + Send>;
type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// The sending ends. Dropping them ends the threads.
#[derive(Debug)]
pub(super) struct Connections {
    writer: Option<mpsc::Sender<WriteJob>>,
    readers: mpsc::Sender<ReadJob>,
    commits: Arc<watch::Sender<u64>>,
    faults: Arc<Faults>,
}

impl Connections {
    /// Opens for reading and writing, making the database if it is absent.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        schema::create_file(path)?;
        let writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::prepare(&writer, path)?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let commits = Arc::new(watch::channel(0).0);
        let faults = Arc::new(Faults::default());
        let ticks = Arc::clone(&commits);
        spawn(path, "store-writer", move || {
            write_loop(&writer, queue, &ticks);
        })?;
        Ok(Self {
            writer: Some(jobs),
            readers: open_readers(path)?,
            commits,
            faults,
        })
    }

    /// Opens an existing database for reading only.
    pub(super) fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            return Err(OpenError::Missing {
                path: path.to_owned(),
            });
        }
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        schema::check(&conn, path)?.ok_or_else(|| OpenError::Missing {
            path: path.to_owned(),
        })?;
        Ok(Self {
            writer: None,
            readers: open_readers(path)?,
            commits: Arc::new(watch::channel(0).0),
            faults: Arc::new(Faults::default()),
        })
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    #[cfg(feature = "test-support")]
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Runs `work` in a savepoint of the next transaction, and answers after its commit.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(writer) = &self.writer else {
            return Err(StoreError::ReadOnly { operation });
        };
        let (answer, result) = oneshot::channel();
        let faults = Arc::clone(&self.faults);
        let job: WriteJob = Box::new(move |conn| {
            let done = conn.map(|conn| in_savepoint(conn, &faults, work));
            Box::new(move |committed| {
                let outcome = match (committed, done) {
                    (_, Some(Err(source))) => Err(StoreError::Write { operation, source }),
                    (Err(source), _) => Err(StoreError::Commit { operation, source }),
                    (Ok(()), Some(Ok(value))) => Ok(value),
                    (Ok(()), None) => Err(StoreError::Closed { operation }),
                };
                // A caller that stopped waiting wants no answer.
                drop(answer.send(outcome));
            })
        });
        if writer.send(job).await.is_err() {
            return Err(StoreError::Closed { operation });
        }
        result
            .await
            .unwrap_or(Err(StoreError::Closed { operation }))
    }

    /// Runs `work` in one read transaction: everything that it sees is of one instant.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, result) = oneshot::channel();
        let job: ReadJob = Box::new(move |conn| {
            let outcome = conn
                .unchecked_transaction()
                .and_then(|snapshot| work(&snapshot))
                .map_err(|source| StoreError::Read { operation, source });
            // A caller that stopped waiting wants no answer.
            drop(answer.send(outcome));
        });
        if self.readers.send(job).await.is_err() {
            return Err(StoreError::Closed { operation });
        }
        result
            .await
            .unwrap_or(Err(StoreError::Closed { operation }))
    }
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, OpenError> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .and_then(|conn| {
            conn.busy_timeout(BUSY)?;
            conn.set_prepared_statement_cache_capacity(STATEMENTS);
            Ok(conn)
        })
        .map_err(|source| OpenError::Sqlite {
            path: path.to_owned(),
            source,
        })
}

fn open_readers(path: &Path) -> Result<mpsc::Sender<ReadJob>, OpenError> {
    let (jobs, queue) = mpsc::channel::<ReadJob>(QUEUE);
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..READERS {
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let queue = Arc::clone(&queue);
        spawn(path, "store-reader", move || read_loop(&conn, &queue))?;
    }
    Ok(jobs)
}

fn spawn(path: &Path, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .map_err(|source| OpenError::Thread {
            path: PathBuf::from(path),
            source,
        })
}

/// Whoever holds the lock waits for the next job; it is let go before the job runs.
fn read_loop(conn: &Connection, queue: &Mutex<mpsc::Receiver<ReadJob>>) {
    loop {
        let job = {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.blocking_recv()
        };
        let Some(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(|| job(conn))).is_err() {
            tracing::error!("a read of the store panicked; this is a bug");
        }
    }
}

/// Ends the process when the writer panics: nothing may go on as if rows were written.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the store's writer panicked; this is a bug");
            std::process::abort();
        }
    }
}

fn write_loop(
    conn: &Connection,
    mut queue: mpsc::Receiver<WriteJob>,
    commits: &watch::Sender<u64>,
) {
    let _guard = AbortOnPanic;
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX {
            let Ok(job) = queue.try_recv() else { break };
            group.push(job);
        }
        let before = conn.total_changes();
        let (replies, outcome) = commit_group(conn, group);
        let is_changed = outcome.is_ok() && conn.total_changes() != before;
        // Before the replies: who has its answer also finds its commit announced.
        if is_changed {
            commits.send_modify(|count| *count = count.wrapping_add(1));
        }
        for reply in replies {
            reply(outcome.clone());
        }
    }
}

/// Runs the jobs in one transaction. Whatever the outcome, every job has a reply.
fn commit_group(
    conn: &Connection,
    group: Vec<WriteJob>,
) -> (Vec<Reply>, Result<(), Arc<rusqlite::Error>>) {
    let mut begun = conn.execute_batch("BEGIN IMMEDIATE");
    let mut replies = Vec::with_capacity(group.len());
    for job in group {
        let is_open = begun.is_ok() && !conn.is_autocommit();
        replies.push(job(is_open.then_some(conn)));
    }
    if begun.is_ok() {
        // SQLite itself ends a transaction on some disk errors; then the COMMIT says so.
        begun = conn.execute_batch("COMMIT");
    }
    if begun.is_err() && !conn.is_autocommit() {
        roll_back(conn);
    }
    (replies, begun.map_err(Arc::new))
}

/// Runs one job so that its failure undoes it and nothing else.
fn in_savepoint<T>(
    conn: &Connection,
    faults: &Faults,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    conn.prepare_cached("SAVEPOINT job")?.execute([])?;
    let result = work(conn).and_then(|value| {
        faults.strike()?;
        conn.prepare_cached("RELEASE job")?.execute([])?;
        Ok(value)
    });
    let is_open = !conn.is_autocommit();
    if result.is_err() && is_open && conn.execute_batch("ROLLBACK TO job; RELEASE job").is_err() {
        // What cannot be undone alone is undone with the group, whose commit then fails.
        roll_back(conn);
    }
    result
}

fn roll_back(conn: &Connection) {
    if let Err(error) = conn.execute_batch("ROLLBACK") {
        tracing::error!(%error, "a transaction could not be rolled back");
    }
}
