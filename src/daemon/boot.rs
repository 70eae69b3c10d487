//! Building the daemon.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::levers::levers;
use super::lock::{DataDirLock, LockError};
use crate::api::control::{Control, Facts};
use crate::api::dto;
use crate::api::server::{self, ServeError};
use crate::clock::{Clock, IdSource, RandomIds, SystemClock};
use crate::config::{Resolved, SourceSetting};
use crate::credential;
use crate::dispatch::{OnChange, RunSettings, Runs, built_in_prices};
use crate::execute::{self, Executor};
use crate::gateway::{self, GatewayError};
use crate::git::remote::Remote;
use crate::manifest;
use crate::model::observed::WorktreeBackend;
use crate::model::worktree::UserIds;
use crate::reconcile::{self, Handle, ReconcileError, Reconciler, SourceStatus};
use crate::sandbox::{self, IdentityError, RunIdentity, SandboxState};
use crate::source::{Source, WatchOptions, Watcher};
use crate::store::{OpenError, Store};
use crate::task::{self, TaskError, Tracker, blocking};
use crate::worktree::layout::Layout;
use crate::worktree::probe::{self, Refusal};
use crate::worktree::reason::ReasonCode;
use crate::worktree::trash;

/// What an agent gets between TERM and KILL.
const GRACE: Duration = Duration::from_secs(3);
/// How many names the background deletion removes before it lets others have the disk.
const PURGE_NAMES: usize = 2_000;
/// How often the background deletion looks for more.
const PURGE_EVERY: Duration = Duration::from_secs(5);

