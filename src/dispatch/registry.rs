//! The runs that this daemon drives.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::log::LogError;
use super::runner;
use super::tools::contract_of;
use crate::clock::Clock;
use crate::gateway;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::{RunId, WakeId};
use crate::model::observed::WorktreeBackend;
use crate::model::run::{EndReason, RunOrder};
use crate::model::worktree::UserIds;
use crate::price::PriceTable;
use crate::process::{StopError, estop};
use crate::sandbox::{Layers, RunIdentity, SandboxState};
use crate::store::{Admission, AdmitFacts, Store, StoreError};
use crate::task::{TaskError, Tracker, blocking};
use crate::worktree::layout::Layout;

/// What every run of this daemon is started with.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// This program: the shim is a hidden subcommand of it.
    pub program: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Where everything on disk lies.
    pub layout: Layout,
    /// Where programs are looked up, as `PATH` spells it.
    pub path: String,
    /// The daemon's own environment: the last place that a credential is looked for in.
    pub variables: BTreeMap<OsString, OsString>,
    /// The user that runs are.
    pub identity: RunIdentity,
    /// What of an enclosure works here.
    pub layers: Layers,
    /// The same in words.
    pub sandbox: SandboxState,
    /// How worktrees are made.
    pub backend: WorktreeBackend,
    /// Connections to model providers.
    pub models: gateway::Client,
    /// How long a provider may take.
    pub timeouts: gateway::Timeouts,
    /// The built-in prices.
    pub prices: Arc<PriceTable>,
    /// This life of the daemon.
    pub incarnation: String,
    /// What an agent gets between TERM and KILL.
    pub grace: Duration,
}

/// The prices that hold where no Adapter says otherwise. Decoding them takes a moment.
pub fn built_in_prices() -> Arc<PriceTable> {
    Arc::new(PriceTable::embedded(&[]))
}

/// Whether a wake became a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// Its task runs.
    Run,
    /// A gate was closed when it came to it, or the wake is no longer waiting.
    Refused(String),
}

