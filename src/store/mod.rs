//! The records: everything that the daemon remembers, in one SQLite file.
//!
//! All SQL of the program is in this module. Nothing here decides: the planner and the executor
//! say what is to be recorded, and the store refuses what the rows contradict ([`Effect::Stale`],
//! [`Admission::Refused`]). A method that writes is one transaction, safe to repeat, and answers
//! only when its rows are on disk. It must never do anything but read and write rows.
//!
//! Start with [`Store`]; `migrations/0001_init.sql` is the schema, written to be read and queried.

mod accept;
mod admit;
mod close;
mod connection;
mod contract;
mod effect;
mod error;
mod fault;
mod memory;
mod message;
mod money;
mod observe;
mod operator;
mod outbox;
mod provider;
mod recovery;
mod revision;
mod root;
mod run;
mod schema;
mod session;
mod sql;
mod status;
mod tree;
mod view;
mod wake;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::watch;

pub use accept::{Accept, Accepted, FirstObjects};
pub use admit::{Admission, AdmitFacts};
pub use close::{Closed, Pricing, RunClose, TreeResult};
pub use error::{OpenError, StoreError};
pub use memory::{FACTS_MAX, NewFact, Noted};
pub use message::{Author, MessageView, NewMessage};
pub use money::{AgentSpend, IncidentView, ScopeSpend};
pub use operator::AuditEntry;
pub use outbox::{Delivery, OutboxEvent};
pub use recovery::{History, RunBeginning};
pub use revision::{RevisionState, RevisionView};
pub use run::{RunEvent, RunProcess, StopRequest};
pub use session::StoredSession;
pub use status::StoredHold;
pub use tree::{Salvage, SalvageView, TreeLeft};
pub use view::{ObjectView, PromptView, RunFilter, RunTreeView, RunView};
pub use wake::{Posted, WakeRecord};

use connection::Connections;

/// The database. Clones share its threads, which end with the last of them.
#[derive(Clone, Debug)]
pub struct Store {
    connections: Arc<Connections>,
    path: Arc<PathBuf>,
}

/// What a recorded effect came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// It is recorded now.
    Applied,
    /// It was recorded before.
    Unchanged,
    /// The rows are no longer those that it was planned against; nothing was changed. Says why.
    Stale(String),
}

impl Effect {
    fn stale(why: String) -> Self {
        Self::Stale(why)
    }

    /// Whether something was written.
    fn applied_if(is_new: bool) -> Self {
        if is_new {
            Self::Applied
        } else {
            Self::Unchanged
        }
    }
}

impl Store {
    /// Opens the database for reading and writing; makes it, with mode 0600, if it is absent. The
    /// caller makes sure that no second daemon does.
    ///
    /// # Errors
    /// When the file is not ours, was written by a newer program, or SQLite refuses.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            connections: Arc::new(Connections::open(path)?),
            path: Arc::new(path.to_owned()),
        })
    }

    /// Opens an existing database for reading; every method that writes answers
    /// [`StoreError::ReadOnly`]. A daemon may be writing meanwhile.
    ///
    /// # Errors
    /// When there is none, the file is not ours, or was written by a newer program.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            connections: Arc::new(Connections::open_read_only(path)?),
            path: Arc::new(path.to_owned()),
        })
    }

    /// A counter that moves after every commit of this process that changed something: the hint to
    /// look again. It never moves on a store that is open for reading only.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    /// Copies the database to a new file, with mode 0600, while it is in use. The copy is of one
    /// instant.
    ///
    /// # Errors
    /// When the file exists, or the copy cannot be made; then no file is left.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let target = to.to_owned();
        self.connections
            .read("backup", move |conn| Ok(copy(conn, &target)))
            .await?
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the `n`th write from now (1 is the next) fail once, as a failing disk would.
    #[cfg(feature = "test-support")]
    pub fn fail_nth_write(&self, n: u64) {
        self.connections.faults().fail_nth(n);
    }

    /// Writes until the failure that [`Self::fail_nth_write`] asked for; 0 when it has come.
    #[cfg(feature = "test-support")]
    pub fn writes_until_failure(&self) -> u64 {
        self.connections.faults().remaining()
    }
}

/// Copies all pages in one step: the reader's snapshot keeps the source still.
fn copy(conn: &Connection, to: &Path) -> Result<(), StoreError> {
    schema::create_new_file(to).map_err(|source| StoreError::BackupFile {
        path: to.to_owned(),
        source,
    })?;
    let copied = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|mut target| {
            Backup::new(conn, &mut target)?.run_to_completion(i32::MAX, Duration::ZERO, None)
        })
        .map_err(|source| StoreError::Backup {
            path: to.to_owned(),
            source,
        });
    if copied.is_err()
        && let Err(error) = std::fs::remove_file(to)
    {
        tracing::warn!(path = %to.display(), %error, "an unfinished backup could not be removed");
    }
    copied
}
