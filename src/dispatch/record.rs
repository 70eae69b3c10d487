//! Where a run's events go: the log first, then transcript and database, in batches.

use std::sync::Arc;

use super::allowance::Allowance;
use super::log::{LogError, Record, RunLog};
use super::registry::Shared;
use super::transcript::Fold;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::event::AgentEvent;
use crate::model::id::RunId;
use crate::store::{RunEvent, StoreError};

/// Events that are kept back before they are stored: a run that says much costs few transactions.
const BATCH_MAX: usize = 256;
/// The same in bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// One run's recorder.
pub(super) struct Recorder {
    shared: Arc<Shared>,
    run: RunId,
    log: RunLog,
    fold: Fold,
    allowance: Allowance,
    next_seq: u64,
    unstored: Vec<RunEvent>,
    unstored_bytes: usize,
}

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>, run: RunId, log: RunLog) -> Self {
        Self {
            shared,
            run,
            log,
            fold: Fold::new(),
            allowance: Allowance::new(),
            next_seq: 1,
            unstored: Vec::new(),
            unstored_bytes: 0,
        }
    }

    /// Records one event, unless the run has said too much. What bounds a run or ends it is stored
    /// at once, the rest soon.
    pub(super) async fn record(&mut self, event: AgentEvent) -> Result<(), RecordError> {
        let Some(share) = self.allowance.share_for(&event) else {
            self.allowance.note_dropped(&event);
            if matches!(event, AgentEvent::Usage { .. }) {
                // What it costs is known all the same, as long as this daemon lives.
                self.fold.push(&event);
            }
            return Ok(());
        };
        let is_urgent = matches!(event, AgentEvent::Usage { .. } | AgentEvent::Done {});
        let bytes = self.append(event)?;
        self.allowance.spend(share, bytes);
        let is_full = self.unstored.len() >= BATCH_MAX || self.unstored_bytes >= BATCH_BYTES_MAX;
        if is_urgent || is_full {
            self.store().await?;
        }
        Ok(())
    }

    /// Logs and folds one event. How many bytes it took in the log.
    fn append(&mut self, event: AgentEvent) -> Result<usize, RecordError> {
        let at = self.shared.clock.now();
        let seq = self.next_seq;
        self.next_seq += 1;
        let bytes = self.log.append(&Record::Event {
            seq,
            at,
            event: event.clone(),
        })?;
        self.fold.push(&event);
        self.unstored.push(RunEvent { seq, at, event });
        self.unstored_bytes += bytes;
        Ok(bytes)
    }

    /// Records events in their order.
    pub(super) async fn record_all(&mut self, events: Vec<AgentEvent>) -> Result<(), RecordError> {
        for event in events {
            self.record(event).await?;
        }
        Ok(())
    }

    /// Stores what is kept back.
    pub(super) async fn store(&mut self) -> Result<(), RecordError> {
        if self.unstored.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.unstored);
        self.unstored_bytes = 0;
        self.shared.store.append_events(self.run, events).await?;
        crash_point(CrashPoint::EventStored);
        Ok(())
    }

    /// Whether the agent said that it is done.
    pub(super) const fn has_done(&self) -> bool {
        self.fold.has_done()
    }

    /// Whether something is kept back.
    pub(super) fn has_unstored(&self) -> bool {
        !self.unstored.is_empty()
    }

    /// Says what was dropped, stores what is left, writes the log's last line and hands over the
    /// fold.
    pub(super) async fn finish(mut self, end: &Record) -> Result<Fold, RecordError> {
        if let Some(word) = self.allowance.last_word() {
            self.append(word)?;
        }
        self.store().await?;
        self.log.finish(end)?;
        Ok(self.fold)
    }
}

/// An event that could not be recorded: the run is ended rather than go on unseen.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("log an event")]
    Log(#[from] LogError),
    #[error("store an event")]
    Store(#[from] StoreError),
    #[error("listen to the agent")]
    Listen(#[source] std::io::Error),
}
