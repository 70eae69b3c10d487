//! Says when reading a source again may be worth it.
//!
//! Events of the file system are one dirty bit: what they say about paths only decides whether
//! they matter at all. A scan of all file states is the backstop for what no event tells (a link
//! that was swapped far away, a network file system, a watch that was lost).

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::walk::{self, Listing};
use super::{Keep, Source};
use crate::git::objects::Objects;

/// Directories that are watched one by one; a source with more is polled.
const WATCHES_MAX: usize = 8_192;
/// Looks in a row at a source whose directories keep changing, before it is others' turn.
const ROUNDS_MAX: usize = 8;
/// How long the start waits for the first look: a source may be slow, or never answer.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// How a source is watched.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Time between two scans while events work.
    pub scan_every: Duration,
    /// Time between two scans while they do not.
    pub poll_every: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            scan_every: Duration::from_secs(30),
            poll_every: Duration::from_secs(2),
        }
    }
}

/// How changes are noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watching {
    /// By events, with scans as the backstop.
    Events,
    /// By scans alone.
    Polling {
        /// Why, and what to do about it.
        reason: String,
    },
}

/// Watches a source until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: SyncSender<Signal>,
    is_stopped: Arc<AtomicBool>,
    watching: Arc<Mutex<Watching>>,
}

#[derive(Debug)]
enum Signal {
    Dirty,
    Stop,
}

impl Watcher {
    /// Calls `hint` after each change of the source that is noticed, also when nothing that
    /// counts turns out to be different. It is called on a thread of the watcher's and must not
    /// block. A source that does not exist is watched for its appearance; a remote one gives no hint.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        source: Source,
        keep: Keep,
        options: WatchOptions,
        hint: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        // One place: a signal that finds it taken says nothing new.
        let (signals, received) = mpsc::sync_channel(1);
        let watching = Arc::new(Mutex::new(Watching::Events));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let mut state = State {
            source,
            keep,
            events: None,
            watched: BTreeSet::new(),
            relevant: Arc::default(),
            watching: Arc::clone(&watching),
            signals: signals.clone(),
            is_stopped: Arc::clone(&is_stopped),
        };
        let (looked, has_looked) = mpsc::sync_channel(0);
        std::thread::Builder::new()
            .name("source-watch".to_owned())
            .spawn(move || {
                let last = state.look();
                if looked.send(()).is_err() {
                    hint();
                }
                state.run(&received, options, last, hint);
            })?;
        // What changes from now on is noticed, or from the hint on that a late first look gives.
        let _in_time_or_late = has_looked.recv_timeout(FIRST_LOOK).is_ok();
        Ok(Self {
            stop: signals,
            is_stopped,
            watching,
        })
    }

    /// How changes are noticed now.
    pub fn watching(&self) -> Watching {
        let watching = self.watching.lock();
        watching.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watcher {
    /// The thread may be stuck in a source that does not answer: it is told, and not waited for.
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        // Whatever else is in the one place wakes the thread as well.
        let _told_or_awake = self.stop.try_send(Signal::Stop).is_ok();
    }
}

/// What events are about.
#[derive(Debug, Default)]
struct Relevant {
    /// Everything beneath one of these.
    trees: Vec<PathBuf>,
    /// Exactly these.
    paths: BTreeSet<PathBuf>,
}

impl Relevant {
    fn contains(&self, path: &Path) -> bool {
        let beneath = |tree: &PathBuf| {
            path.strip_prefix(tree)
                .is_ok_and(|rest| !rest.components().any(is_git))
        };
        self.paths.contains(path) || self.trees.iter().any(beneath)
    }
}

fn is_git(part: Component<'_>) -> bool {
    part == Component::Normal(".git".as_ref())
}

struct State {
    source: Source,
    keep: Keep,
    events: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    relevant: Arc<Mutex<Relevant>>,
    watching: Arc<Mutex<Watching>>,
    signals: SyncSender<Signal>,
    is_stopped: Arc<AtomicBool>,
}

