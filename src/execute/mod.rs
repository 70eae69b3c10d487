//! Performing actions, one function each. No choice is made here and nothing is tried twice: an
//! error is classified and recorded under the action's key, and the next pass plans again.
//!
//! What is only rows is done at once, in the plan's order. What touches disk or processes runs in
//! the background, one at a time per lane ([`Action::lane`]): a pass that plans it again meanwhile
//! changes nothing, and what undoes it waits for its end.

mod failure;
mod trees;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Semaphore;

pub use failure::{ErrorClass, ExecuteError};

use crate::clock::Clock;
use crate::dispatch::{OnChange, Runs, Started};
use crate::model::action::Action;
use crate::model::budget::Incident;
use crate::model::chain::chain;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::{RunId, WakeId};
use crate::model::observed::WorktreeBackend;
use crate::model::run::RunOrder;
use crate::model::worktree::UserIds;
use crate::store::{Effect, Store, StoreError};
use crate::task::Tracker;
use crate::worktree::layout::Layout;

/// Worktrees that are made or reclaimed at once: beyond the cores, the file system only queues.
const TREES_AT_ONCE: usize = 2;
/// Orphans that are killed at once.
const REAPS_AT_ONCE: usize = 8;

/// What the executor is told of its host.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything on disk lies.
    pub layout: Layout,
    /// How worktrees are made.
    pub backend: WorktreeBackend,
    /// Who owns them.
    pub user: UserIds,
    /// Where relative repo sources start.
    pub source_base: Option<PathBuf>,
}

/// What became of an action that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It goes on in the background, and says when it ends; or its lane is taken, and what takes it
    /// says so.
    Begun,
    /// It is done, or its failure is on record: another plan may differ.
    Settled,
    /// It was planned against older rows: nothing is done, and the next plan is likely right.
    Stale,
}

/// Pause before planning again what was planned against older rows.
pub const STALE_PAUSE: Duration = Duration::from_millis(50);

