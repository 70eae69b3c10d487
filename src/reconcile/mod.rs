//! The loop: hint → load the revision → observe → plan → execute → conditions and holds.
//!
//! Level-triggered: a hint says only *that* something may have changed. One pass reads the
//! accepted catalog and one consistent snapshot of the rows, plans, writes what waits and why, and
//! hands the actions to the executor. The source is read beside the loop, since it may be slow or
//! never answer: passes go on meanwhile. When an action ends, the loop goes round again, until a plan
//! is empty. Recovery after a crash is the same road: rows that no task drives are planned away.
//!
//! Start with [`Reconciler::run`]; [`revision`] is the way of a commit to the catalog.

mod handle;
mod observe;
mod queue;
mod revision;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub use self::handle::Handle;
use self::handle::Key;
use self::revision::Reading;
pub use self::revision::{Failure, Outcome, SourceAnswer, SourceStatus, Waiting};
use crate::clock::{Clock, IdSource};
use crate::execute::{Executor, STALE_PAUSE, Submitted};
use crate::model::action::{Action, Plan};
use crate::model::desired::Catalog;
use crate::model::kind::Revision;
use crate::model::observed::{Observed, WorktreeBackend};
use crate::plan::conditions::conditions;
use crate::plan::{PlanInput, plan};
use crate::source::{Snapshot, Source, SourceError};
use crate::store::{Store, StoreError};
use crate::task::TaskError;

/// After a pass that failed as a whole.
const RETRY: Duration = Duration::from_secs(1);

/// What the loop is told of its host.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory: the emergency stop's file lies there.
    pub data_dir: PathBuf,
    /// How worktrees are made.
    pub backend: WorktreeBackend,
    /// How often everything is looked at without a hint.
    pub resync: Duration,
    /// How often the source is.
    pub look: Duration,
}

/// What the loop works with.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    store: Store,
    source: Arc<Source>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    executor: Executor,
    handle: Handle,
    status: SourceStatus,
    reading: Option<Reading>,
    accepted: Option<(Revision, Arc<Catalog>)>,
}

/// What the loop turns for.
#[derive(Debug)]
enum Turn {
    /// A key fell due.
    Due(Key),
    /// The source answered.
    Read(Result<Result<Snapshot, SourceError>, TaskError>),
}