/// A daemon that runs.
#[derive(Debug)]
pub struct Daemon {
    pub(super) store: Store,
    pub(super) handle: Handle,
    pub(super) runs: Runs,
    pub(super) tracker: Tracker,
    /// The loop; none once its end was noticed.
    pub(super) reconcile: Option<task::Handle<()>>,
    pub(super) lock: DataDirLock,
    source: SourceStatus,
    banner: String,
    _watcher: Watcher,
}

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Another daemon serves the data directory.
    #[error("take the data directory")]
    Lock(#[from] LockError),
    /// The data directory could not be made.
    #[error("make the data directory {}", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The data directory's path is not Unicode, which records are.
    #[error("use the data directory {}, whose path is not Unicode", path.display())]
    DataDirName {
        /// Which.
        path: PathBuf,
    },
    /// The database could not be opened.
    #[error("open the database")]
    Store(#[from] OpenError),
    /// Agents would run as somebody that they must not be.
    #[error("choose the user of runs")]
    Identity(#[from] IdentityError),
    /// The kernel lacks the call that copy-on-write is made of.
    #[error("make copy-on-write worktrees on this kernel")]
    Primitive(#[source] Refusal),
    /// The system refuses the watcher's thread.
    #[error("watch the source")]
    Watch(#[source] io::Error),
    /// The loop could not be built.
    #[error("start the loop")]
    Reconcile(#[from] ReconcileError),
    /// The socket could not be served.
    #[error("serve the socket")]
    Serve(#[from] ServeError),
    /// What a dead daemon left half made could not be cleared.
    #[error("clear what was left half made")]
    Leftovers(#[from] trash::TrashError),
    /// Models could not be reached at all.
    #[error("prepare for model providers")]
    Models(#[from] GatewayError),
    /// A blocking step panicked.
    #[error("finish a step")]
    Task(#[from] TaskError),
}

impl BootError {
    /// Whether the start was refused by the state of things, rather than failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Lock(LockError::Held { .. }) | Self::Primitive(_) | Self::Identity(_) => true,
            Self::Store(error) => matches!(error, OpenError::NewerSchema { .. }),
            Self::Lock(LockError::File { .. })
            | Self::DataDir { .. }
            | Self::DataDirName { .. }
            | Self::Watch(_)
            | Self::Reconcile(_)
            | Self::Serve(_)
            | Self::Leftovers(_)
            | Self::Models(_)
            | Self::Task(_) => false,
        }
    }
}

/// What the daemon's process was given.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// This program: the shim is a hidden subcommand of it.
    pub program: PathBuf,
    /// Where agents' programs are looked up.
    pub path: String,
    /// The process's environment.
    pub variables: BTreeMap<OsString, OsString>,
}

/// What was found out about this host before anything started.
struct Host {
    layout: Layout,
    layers: sandbox::Layers,
    sandbox: SandboxState,
    reflink: Result<(), Refusal>,
}

impl Daemon {
    /// Builds a daemon from its settings and starts it.
    ///
    /// # Errors
    /// When it can't serve; nothing runs then.
    pub async fn start(config: &Resolved, surroundings: Surroundings) -> Result<Self, BootError> {
        let data_dir = &config.client.data_dir;
        make_data_dir(data_dir)?;
        let to_lock = data_dir.clone();
        let lock = blocking("lock data directory", move || DataDirLock::take(&to_lock)).await??;
        let store = Store::open(&data_dir.join("homeostat.db"))?;
        #[cfg(feature = "test-support")]
        super::fault::arm(&store);
        let host = probe_host(config).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let handle = Handle::new(Arc::clone(&clock), config.debounce);
        let parts = Parts {
            store,
            clock,
            ids: Arc::new(RandomIds),
            tracker: Tracker::new(),
            handle,
        };
        let seen = host.seen(&surroundings);
        let mirror = data_dir.join("source.git");
        let source = source_of(&config.source, mirror, &surroundings.variables);
        let source = Arc::new(source);
        let runs = parts.runs(config, &host, surroundings).await?;
        let reconciler = parts
            .reconciler(config, &host, &source, runs.clone())
            .await?;
        let banner = banner(config, &reconciler, &host);
        let status = reconciler.source_status();
        let control = parts.control(config, &host, seen, &runs, &status);
        server::serve(&config.client.socket, control, &parts.tracker)?;
        let watcher = parts.watch(config, &source)?;
        let Parts {
            store,
            tracker,
            handle,
            ..
        } = parts;
        let reconcile = tracker.spawn("reconcile", reconciler.run(tracker.child_token()));
        drop(tracker.spawn("purge", purge(host.layout, tracker.child_token())));
        Ok(Self {
            store,
            handle,
            runs,
            tracker,
            reconcile: Some(reconcile),
            lock,
            source: status,
            banner,
            _watcher: watcher,
        })
    }

    /// The one line at start: version, data directory, revision, backend, sandbox and reason.
    pub fn banner(&self) -> &str {
        &self.banner
    }

    /// The database.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Wakes the loop.
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What the source last answered.
    pub const fn source(&self) -> &SourceStatus {
        &self.source
    }
}

/// What every part of the daemon shares.
struct Parts {
    store: Store,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    tracker: Tracker,
    handle: Handle,
}

impl Parts {
    /// Whatever ends makes the loop look at its rows.
    fn on_change(&self) -> OnChange {
        let handle = self.handle.clone();
        Arc::new(move |reason| handle.trigger(reason))
    }

    async fn runs(
        &self,
        config: &Resolved,
        host: &Host,
        surroundings: Surroundings,
    ) -> Result<Runs, BootError> {
        let Surroundings {
            program,
            path,
            variables,
        } = surroundings;
        let prices = blocking("load prices", built_in_prices).await?;
        let settings = RunSettings {
            program,
            data_dir: config.client.data_dir.clone(),
            layout: host.layout.clone(),
            path,
            variables,
            identity: host.layers.identity,
            layers: host.layers.clone(),
            sandbox: host.sandbox.clone(),
            backend: config.worktree_backend,
            models: gateway::Client::new(&self.tracker)?,
            timeouts: gateway::Timeouts::default(),
            prices,
            incarnation: self.ids.mint().to_string(),
            grace: GRACE,
        };
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        Ok(Runs::new(
            store,
            clock,
            self.tracker.clone(),
            settings,
            self.on_change(),
        ))
    }

    async fn reconciler(
        &self,
        config: &Resolved,
        host: &Host,
        source: &Arc<Source>,
        runs: Runs,
    ) -> Result<Reconciler, BootError> {
        let settings = execute::Settings {
            layout: host.layout.clone(),
            backend: config.worktree_backend,
            user: host.user(),
            source_base: base_of(&config.source),
        };
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let tracker = self.tracker.clone();
        let executor = Executor::new(settings, store, runs, clock, tracker, self.on_change());
        let settings = reconcile::Settings {
            data_dir: config.client.data_dir.clone(),
            backend: config.worktree_backend,
            resync: config.resync,
            look: match **source {
                Source::Remote { .. } => config.poll,
                Source::Directory { .. } | Source::Git { .. } => config.resync,
            },
        };
        Ok(Reconciler::open(
            settings,
            self.store.clone(),
            Arc::clone(source),
            Arc::clone(&self.clock),
            Arc::clone(&self.ids),
            executor,
            self.handle.clone(),
        )
        .await?)
    }

    /// What the API works with.
    fn control(
        &self,
        config: &Resolved,
        host: &Host,
        surroundings: dto::Surroundings,
        runs: &Runs,
        source: &SourceStatus,
    ) -> Control {
        let facts = Facts {
            sandbox: host.sandbox.to_string(),
            worktree_backend: config.worktree_backend,
            surroundings,
        };
        Control::new(
            self.store.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.ids),
            facts,
            levers(&self.handle, runs, source, &self.clock, config.resync),
            self.tracker.child_token(),
        )
    }

    fn watch(&self, config: &Resolved, source: &Source) -> Result<Watcher, BootError> {
        let options = WatchOptions {
            scan_every: config.scan,
            ..WatchOptions::default()
        };
        let handle = self.handle.clone();
        let hint = move || handle.source_hint();
        Watcher::start(source.clone(), manifest::is_manifest_path, options, hint)
            .map_err(BootError::Watch)
    }
}

/// The data directory can be passed through by the run user, and listed by nobody.
fn make_data_dir(path: &Path) -> Result<(), BootError> {
    if path.to_str().is_none() {
        return Err(BootError::DataDirName {
            path: path.to_owned(),
        });
    }
    let made = DirBuilder::new().recursive(true).mode(0o711).create(path);
    let open = made.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o711)));
    open.map_err(|source| BootError::DataDir {
        path: path.to_owned(),
        source,
    })
}

async fn probe_host(config: &Resolved) -> Result<Host, BootError> {
    let identity = RunIdentity::resolve(
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        config.run_uid,
    )?;
    let (data_dir, backend) = (config.client.data_dir.clone(), config.worktree_backend);
    blocking("probe host", move || {
        probe_data_dir(&data_dir, identity, backend)
    })
    .await?
}

/// Makes the data directory's folders, empties its scratch space, and tries out what works there.
fn probe_data_dir(
    data_dir: &Path,
    identity: RunIdentity,
    backend: WorktreeBackend,
) -> Result<Host, BootError> {
    let layout = Layout::new(data_dir);
    let made = layout.ensure();
    made.map_err(|source| BootError::DataDir {
        path: data_dir.to_owned(),
        source,
    })?;
    trash::sweep_build(&layout)?;
    let reflink = match (probe::probe(data_dir), backend) {
        (Err(refusal), WorktreeBackend::Reflink)
            if refusal.reason == ReasonCode::PrimitiveMissing =>
        {
            return Err(BootError::Primitive(refusal));
        }
        (probed, _) => probed,
    };
    let layers = sandbox::probe(identity);
    let sandbox = layers.state();
    Ok(Host {
        layout,
        layers,
        sandbox,
        reflink,
    })
}

impl Host {
    /// What the API shows of the surroundings.
    fn seen(&self, surroundings: &Surroundings) -> dto::Surroundings {
        let names = credential::variables_in(&surroundings.variables);
        dto::Surroundings {
            search_path: surroundings.path.clone(),
            model_variables: names.into_iter().map(str::to_owned).collect(),
            run_uid: self.layers.identity.uid(),
        }
    }

    /// Who owns worktrees.
    const fn user(&self) -> UserIds {
        UserIds {
            uid: self.layers.identity.uid(),
            gid: self.layers.identity.gid(),
        }
    }
}

/// The source that a setting names. A remote one is mirrored at `mirror`, by the git of whoever has
/// these `variables`.
pub fn source_of(
    setting: &SourceSetting,
    mirror: PathBuf,
    variables: &BTreeMap<OsString, OsString>,
) -> Source {
    match setting {
        SourceSetting::Directory { path, inside } => Source::Directory {
            root: path.clone(),
            subdirectory: inside.clone().unwrap_or_default(),
        },
        SourceSetting::Repository {
            path,
            reference,
            inside,
        } => Source::Git {
            repository: path.clone(),
            reference: reference.clone(),
            subdirectory: inside.clone().unwrap_or_default(),
        },
        SourceSetting::Remote {
            url,
            reference,
            inside,
        } => Source::Remote {
            remote: Remote {
                url: url.clone(),
                reference: reference.clone(),
                mirror,
                environment: variables.clone(),
            },
            subdirectory: inside.clone().unwrap_or_default(),
        },
    }
}

/// Where relative paths of the manifests start; nowhere on this host, if they come from another.
fn base_of(setting: &SourceSetting) -> Option<PathBuf> {
    match setting {
        SourceSetting::Directory { path, .. } | SourceSetting::Repository { path, .. } => {
            Some(path.clone())
        }
        SourceSetting::Remote { .. } => None,
    }
}

fn banner(config: &Resolved, reconciler: &Reconciler, host: &Host) -> String {
    let revision = reconciler
        .revision()
        .map_or("none yet", |revision| revision.short());
    let backend = match (config.worktree_backend, &host.reflink) {
        (WorktreeBackend::Git, _) => "git (ordinary checkouts, as this host was told)".to_owned(),
        (WorktreeBackend::Reflink, Ok(())) => "reflink".to_owned(),
        (WorktreeBackend::Reflink, Err(refusal)) => {
            format!(
                "reflink (refused here: {}; {})",
                refusal.reason,
                refusal.reason.remedy()
            )
        }
    };
    format!(
        "homeostat {} data={} revision={revision} worktrees={backend} {}",
        env!("CARGO_PKG_VERSION"),
        config.client.data_dir.display(),
        host.sandbox
    )
}

/// Deletes what lies in the trash, a portion at a time.
async fn purge(layout: Layout, token: tokio_util::sync::CancellationToken) {
    loop {
        let again = layout.clone();
        let purged = blocking("purge trash", move || trash::purge(&again, PURGE_NAMES)).await;
        let is_more = match purged {
            Ok(Ok(purged)) => {
                for (path, error) in &purged.stuck {
                    tracing::warn!(path = %path.display(), %error, "not deleted");
                }
                purged.is_more
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "trash not emptied"
                );
                false
            }
            Err(_panicked_and_logged) => false,
        };
        let pause = if is_more {
            Duration::from_millis(20)
        } else {
            PURGE_EVERY
        };
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