/// Performs actions. Clones share what is in flight.
#[derive(Clone)]
pub struct Executor {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    store: Store,
    runs: Runs,
    clock: Arc<dyn Clock>,
    tracker: Tracker,
    on_change: OnChange,
    in_flight: Mutex<BTreeSet<String>>,
    trees: Semaphore,
    reaps: Semaphore,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = &*self.shared.in_flight();
        f.debug_struct("Executor")
            .field("in_flight", in_flight)
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor with nothing in flight.
    pub fn new(
        settings: Settings,
        store: Store,
        runs: Runs,
        clock: Arc<dyn Clock>,
        tracker: Tracker,
        on_change: OnChange,
    ) -> Self {
        let shared = Shared {
            settings,
            store,
            runs,
            clock,
            tracker,
            on_change,
            in_flight: Mutex::new(BTreeSet::new()),
            trees: Semaphore::new(TREES_AT_ONCE),
            reaps: Semaphore::new(REAPS_AT_ONCE),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The runs that it starts.
    pub fn runs(&self) -> &Runs {
        &self.shared.runs
    }

    /// Where its tasks are.
    pub fn tracker(&self) -> &Tracker {
        &self.shared.tracker
    }

    /// The lanes of the background actions that have not ended.
    pub fn in_flight(&self) -> BTreeSet<String> {
        self.shared.in_flight().clone()
    }

    /// Performs or begins the action. `failures` is how often in a row it has failed before.
    ///
    /// # Errors
    /// When a failure could not be recorded.
    pub async fn submit(&self, action: Action, failures: u32) -> Result<Submitted, StoreError> {
        if is_background(&action) {
            self.begin(action, failures);
            return Ok(Submitted::Begun);
        }
        let attempt = Attempt::of(&action, failures);
        tracing::debug!(action = attempt.key, "act");
        let result = self.perform(action).await;
        self.settle(&attempt, result).await
    }

    /// Begins a background action unless its lane is taken.
    fn begin(&self, action: Action, failures: u32) {
        let (attempt, lane) = (Attempt::of(&action, failures), action.lane());
        if !self.shared.in_flight().insert(lane.clone()) {
            return;
        }
        let landing = Landing {
            shared: Arc::clone(&self.shared),
            lane,
        };
        let (this, name) = (self.clone(), attempt.key.clone());
        let task = async move {
            tracing::debug!(action = attempt.key, "act in the background");
            let result = this.perform(action).await;
            match this.settle(&attempt, result).await {
                Ok(Submitted::Begun | Submitted::Settled) => {}
                // The landing asks for the next plan: one that is wrong again must not spin.
                Ok(Submitted::Stale) => tokio::time::sleep(STALE_PAUSE).await,
                Err(error) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "outcome not recorded"
                ),
            }
            drop(landing);
        };
        drop(self.shared.tracker.spawn(name, task));
    }

    /// Records the outcome under the action's key. What was planned against older rows has not
    /// failed: it leaves no record, since it may never be planned again.
    async fn settle(
        &self,
        attempt: &Attempt,
        result: Result<(), ExecuteError>,
    ) -> Result<Submitted, StoreError> {
        let (store, key) = (&self.shared.store, &attempt.key);
        let Err(error) = result else {
            if attempt.failures > 0 {
                store.clear_failure(key.clone()).await?;
            }
            return Ok(Submitted::Settled);
        };
        let cause = chain(&error);
        let Some(backoff) = failure::backoff(&error, attempt, self.shared.clock.now()) else {
            tracing::info!(action = key, cause, "planned again");
            return Ok(Submitted::Stale);
        };
        tracing::warn!(action = key, error = cause, "failed");
        store.record_failure(key.clone(), backoff).await?;
        Ok(Submitted::Settled)
    }

    async fn perform(&self, action: Action) -> Result<(), ExecuteError> {
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        let effect = match action {
            Action::SettleRun { run, retry, ticket } => {
                let effect = store
                    .settle_run(run, retry.map(|wake| *wake), ticket, now)
                    .await?;
                crash_point(CrashPoint::RunSettled);
                effect
            }
            Action::RecordIncident { incident, pause } => {
                record_incident(store, incident, pause, now).await?
            }
            Action::LiftBudgetPause { scope, because } => {
                store.lift_budget_pause(scope, because, now).await?
            }
            Action::AssignTicket {
                ticket,
                assignee,
                assignments,
                wake,
            } => {
                let wake = wake.map(|wake| *wake);
                store
                    .assign_ticket(ticket, assignee, assignments, wake, now)
                    .await?
            }
            Action::ChangeTicket(change) => store.change_ticket(change, now).await?,
            Action::DispatchOnce {
                dispatch,
                generation,
                wake,
            } => store.dispatch_once(dispatch, generation, *wake).await?,
            Action::FireSchedule {
                schedule,
                slot,
                wake,
            } => {
                store
                    .fire_schedule(schedule, slot, wake.map(|wake| *wake))
                    .await?
            }
            Action::CancelWake { wake, because } => store.cancel_wake(wake, because, now).await?,
            Action::FinishDeletion { object, uid } => {
                store.finish_deletion(object, uid, now).await?
            }
            Action::StopRun { run, reason } => {
                let by = "homeostat".to_owned();
                let effect = store.request_stop(run, reason, by, now).await?;
                self.shared.runs.stop(run, reason);
                effect
            }
            Action::StartRun(order) => return self.start_run(*order).await,
            Action::TellRun { run, wake } => return self.tell_run(run, wake).await,
            Action::ReapRun { run } => return self.shared.reap_run(run).await,
            Action::EnsureSpaceRoot {
                workspace,
                space,
                generation: _,
                agents,
            } => {
                self.shared
                    .ensure_space_root(workspace, space, agents)
                    .await?
            }
            Action::ProvisionWorktree(order) => self.shared.provision_worktree(*order).await?,
            Action::ReclaimWorktree { worktree } => self.shared.reclaim_worktree(worktree).await?,
            Action::ReclaimSpaceRoot { workspace, space } => {
                self.shared.reclaim_space_root(workspace, space).await?
            }
        };
        applied(effect)
    }

    /// An agent that takes no message any more is no failure of the wake: it waits for its own run.
    async fn tell_run(&self, run: RunId, wake: WakeId) -> Result<(), ExecuteError> {
        match self.shared.runs.tell(run, wake).await {
            true => Ok(()),
            false => Err(ExecuteError::Stale {
                what: format!("run {run} was not told of wake {wake}"),
            }),
        }
    }

    /// A refusal at the exec boundary is no failure of the wake: the plan was made from older rows,
    /// and the next one holds the wake with that reason.
    async fn start_run(&self, order: RunOrder) -> Result<(), ExecuteError> {
        let wake = order.wake;
        match self.shared.runs.start(order).await? {
            Started::Run => Ok(()),
            Started::Refused(what) => Err(ExecuteError::Stale {
                what: format!("wake {wake}: {what}"),
            }),
        }
    }
}

/// Whether the action touches disk or processes, so that the loop does not wait for it.
const fn is_background(action: &Action) -> bool {
    match action {
        Action::ReapRun { .. }
        | Action::EnsureSpaceRoot { .. }
        | Action::ProvisionWorktree(_)
        | Action::ReclaimWorktree { .. }
        | Action::ReclaimSpaceRoot { .. }
        | Action::TellRun { .. } => true,
        Action::StopRun { .. }
        | Action::SettleRun { .. }
        | Action::RecordIncident { .. }
        | Action::LiftBudgetPause { .. }
        | Action::AssignTicket { .. }
        | Action::ChangeTicket(_)
        | Action::DispatchOnce { .. }
        | Action::FireSchedule { .. }
        | Action::CancelWake { .. }
        | Action::StartRun(_)
        | Action::FinishDeletion { .. } => false,
    }
}

/// Records a crossing, and says so in the daemon's log.
async fn record_incident(
    store: &Store,
    incident: Incident,
    pause: bool,
    now: Timestamp,
) -> Result<Effect, StoreError> {
    let Incident {
        budget,
        kind,
        window,
        spent,
        ceiling,
        ..
    } = incident.clone();
    let effect = store.record_incident(incident, pause, now).await?;
    if effect == Effect::Applied {
        tracing::warn!(%budget, %kind, %spent, %ceiling, window, "budget crossed");
    }
    Ok(effect)
}

/// Fails unless the rows were as planned.
fn applied(effect: Effect) -> Result<(), ExecuteError> {
    match effect {
        Effect::Applied | Effect::Unchanged => Ok(()),
        Effect::Stale(what) => Err(ExecuteError::Stale { what }),
    }
}

/// One try of an action, as its outcome is recorded.
#[derive(Debug)]
struct Attempt {
    key: String,
    generation: i64,
    failures: u32,
}

impl Attempt {
    fn of(action: &Action, failures: u32) -> Self {
        Self {
            key: action.key(),
            generation: action.generation(),
            failures,
        }
    }
}

impl Shared {
    /// A short section without an await.
    fn in_flight(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn reap_run(&self, run: RunId) -> Result<(), ExecuteError> {
        let _permit = self.reaps.acquire().await;
        Ok(self.runs.reap(run).await?)
    }
}

/// A lane that is taken, while this lives.
struct Landing {
    shared: Arc<Shared>,
    lane: String,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.shared.in_flight().remove(&self.lane);
        (self.shared.on_change)("acted in the background");
    }
}

#[cfg(test)]
mod tests;