/// Why a pass could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The database.
    #[error("use the database")]
    Store(#[from] StoreError),
    /// What is stored as the last good revision does not decode: our bug.
    #[error("decode the stored revision {revision}: {message}")]
    Stored {
        /// The revision.
        revision: Revision,
        /// What was wrong.
        message: String,
    },
    /// A blocking step panicked.
    #[error("finish a step")]
    Task(#[from] TaskError),
    /// The emergency stop's file could not be looked at; nothing starts while that is so.
    #[error("look at the emergency stop")]
    Estop(#[source] std::io::Error),
}

impl Reconciler {
    /// A loop that has not turned yet; it serves the last good revision of the store. What failed in
    /// an earlier life is tried again: the host, its flags or this program may be what was wrong.
    ///
    /// # Errors
    /// When the database fails, or the stored revision can't be read.
    pub async fn open(
        settings: Settings,
        store: Store,
        source: Arc<Source>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        executor: Executor,
        handle: Handle,
    ) -> Result<Self, ReconcileError> {
        let accepted = revision::last_good(&store).await?;
        store.forget_failures().await?;
        let status = SourceStatus::new();
        Ok(Self {
            settings,
            store,
            source,
            clock,
            ids,
            executor,
            handle,
            status,
            reading: None,
            accepted,
        })
    }

    /// The revision that is served; none before the first.
    pub fn revision(&self) -> Option<&Revision> {
        self.accepted.as_ref().map(|(revision, _)| revision)
    }

    /// What the source last answered, shared with whoever reports it.
    pub fn source_status(&self) -> SourceStatus {
        self.status.clone()
    }

    /// Turns until cancelled. An error of one pass is logged and the pass tried again; everything
    /// is looked at now and then without a reason.
    pub async fn run(mut self, token: CancellationToken) {
        self.handle.reconcile_now();
        while let Some(turn) = self.next(&token).await {
            let (key, result) = match turn {
                // Its key stays in flight until it is read.
                Turn::Due(Key::Source) => {
                    self.begin_reading();
                    continue;
                }
                Turn::Read(read) => (Key::Source, self.load_revision(read).await),
                Turn::Due(Key::Pass) => (Key::Pass, self.pass().await),
            };
            let now = self.clock.monotonic();
            let mut queue = self.handle.queue();
            queue.finish(&key);
            queue.request_at(key, now.saturating_add(self.rest(key, now)), "resync");
            if let Err(error) = result {
                queue.request_at(key, now.saturating_add(RETRY), "failed");
                drop(queue);
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    ?key,
                    "pass failed"
                );
            }
        }
    }

    /// How long a key rests without a hint, up to a tenth longer than it was told: daemons started
    /// together drift apart.
    fn rest(&self, key: Key, now: Duration) -> Duration {
        let rest = match key {
            Key::Source => self.settings.look,
            Key::Pass => self.settings.resync,
        };
        rest + rest / 10 * (now.subsec_micros() % 1_000) / 1_000
    }

    /// Waits for the next thing to do; none when cancelled.
    async fn next(&mut self, token: &CancellationToken) -> Option<Turn> {
        while !token.is_cancelled() {
            if self.reading.as_ref().is_some_and(Reading::is_finished) {
                return Some(Turn::Read(revision::answer(&mut self.reading).await));
            }
            let now = self.clock.monotonic();
            let (taken, next_at) = {
                let mut queue = self.handle.queue();
                (queue.take_due(now), queue.next_at())
            };
            if let Some((key, reasons)) = taken {
                tracing::debug!(?key, ?reasons, "turn");
                return Some(Turn::Due(key));
            }
            let delay = next_at.map_or(self.settings.resync, |at| at.saturating_sub(now));
            tokio::select! {
                () = token.cancelled() => return None,
                read = revision::answer(&mut self.reading) => return Some(Turn::Read(read)),
                () = self.handle.changed() => {}
                () = tokio::time::sleep(delay) => {}
            }
        }
        None
    }

    /// One look at everything, and what follows from it.
    async fn pass(&mut self) -> Result<(), ReconcileError> {
        let Some((_, catalog)) = &self.accepted else {
            self.handle.passed();
            return Ok(());
        };
        let catalog = Arc::clone(catalog);
        let now = self.clock.now();
        let in_flight = self.executor.in_flight();
        let observed = self.observe(&catalog, now).await?;
        self.deliver_stops(&observed);
        let input = PlanInput {
            catalog: &catalog,
            observed: &observed,
            now,
        };
        let plan = plan(&input);
        self.write_status(&input, &plan).await?;
        self.execute(&observed, &in_flight, plan, now).await?;
        self.handle.passed();
        Ok(())
    }

    /// Tells the runs that are to end so. Whoever put that on record tells them too, but may have
    /// died, or been cut off, before it did; a run that knows is told nothing new.
    fn deliver_stops(&self, observed: &Observed) {
        for run in observed.live_runs.values().filter(|run| run.is_attached) {
            if let Some(reason) = run.stop_requested {
                self.executor.runs().stop(run.id, reason);
            }
        }
    }

    /// Writes what waits and what is so, where it differs from what is stored.
    async fn write_status(&self, input: &PlanInput<'_>, plan: &Plan) -> Result<(), ReconcileError> {
        self.store
            .replace_holds(plan.holds.clone(), input.now)
            .await?;
        let statuses = conditions(input, plan)
            .into_iter()
            .filter_map(|(reference, conditions)| {
                let state = input.observed.objects.get(&reference)?;
                Some((state.uid, conditions))
            })
            .collect();
        self.store.write_conditions(statuses, input.now).await?;
        Ok(())
    }

    /// Hands over the actions, and comes back when one of them, or time, may change the plan. What
    /// was `in_flight` before the look is left to the next pass, which its end asks for: how it ended
    /// may be missing from what was observed, and with it that it has failed.
    async fn execute(
        &self,
        observed: &Observed,
        in_flight: &BTreeSet<String>,
        plan: Plan,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let mut wake_at = plan.wake_at;
        for action in plan.actions {
            if in_flight.contains(&action.lane()) {
                continue;
            }
            if let Some(until) = waits_until(observed, &action, now) {
                wake_at = Some(wake_at.map_or(until, |at| at.min(until)));
                continue;
            }
            let failures = observed
                .backoffs
                .get(&action.key())
                .map_or(0, |last| last.failures);
            match self.executor.submit(action, failures).await? {
                Submitted::Begun => {}
                Submitted::Settled => self.handle.trigger("acted"),
                Submitted::Stale => self.handle.request_pass_in(STALE_PAUSE, "older rows"),
            }
        }
        if let Some(at) = wake_at {
            let delay = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
            self.handle.request_pass_in(delay, "time");
        }
        Ok(())
    }
}

/// Until when an action that failed lately is left alone.
fn waits_until(observed: &Observed, action: &Action, now: Timestamp) -> Option<Timestamp> {
    observed.backoffs.get(&action.key())?.waits_until(now)
}
