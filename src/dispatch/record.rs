//! Where a run's events go: the log first, then transcript and database, in batches.

use std::sync::Arc;

use super::log::{LogError, Record, RunLog};
use super::registry::Shared;
use super::transcript::Fold;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::event::AgentEvent;
use crate::model::id::RunId;
use crate::store::{RunEvent, StoreError};

/// Events that are kept back before they are stored: a run that says much costs few transactions.
const BATCH_MAX: usize = 256;

/// One run's recorder.
pub(super) struct Recorder {
    shared: Arc<Shared>,
    run: RunId,
    log: RunLog,
    fold: Fold,
    next_seq: u64,
    unstored: Vec<RunEvent>,
}

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>, run: RunId, log: RunLog) -> Self {
        Self {
            shared,
            run,
            log,
            fold: Fold::new(),
            next_seq: 1,
            unstored: Vec::new(),
        }
    }

    /// Records one event. What bounds a run or ends it is stored at once, the rest soon.
    pub(super) async fn record(&mut self, event: AgentEvent) -> Result<(), RecordError> {
        let at = self.shared.clock.now();
        let seq = self.next_seq;
        self.next_seq += 1;
        self.log.append(&Record::Event {
            seq,
            at,
            event: event.clone(),
        })?;
        self.fold.push(&event);
        let is_urgent = matches!(event, AgentEvent::Usage { .. } | AgentEvent::Done {});
        self.unstored.push(RunEvent { seq, at, event });
        if is_urgent || self.unstored.len() >= BATCH_MAX {
            self.store().await?;
        }
        Ok(())
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

    /// Writes the log's last line, stores what is left and hands over the fold.
    pub(super) async fn finish(mut self, end: &Record) -> Result<Fold, RecordError> {
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