/// Why a run could not be started, ended or recovered.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// The database.
    #[error("use the database")]
    Store(#[from] StoreError),
    /// The run's log.
    #[error("read what the run logged")]
    Log(#[from] LogError),
    /// What is left of the run could not be killed, or not be looked for.
    #[error("confirm that the run is gone")]
    Stop(#[from] StopError),
    /// A blocking step panicked.
    #[error("finish a step")]
    Task(#[from] TaskError),
    /// The emergency stop's file could not be looked at.
    #[error("look at the emergency stop")]
    Estop(#[source] std::io::Error),
}

/// Tells the loop that something ended.
pub type OnChange = Arc<dyn Fn(&'static str) + Send + Sync>;

/// The runs that this daemon drives. Clones share it.
#[derive(Clone)]
pub struct Runs {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tracker: Tracker,
    pub(super) settings: RunSettings,
    pub(super) on_change: OnChange,
    live: Mutex<Live>,
}

/// What runs, and whether more may.
#[derive(Default)]
struct Live {
    runs: BTreeMap<RunId, Task>,
    is_closed: bool,
}

/// How a run's task is reached.
struct Task {
    stop: watch::Sender<Option<EndReason>>,
    /// Where its agent's messages go, while it takes any.
    messages: Option<mpsc::Sender<Tell>>,
}

/// A message for a live agent: what the wake says.
pub(super) struct Tell {
    pub(super) wake: WakeId,
    /// Answered when the agent was told; dropped when it was not.
    pub(super) taken: oneshot::Sender<()>,
}

/// Messages that wait for an agent to be told; a further one waits for its own run.
const MESSAGES_MAX: usize = 20;

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("live", &self.attached())
            .finish_non_exhaustive()
    }
}

impl Runs {
    /// A registry with no run in it.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        tracker: Tracker,
        settings: RunSettings,
        on_change: OnChange,
    ) -> Self {
        let live = Mutex::new(Live::default());
        let shared = Shared {
            store,
            clock,
            tracker,
            settings,
            on_change,
            live,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The runs that a task of this daemon drives.
    pub fn attached(&self) -> BTreeSet<RunId> {
        self.shared.live().runs.keys().copied().collect()
    }

    /// Those of them whose agents can be told something now.
    pub fn listening(&self) -> BTreeSet<RunId> {
        let live = self.shared.live();
        let listening = live.runs.iter().filter(|(_, task)| task.messages.is_some());
        listening.map(|(run, _)| *run).collect()
    }

    /// Tells a live run's agent what the wake says; false if it was not told, and the wake waits.
    pub async fn tell(&self, run: RunId, wake: WakeId) -> bool {
        let (taken, is_taken) = oneshot::channel();
        {
            let live = self.shared.live();
            let messages = live.runs.get(&run).and_then(|task| task.messages.as_ref());
            let tell = Tell { wake, taken };
            // Without a receiver, or room, the sender of the answer is dropped with it.
            let sent = messages.map(|messages| messages.try_send(tell).is_ok());
            if sent != Some(true) {
                return false;
            }
        }
        is_taken.await.is_ok()
    }

    /// Claims the order's wake and starts its run. The task is registered before the row is
    /// written, so that no pass takes the run for an orphan.
    ///
    /// # Errors
    /// When the gates could not be looked at; nothing was started then.
    pub async fn start(&self, order: RunOrder) -> Result<Started, DispatchError> {
        let run = order.run;
        let (stop, stopped) = watch::channel(None);
        {
            let mut live = self.shared.live();
            if live.runs.contains_key(&run) {
                return Ok(Started::Run);
            }
            if live.is_closed {
                return Ok(Started::Refused("the daemon is stopping".to_owned()));
            }
            let messages = None;
            live.runs.insert(run, Task { stop, messages });
        }
        let registered = Registered {
            shared: Arc::clone(&self.shared),
            run,
        };
        if let Some(refusal) = self.admit(&order).await? {
            return Ok(refusal);
        }
        crash_point(CrashPoint::RunAdmitted);
        let task = runner::drive(Arc::clone(&self.shared), order, stopped, registered);
        drop(self.shared.tracker.spawn(format!("run {run}"), task));
        Ok(Started::Run)
    }

    /// Passes the gates once more and writes the run's row; the refusal if one is closed.
    async fn admit(&self, order: &RunOrder) -> Result<Option<Started>, DispatchError> {
        let settings = &self.shared.settings;
        let data_dir = settings.data_dir.clone();
        let estop = blocking("read estop", move || estop::read(&data_dir)).await?;
        if let Some(estop) = estop.map_err(DispatchError::Estop)? {
            let message = format!("the emergency stop was set by {}", estop.by);
            return Ok(Some(Started::Refused(message)));
        }
        let facts = AdmitFacts {
            incarnation: settings.incarnation.clone(),
            sandbox_state: settings.sandbox.kind.as_str().to_owned(),
            credential_source: "none".to_owned(),
            backend: settings.backend,
            contract: contract_of(order),
            log_path: self
                .shared
                .log_path(order.run)
                .to_string_lossy()
                .into_owned(),
            now: self.shared.clock.now(),
        };
        match self.shared.store.admit(order, facts).await? {
            Admission::Admitted => Ok(None),
            Admission::Refused(reason, message) => {
                Ok(Some(Started::Refused(format!("{reason}: {message}"))))
            }
            Admission::Stale(message) => Ok(Some(Started::Refused(message))),
        }
    }

    /// Asks a run of this daemon to end; false if it drives no such run. A second reason changes
    /// nothing.
    pub fn stop(&self, run: RunId, reason: EndReason) -> bool {
        let live = self.shared.live();
        let task = live.runs.get(&run);
        task.inspect(|task| ask(&task.stop, reason)).is_some()
    }

    /// Lets no run start any more, and asks every one that did to end: none slips in between, also
    /// not one that a pass in progress is starting.
    pub fn close(&self, reason: EndReason) {
        let mut live = self.shared.live();
        live.is_closed = true;
        live.runs.values().for_each(|task| ask(&task.stop, reason));
    }
}

/// Sets why a run is to end, unless that is set.
fn ask(stop: &watch::Sender<Option<EndReason>>, reason: EndReason) {
    stop.send_if_modified(|current| {
        let is_first = current.is_none();
        current.get_or_insert(reason);
        is_first
    });
}

impl RunSettings {
    /// Settings under which no agent can be started, for tests of what is around a run.
    #[cfg(test)]
    pub(crate) fn for_test(layout: &Layout, tracker: &Tracker) -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let identity = RunIdentity::resolve(uid.as_raw(), gid.as_raw(), None).unwrap();
        let layers = crate::sandbox::probe(identity);
        Self {
            program: PathBuf::from("/nonexistent"),
            data_dir: layout.data().to_owned(),
            layout: layout.clone(),
            path: String::new(),
            variables: BTreeMap::new(),
            identity,
            sandbox: layers.state(),
            layers,
            backend: WorktreeBackend::Git,
            models: gateway::Client::new(tracker).unwrap(),
            timeouts: gateway::Timeouts::default(),
            prices: built_in_prices(),
            incarnation: "test".to_owned(),
            grace: Duration::ZERO,
        }
    }

    /// The user that runs are, as worktrees know it.
    pub(crate) const fn user(&self) -> UserIds {
        UserIds {
            uid: self.identity.uid(),
            gid: self.identity.gid(),
        }
    }
}

impl Shared {
    /// A short section without an await; each change of the map is one call.
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets messages come for the run's agent.
    pub(super) fn listen(&self, run: RunId) -> mpsc::Receiver<Tell> {
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        if let Some(task) = self.live().runs.get_mut(&run) {
            task.messages = Some(sender);
        }
        (self.on_change)("run listens");
        receiver
    }

    /// Lets no message come any more.
    pub(super) fn listen_no_more(&self, run: RunId) {
        if let Some(task) = self.live().runs.get_mut(&run) {
            task.messages = None;
        }
    }

    /// The stop that is on record for the run, or for everything.
    pub(super) async fn stop_on_record(
        &self,
        run: RunId,
    ) -> Result<Option<EndReason>, DispatchError> {
        if let Some(asked) = self.store.stop_requested(run).await? {
            return Ok(Some(asked.reason));
        }
        let data_dir = self.settings.data_dir.clone();
        let stop = blocking("read estop", move || estop::read(&data_dir)).await?;
        let stop = stop.map_err(DispatchError::Estop)?;
        Ok(stop.map(|_set| EndReason::Estop))
    }

    /// Where the run's log lies.
    pub(super) fn log_path(&self, run: RunId) -> PathBuf {
        self.settings.layout.runs().join(format!("{run}.ndjson"))
    }

    /// The run's own directory: home and scratch space.
    pub(super) fn run_dir(&self, run: RunId) -> PathBuf {
        self.settings.layout.build().join(format!("run-{run}"))
    }
}

/// A run's place in the registry, while this lives.
pub(super) struct Registered {
    shared: Arc<Shared>,
    run: RunId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.live().runs.remove(&self.run);
        (self.shared.on_change)("run ended");
    }
}