impl State {
    fn run(
        mut self,
        received: &Receiver<Signal>,
        options: WatchOptions,
        mut last: Option<u64>,
        hint: impl Fn(),
    ) {
        loop {
            let wait = match self.is_polling() {
                true => options.poll_every,
                false => options.scan_every,
            };
            let signal = received.recv_timeout(wait);
            if self.is_stopped.load(Ordering::Acquire) {
                return;
            }
            match signal {
                Ok(Signal::Dirty) => {
                    last = self.look();
                    hint();
                }
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.look();
                    if now != last {
                        last = now;
                        hint();
                    }
                }
            }
        }
    }

    fn is_polling(&self) -> bool {
        let watching = self.watching.lock();
        *watching.unwrap_or_else(PoisonError::into_inner) != Watching::Events
    }

    /// Watches what there is now, and says in which state it is; none if it cannot be read.
    fn look(&mut self) -> Option<u64> {
        let (mut wanted, _) = self.survey();
        for _ in 0..ROUNDS_MAX {
            self.watch(&wanted);
            // A directory that came meanwhile may have been filled before a watch stood on it.
            let (now, state) = self.survey();
            if now.directories == wanted.directories {
                return state;
            }
            wanted = now;
        }
        if self.signals.try_send(Signal::Dirty).is_err() {
            tracing::trace!("another look was due");
        }
        None
    }

    /// What there is to watch now, and a hash of its state.
    fn survey(&self) -> (Watches, Option<u64>) {
        let mut hasher = DefaultHasher::new();
        match &self.source {
            Source::Directory { root, subdirectory } => {
                let listing = walk::list(root, subdirectory, self.keep).ok();
                let watches = directory_watches(root, subdirectory, listing.as_ref());
                let state = listing.map(|listing| {
                    for (path, (_, stat)) in &listing.files {
                        (path, stat).hash(&mut hasher);
                    }
                    hasher.finish()
                });
                (watches, state)
            }
            Source::Git {
                repository,
                reference,
                ..
            } => {
                let objects = Objects::open(repository).ok();
                let common = objects.as_ref().map(Objects::common_directory);
                let watches = git_watches(repository, common);
                let commit = objects.and_then(|it| it.resolve(reference).ok());
                let state = commit.map(|commit| {
                    commit.map(|id| id.to_string()).hash(&mut hasher);
                    hasher.finish()
                });
                (watches, state)
            }
            Source::Remote { .. } => (Watches::default(), None),
        }
    }

    fn watch(&mut self, wanted: &Watches) {
        {
            let mut relevant = self.relevant.lock().unwrap_or_else(PoisonError::into_inner);
            relevant.trees.clone_from(&wanted.trees);
            relevant.paths.clone_from(&wanted.paths);
        }
        if self.is_polling() {
            return;
        }
        if let Err(reason) = self.watch_directories(&wanted.directories) {
            tracing::warn!(%reason, "the source is polled");
            self.events = None;
            self.watched.clear();
            let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
            *watching = Watching::Polling { reason };
        }
    }

    /// Stands the watches; an error is a sentence for the operator.
    fn watch_directories(&mut self, wanted: &BTreeSet<PathBuf>) -> Result<(), String> {
        if wanted.len() > WATCHES_MAX {
            return Err(format!(
                "the source has more than {WATCHES_MAX} directories; put fewer into it for events"
            ));
        }
        if let Some(name) = wanted.iter().find_map(|it| remote_file_system(it)) {
            return Err(format!(
                "the source lies on {name}, which tells no events; keep it on a local disk for them"
            ));
        }
        if self.events.is_none() {
            let watcher = notify::recommended_watcher(self.handler());
            self.events = Some(watcher.map_err(|error| refused(&error))?);
        }
        let Some(events) = &mut self.events else {
            return Ok(());
        };
        for gone in self.watched.difference(wanted) {
            // It may be gone from the disk, and its watch with it.
            if let Err(error) = events.unwatch(gone) {
                tracing::trace!(%error, "a watch was gone");
            }
        }
        let mut watched = BTreeSet::new();
        for directory in wanted {
            // Again also where a watch stands: the directory of this name may be another one now.
            match events.watch(directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(directory.clone());
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        self.watched = watched;
        Ok(())
    }

    fn handler(&self) -> impl Fn(notify::Result<notify::Event>) + Send + 'static {
        let relevant = Arc::clone(&self.relevant);
        let signals = self.signals.clone();
        move |event| {
            let matters = event.is_ok_and(|event| {
                let relevant = relevant.lock().unwrap_or_else(PoisonError::into_inner);
                !is_read(&event.kind)
                    && (event.need_rescan()
                        || event.paths.is_empty()
                        || event.paths.iter().any(|path| relevant.contains(path)))
            });
            // A place that is taken says it already.
            if matters && signals.try_send(Signal::Dirty).is_err() {
                tracing::trace!("a hint was waiting");
            }
        }
    }
}

