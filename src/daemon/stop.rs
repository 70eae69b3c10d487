//! Stopping: no new runs, time for the live ones, then an end to them, then everything else.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::boot::Daemon;
use crate::manifest;
use crate::model::run::EndReason;
use crate::reconcile::Outcome;

/// How long the source may take for its first answer before it is waited for no longer.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// How long runs that were ended may take to close their rows.
const CLOSE: Duration = Duration::from_secs(20);
/// How long everything else may take.
const REST: Duration = Duration::from_secs(5);
/// How often the live runs are counted while they drain.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How the daemon ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Tasks that did not stop in time; the next start recovers what they left.
    pub stuck: Vec<String>,
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
        while tokio::time::Instant::now() < deadline {
            let answer = self.source().answer();
            match answer.attempted {
                Some((_, Outcome::Accepted | Outcome::Held)) => return None,
                Some((revision, Outcome::Rejected)) => {
                    let has_last_good = matches!(self.store.last_good().await, Ok(Some(_)));
                    let why = format!("the first revision {} has faults", revision.short());
                    return (!has_last_good).then_some(why);
                }
                None => {}
            }
            if let Some(failure) = answer.failure {
                let has_last_good = matches!(self.store.last_good().await, Ok(Some(_)));
                return (!has_last_good).then(|| format!("the source can't be read: {failure}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        None
    }

    /// Serves until the process is told to stop (TERM or INT), then stops in order. The first
    /// signal waits for live runs, a second one does not.
    pub async fn serve(self, mut signals: StopSignals) -> Ended {
        signals.next().await;
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
    pub async fn stop(self) -> Ended {
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
        Ended { stuck }
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
