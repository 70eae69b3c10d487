//! Recovery of a run that no task drives: the daemon that drove it died, or its task gave up.
//!
//! First nothing of it may be alive, confirmed. Only then is its row closed: from the log's last
//! line if the agent had ended before, else as lost.

use std::sync::Arc;
use std::time::Duration;

use super::classify::Exit;
use super::close::{self, Closing, Ending};
use super::log::{LogReader, Record};
use super::registry::{DispatchError, Runs};
use super::runner::confirm_gone;
use super::transcript::Fold;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::RunId;
use crate::model::run::EndReason;
use crate::store::RunEvent;
use crate::task::blocking;

/// What an orphan gets between TERM and KILL: its work is lost already.
const GRACE: Duration = Duration::from_secs(1);

impl Runs {
    /// Ends what is left of the run, confirms it, and closes its row. Twice is as good as once.
    ///
    /// # Errors
    /// When the end could not be confirmed or recorded; the row is live then, to be tried again.
    pub async fn reap(&self, run: RunId) -> Result<(), DispatchError> {
        let shared = Arc::clone(&self.shared);
        confirm_gone(&shared, run, GRACE).await?;
        crash_point(CrashPoint::OrphanKilled);
        let Some(beginning) = shared.store.beginning_of(run).await? else {
            return Ok(());
        };
        let path = shared.log_path(run);
        let mut reader = blocking("open run log", move || LogReader::open(path)).await??;
        let mut logged = Logged::default();
        loop {
            let batch;
            (reader, batch) = blocking("read run log", move || {
                let batch = reader.next_batch();
                (reader, batch)
            })
            .await?;
            let batch = batch?;
            if batch.is_empty() {
                break;
            }
            let events = logged.take(batch);
            shared.store.append_events(run, events).await?;
        }
        let ending = logged.ending.unwrap_or_else(|| Ending {
            end_reason: beginning.stop_requested.unwrap_or(EndReason::DaemonLost),
            exit: Exit::default(),
        });
        let closing = Closing {
            run,
            ending,
            fold: logged.fold,
            trees: &beginning.trees,
            before: &beginning.before,
            silence: logged.silence,
            price_table: None,
        };
        close::close(&shared, closing).await
    }
}

/// What a run's log says.
#[derive(Default)]
struct Logged {
    fold: Fold,
    ending: Option<Ending>,
    silence: Duration,
}

impl Logged {
    /// Takes the next lines in; the events among them are to be stored.
    fn take(&mut self, records: Vec<Record>) -> Vec<RunEvent> {
        let mut events = Vec::new();
        for record in records {
            match record {
                Record::Start { silence_secs, .. } => {
                    self.silence = Duration::from_secs(silence_secs);
                }
                Record::Event { seq, at, event } => {
                    self.fold.push(&event);
                    events.push(RunEvent { seq, at, event });
                }
                Record::End {
                    code,
                    signal,
                    end_reason,
                    ..
                } => {
                    self.ending = Some(Ending {
                        end_reason,
                        exit: Exit { code, signal },
                    });
                }
            }
        }
        events
    }
}