/// Our own reading makes such events, so they must not lead to reading.
fn is_read(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => false,
    }
}

fn refused(error: &notify::Error) -> String {
    format!(
        "the system refuses a watch ({error}); \
         raise fs.inotify.max_user_watches and fs.inotify.max_user_instances for events"
    )
}

/// The name of the file system of `path` if others may change it without this host's knowledge.
fn remote_file_system(path: &Path) -> Option<&'static str> {
    let magic = rustix::fs::statfs(path).ok()?.f_type;
    match magic {
        0x6969 => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("SMB"),
        0x6573_5546 => Some("FUSE"),
        0x0102_1997 => Some("9P"),
        _ => None,
    }
}

fn is_absent(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => walk::is_gone(error),
        notify::ErrorKind::Generic(_)
        | notify::ErrorKind::WatchNotFound
        | notify::ErrorKind::InvalidConfig(_)
        | notify::ErrorKind::MaxFilesWatch => false,
    }
}

/// What to watch, and which of the events count.
#[derive(Debug, Default)]
struct Watches {
    directories: BTreeSet<PathBuf>,
    trees: Vec<PathBuf>,
    paths: BTreeSet<PathBuf>,
}

impl Watches {
    /// Watches the way to `path`: its parent, and the parent of every link on it, because a watch
    /// is on what a name led to and does not see the name change.
    fn on_the_way_to(path: &Path) -> Self {
        let mut watches = Self::default();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        for step in path.ancestors() {
            let is_link = step
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_symlink());
            if let (true, Some(parent)) = (is_link || step == path, step.parent()) {
                watches.directories.insert(parent.to_owned());
                watches.paths.insert(step.to_owned());
            }
        }
        watches
    }
}

fn directory_watches(root: &Path, subdirectory: &str, listing: Option<&Listing>) -> Watches {
    let mut watches = Watches::on_the_way_to(root);
    if !subdirectory.is_empty() {
        // It may be a link, or made of links, and each name on the way may change.
        let below = root.join(subdirectory);
        let steps = below.ancestors().take_while(|step| *step != root);
        let parents = steps.filter_map(|step| step.parent()?.canonicalize().ok());
        watches.directories.extend(parents);
    }
    if let Ok(real) = root.canonicalize() {
        watches.paths.insert(real.clone());
        watches.trees.push(real);
    }
    let directories = listing.into_iter().flat_map(|it| &it.directories);
    watches.directories.extend(directories.cloned());
    watches
}

fn git_watches(repository: &Path, common: Option<&Path>) -> Watches {
    let mut watches = Watches::on_the_way_to(repository);
    let Some(common) = common.and_then(|it| it.canonicalize().ok()) else {
        return watches;
    };
    for name in ["HEAD", "packed-refs", "refs", "reftable"] {
        watches.paths.insert(common.join(name));
    }
    let references = ["refs", "reftable"].map(|name| common.join(name));
    for tree in references {
        let mut pending = vec![tree.clone()];
        while let Some(directory) = pending.pop() {
            let entries = std::fs::read_dir(&directory)
                .into_iter()
                .flatten()
                .flatten();
            pending.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
            watches.directories.insert(directory);
            if watches.directories.len() > WATCHES_MAX {
                return watches;
            }
        }
        watches.trees.push(tree);
    }
    watches.directories.insert(common);
    watches
}
