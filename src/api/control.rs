//! What the API acts on: the store, and the few levers of the daemon that it may pull.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::dto::Surroundings;
use crate::clock::{Clock, IdSource};
use crate::dispatch::{DispatchError, TreeChange};
use crate::model::id::{RunId, Uid};
use crate::model::kind::Revision;
use crate::model::observed::WorktreeBackend;
use crate::model::run::EndReason;
use crate::reconcile::Outcome;
use crate::store::Store;

/// What is known of the host since the start.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The sandbox's state and reason.
    pub sandbox: String,
    /// How worktrees are made.
    pub worktree_backend: WorktreeBackend,
    /// In what runs' programs and credentials are looked for.
    pub surroundings: Surroundings,
}

/// How the source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// Whether what it holds is the desired state.
    pub is_ok: bool,
    /// In words.
    pub message: String,
    /// Since when an answer of it is waited for; none while none is.
    pub waiting_since: Option<Timestamp>,
    /// Since when it can't be read; none while it can.
    pub failing_since: Option<Timestamp>,
    /// Readings that were begun.
    pub begun: u64,
    /// The last of them of whose answer it is known what became.
    pub finished: u64,
    /// The revision that was looked at last, and what became of it.
    pub attempted: Option<(Revision, Outcome)>,
}

/// How the loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Whether it turns as often as it should.
    pub is_ok: bool,
    /// How long ago it last went round whole.
    pub since_last_pass: Duration,
}

/// A look at worktrees.
pub type Changes = Pin<Box<dyn Future<Output = Result<Vec<TreeChange>, DispatchError>> + Send>>;

/// A wait for a reading of the source.
pub type Finished = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The daemon's levers. A row is always written before one is pulled, so that a lever that moves
/// nothing loses nothing: the next pass sees the row.
pub struct Levers {
    /// Makes the loop look at its rows.
    pub trigger: Box<dyn Fn(&'static str) + Send + Sync>,
    /// Makes the loop look at the source and at everything else, now: the number of the reading that
    /// begins after this.
    pub reconcile: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Waits until it is known what became of a reading's answer, or of that of a later one.
    pub finished: Box<dyn Fn(u64) -> Finished + Send + Sync>,
    /// Ends a run that this daemon drives; false if it drives no such run.
    pub stop: Box<dyn Fn(RunId, EndReason) -> bool + Send + Sync>,
    /// Whether a run's agent can be told something now.
    pub is_listening: Box<dyn Fn(RunId) -> bool + Send + Sync>,
    /// What of a space's worktrees is not as its last run left it.
    pub changes: Box<dyn Fn(Uid) -> Changes + Send + Sync>,
    /// How the source is.
    pub source: Box<dyn Fn() -> SourceReport + Send + Sync>,
    /// How the loop is.
    pub pulse: Box<dyn Fn() -> Pulse + Send + Sync>,
}

impl fmt::Debug for Levers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Levers")
    }
}

/// Everything that a request may use. Clones share it.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    facts: Facts,
    levers: Levers,
    shutdown: CancellationToken,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("facts", &self.0.facts)
            .finish_non_exhaustive()
    }
}

impl Control {
    /// Puts it together. Requests that wait are answered when `shutdown` is cancelled.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        facts: Facts,
        levers: Levers,
        shutdown: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            clock,
            ids,
            facts,
            levers,
            shutdown,
        }))
    }

    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(super) fn ids(&self) -> &dyn IdSource {
        self.0.ids.as_ref()
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.0.facts
    }

    pub(super) fn levers(&self) -> &Levers {
        &self.0.levers
    }

    pub(super) fn shutdown(&self) -> &CancellationToken {
        &self.0.shutdown
    }
}
