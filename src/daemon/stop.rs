//! Stopping: no new runs, time for the live ones, then an end to them, then everything else.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::boot::Daemon;
use super::lock::DataDirLock;
use crate::manifest;
use crate::model::run::EndReason;
use crate::reconcile::Outcome;
use crate::task;

/// How long the source may take for its first answer before it is waited for no longer.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// How long runs that were ended may take to close their rows.
const CLOSE: Duration = Duration::from_secs(20);
/// How long everything else may take.
const REST: Duration = Duration::from_secs(5);
/// How often the live runs are counted while they drain.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What blocking work may still take once everything else has ended.
const LEAVE: Duration = Duration::from_secs(2);

/// How the daemon ended. Blocking work may go on writing, so that the data directory is nobody
/// else's yet: end with [`Ended::leave`].
#[derive(Debug)]
pub struct Ended {
    /// Tasks that did not stop in time; the next start recovers what they left.
    pub stuck: Vec<String>,
    /// Why it ended by itself: our bug.
    pub failure: Option<String>,
    lock: DataDirLock,
}

impl Ended {
    /// Ends the event loop that the daemon ran on. Blocking work can't be told to end: it gets a
    /// moment, and what is stuck ends with the process. So does the lock of the data directory, and
    /// not before.
    pub fn leave(self, runtime: Runtime) {
        runtime.shutdown_timeout(LEAVE);
        std::mem::forget(self.lock);
    }
}

/// The signals that end the daemon. Whoever starts one listens first: a signal that comes while it
/// starts waits here, and does not kill it.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Listens, from now on.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Daemon {
    /// Why there is nothing to serve: no revision was ever accepted, and the source holds none that
    /// could be. None while there is something, or when the source takes long to answer.
    pub async fn unusable_source(&self) -> Option<String> {
        let deadline = tokio::time::Instant::now() + FIRST_ANSWER;
        let is_looked_at = || self.reconcile.as_ref().is_some_and(|it| !it.is_finished());
        while is_looked_at() && tokio::time::Instant::now() < deadline {
            let answer = self.source().answer();
            match answer.attempted {
                Some((_, Outcome::Accepted | Outcome::Held { .. })) => return None,
                Some((revision, Outcome::Rejected { .. })) => {
                    let has_last_good = matches!(self.store.last_good().await, Ok(Some(_)));
                    let why = format!("the first revision {} has faults", revision.short());
                    return (!has_last_good).then_some(why);
                }
                None => {}
            }
            if let Some(failure) = answer.failure {
                let has_last_good = matches!(self.store.last_good().await, Ok(Some(_)));
                return (!has_last_good)
                    .then(|| format!("the source can't be read: {}", failure.message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        None
    }

    /// Serves until the process is told to stop (TERM or INT), then stops in order. The first
    /// signal waits for live runs, a second one does not. It stops by itself, and says so, when
    /// its loop is gone: a daemon that answers and does nothing helps nobody.
    pub async fn serve(mut self, mut signals: StopSignals) -> Ended {
        tokio::select! {
            () = signals.next() => {}
            failure = loop_end(&mut self.reconcile) => {
                tracing::error!(failure, "the loop is gone; stopping");
                let ended = self.stop().await;
                return Ended { failure: Some(failure), ..ended };
            }
        }
        let drain = self.declared_drain().await;
        tracing::info!(?drain, "stopping: nothing new starts, live runs may finish");
        tokio::select! {
            () = self.drained(drain) => {}
            () = signals.next() => {
                tracing::info!("stopping at once");
            }
        }
        self.stop().await
    }

    /// Ends the live runs, to be tried again at the next start, and then everything else.
    pub async fn stop(mut self) -> Ended {
        self.handle.drain();
        self.runs.close(EndReason::DaemonShutdown);
        self.drained(CLOSE).await;
        self.tracker.cancel();
        let stuck = self.tracker.wait(REST).await;
        if !stuck.is_empty() {
            tracing::warn!(?stuck, "did not stop in time");
        }
        #[cfg(feature = "test-support")]
        super::fault::report(&self.store);
        let failure = match &mut self.reconcile {
            Some(task) if task.is_finished() => task.await.err().map(|error| error.to_string()),
            Some(_) | None => None,
        };
        Ended {
            stuck,
            failure,
            lock: self.lock,
        }
    }

    /// How long the accepted revision lets live runs finish.
    async fn declared_drain(&self) -> Duration {
        let stored = self.store.last_good().await.ok().flatten();
        let catalog = stored.and_then(|(_, documents)| manifest::catalog_of(&documents).ok());
        catalog.unwrap_or_default().fleet_spec().drain.duration()
    }

    /// Closes admission and waits for the live runs, at most this long.
    async fn drained(&self, at_most: Duration) {
        self.handle.drain();
        let empty = async {
            while !self.runs.attached().is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // Time is up: whoever is left is ended by the caller.
        drop(tokio::time::timeout(at_most, empty).await);
    }
}

/// How the loop ended, once it has.
async fn loop_end(reconcile: &mut Option<task::Handle<()>>) -> String {
    let Some(task) = reconcile else {
        return std::future::pending().await;
    };
    let end = task.await;
    *reconcile = None;
    match end {
        Ok(()) => "the reconcile loop ended without being told to".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DataDirLock, Ended};
    use std::sync::mpsc;

    #[test]
    fn stuck_work_neither_keeps_the_process_nor_gives_the_lock_away() {
        let dir = tempfile::TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let (release, stuck) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        runtime.spawn_blocking(move || {
            begun.send(()).unwrap();
            stuck.recv().ok();
        });
        has_begun.recv().unwrap();
        let ended = Ended {
            stuck: Vec::new(),
            failure: None,
            lock: DataDirLock::take(dir.path()).unwrap(),
        };
        ended.leave(runtime);
        DataDirLock::take(dir.path()).unwrap_err();
        drop(release);
    }
}
