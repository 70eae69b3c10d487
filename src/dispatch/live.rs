//! An agent that was released: what it says is recorded, what people say is told to it, and it is
//! ended when something asks for that, until nothing of it is left to hear.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::close::Ending;
use super::prepare::Hearing;
use super::provider;
use super::reach::Heard;
use super::record::Recorder;
use super::registry::{Shared, Tell};
use super::runner::{DriveError, applied, confirm_gone};
use super::stream::{Said, Stream, next_said};
use crate::model::event::AgentEvent;
use crate::model::id::WakeId;
use crate::model::run::{EndReason, RunOrder};
use crate::model::wake::WakeState;
use crate::prompt;
use crate::store::Effect;

/// How long an event may be kept back from the database.
const STORE_EVERY: Duration = Duration::from_millis(100);
/// How long an agent whose program can be interrupted gets to end its turn, before it is signalled
/// (adapters: 2 to 5 s).
const CANCEL: Duration = Duration::from_secs(3);
/// Characters of a message that the record of its delivery shows; the message is in the
/// conversation.
const TOLD_CHARS_MAX: usize = 200;
/// Pause after a stop that could not be confirmed; it doubles …
const CONFIRM_AGAIN: Duration = Duration::from_secs(1);
/// … up to this.
const CONFIRM_AGAIN_MAX: Duration = Duration::from_secs(30);

/// A released agent.
pub(super) struct Live<'a> {
    shared: &'a Arc<Shared>,
    order: &'a RunOrder,
    recorder: &'a mut Recorder,
    stream: Stream,
    hearing: Hearing,
    /// Messages for it, while it takes any.
    messages: mpsc::Receiver<Tell>,
    /// What it was given to read after its launch, in order: what a wake says, or a word of ours.
    inputs: Vec<Option<WakeId>>,
    /// Why it is being ended.
    end_reason: Option<EndReason>,
    /// Cancelled when its process is gone.
    gone: CancellationToken,
}

impl<'a> Live<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        order: &'a RunOrder,
        recorder: &'a mut Recorder,
        stream: Stream,
        hearing: Hearing,
    ) -> Self {
        let messages = match hearing.adapter.capabilities().is_steerable {
            true => shared.listen(order.run),
            false => mpsc::channel(1).1,
        };
        Self {
            shared,
            order,
            recorder,
            stream,
            hearing,
            messages,
            inputs: Vec::new(),
            end_reason: None,
            gone: CancellationToken::new(),
        }
    }

    /// Goes on until the agent is gone and everything that it said is recorded.
    pub(super) async fn follow(
        &mut self,
        mut stopped: watch::Receiver<Option<EndReason>>,
    ) -> Result<Ending, DriveError> {
        let silence = self.order.silence;
        let mut silent_at = Instant::now() + silence;
        let mut store_tick = interval(STORE_EVERY);
        store_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.stream.is_over() {
            let has_unstored = self.recorder.has_unstored();
            let goes_on = self.end_reason.is_none();
            tokio::select! {
                said = next_said(&mut self.stream, &mut self.hearing.reach) => {
                    silent_at = Instant::now() + silence;
                    self.heard(said).await?;
                }
                Some(tell) = self.messages.recv(), if goes_on => self.tell(tell).await?,
                reason = asked_to_stop(&mut stopped), if goes_on => self.end(reason).await,
                () = sleep_until(silent_at), if goes_on => self.end(EndReason::Silence).await,
                _ = store_tick.tick(), if has_unstored => self.recorder.store().await?,
            }
            if self.stream.has_exited() {
                self.gone.cancel();
                self.listen_no_more();
            }
        }
        self.gone.cancel();
        self.last_words().await?;
        Ok(Ending {
            end_reason: self.end_reason.unwrap_or(EndReason::AgentFinished),
            exit: self.stream.exit(),
        })
    }

    /// Prices, redacts and records what was said, and does what follows from it.
    async fn heard(&mut self, said: Said) -> Result<(), DriveError> {
        let now = self.shared.clock.now();
        let events = match said {
            Said::Agent(events) => self.said(events, now),
            Said::Daemon(heard) => self.noticed(heard, now).await?,
            Said::Refused(inputs) => return self.untell(inputs).await,
        };
        let has_usage = events.iter().any(is_usage);
        self.recorder.record_all(events).await?;
        if self.stream.has_session()
            && let Some(session) = self.hearing.session.take()
        {
            applied(self.shared.store.keep_session(session, now).await?)?;
        }
        if has_usage && self.end_reason.is_none() && has_crossed(self.shared, self.order).await? {
            self.end(EndReason::Budget).await;
        }
        if self.stream.awaits_input() {
            self.go_on().await?;
        }
        Ok(())
    }

    fn said(&mut self, events: Vec<AgentEvent>, now: Timestamp) -> Vec<AgentEvent> {
        let ingest = &mut self.hearing.ingest;
        let events = events.into_iter();
        events.flat_map(|event| ingest.said(event, now)).collect()
    }

    async fn noticed(
        &mut self,
        heard: Heard,
        now: Timestamp,
    ) -> Result<Vec<AgentEvent>, DriveError> {
        Ok(match heard {
            Heard::Model(notice) => {
                provider::heed(self.shared, self.order.run, &notice, now).await?;
                self.hearing.ingest.noticed(notice, now)
            }
            Heard::Tool(note) => self.hearing.ingest.said(note, now),
        })
    }

    /// The agent has ended its turn: it is told what waits, or that there is nothing more. One that is
    /// done is told nothing: what came of it would not count any more.
    async fn go_on(&mut self) -> Result<(), DriveError> {
        let goes_on = self.end_reason.is_none() && !self.recorder.has_done();
        while self.stream.awaits_input() {
            match self.messages.try_recv() {
                Ok(tell) if goes_on => self.tell(tell).await?,
                Ok(_) | Err(_) => {
                    self.listen_no_more();
                    self.stream.close_input().await;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes no message any more. Those that wait are not taken: their wakes are still there.
    fn listen_no_more(&mut self) {
        self.shared.listen_no_more(self.order.run);
        self.messages.close();
        while self.messages.try_recv().is_ok() {}
    }

    /// Tells the agent what a wake says. That the run answers it is on record before it hears it.
    async fn tell(&mut self, tell: Tell) -> Result<(), DriveError> {
        let (store, run, now) = (&self.shared.store, self.order.run, self.shared.clock.now());
        let Some(record) = store.wake(tell.wake).await? else {
            return Ok(());
        };
        if record.state != WakeState::Pending {
            return Ok(());
        }
        let text = prompt::aside(&record.wake);
        let Some(line) = self.hearing.adapter.message(&text) else {
            return Ok(());
        };
        if store.tell_wake(tell.wake, run).await? != Effect::Applied {
            return Ok(());
        }
        self.inputs.push(Some(tell.wake));
        if !self.stream.send_input(line).await {
            return self.untell(1).await;
        }
        let by = record.wake.requested_by.as_deref().unwrap_or("somebody");
        let words: String = record.wake.prompt.chars().take(TOLD_CHARS_MAX).collect();
        let message = format!("told while it works, from {by}: {words}");
        let events = self.said(vec![AgentEvent::Debug { message }], now);
        self.recorder.record_all(events).await?;
        // Who asked may be gone by now.
        let _has_heard = tell.taken.send(()).is_ok();
        Ok(())
    }

    /// The last inputs did not reach the agent: what they said waits again, for a run of its own. It
    /// would not get here either, so that this agent is given nothing more, and ends when its turn
    /// does.
    async fn untell(&mut self, count: u32) -> Result<(), DriveError> {
        self.listen_no_more();
        self.stream.close_input().await;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let kept = self.inputs.len().saturating_sub(count);
        for wake in self.inputs.split_off(kept).into_iter().flatten() {
            let effect = self.shared.store.untell_wake(wake, self.order.run).await?;
            tracing::info!(%wake, ?effect, "a message did not reach its agent, and waits again");
        }
        (self.shared.on_change)("message not taken");
        Ok(())
    }

    /// Begins to end the agent: by a word of its own protocol where there is one, then by signals.
    /// Its output is read on. That we ended it is on record before it can hear of it: an agent may
    /// answer TERM with a last `done`.
    async fn end(&mut self, reason: EndReason) {
        self.end_reason = Some(reason);
        self.listen_no_more();
        let (by, now) = ("homeostat".to_owned(), self.shared.clock.now());
        let run = self.order.run;
        let asked = self.shared.store.request_stop(run, reason, by, now).await;
        if let Err(error) = asked {
            tracing::warn!(%run, error = &error as &dyn std::error::Error, "stop not on record");
        }
        let mut patience = Duration::ZERO;
        if let Some(line) = self.hearing.adapter.interrupt("stop")
            && self.stream.send_input(line).await
        {
            self.inputs.push(None);
            patience = CANCEL;
        }
        // Nothing that it asks for now would be used.
        self.hearing.reach.close_model("the run is being ended");
        let (shared, gone) = (Arc::clone(self.shared), self.gone.clone());
        let end = async move {
            // Either way it ends now.
            drop(tokio::time::timeout(patience, gone.cancelled()).await);
            let (mut grace, mut pause) = (shared.settings.grace, CONFIRM_AGAIN);
            while let Err(error) = confirm_gone(&shared, run, grace).await {
                tracing::warn!(%run, error = &error as &dyn std::error::Error, "stop not confirmed");
                tokio::time::sleep(pause).await;
                (grace, pause) = (Duration::ZERO, (pause * 2).min(CONFIRM_AGAIN_MAX));
            }
        };
        drop(self.shared.tracker.spawn(format!("stop {run}"), end));
    }

    /// Records what is left to say, and who ended it.
    async fn last_words(&mut self) -> Result<(), DriveError> {
        if self.end_reason.is_none() && !self.recorder.has_done() {
            // The emergency stop needs no daemon to end one, and it is set before it does.
            self.end_reason = self.shared.stop_on_record(self.order.run).await?;
        }
        let now = self.shared.clock.now();
        // What the wire told last is told before the agent's end.
        for heard in self.hearing.reach.rest() {
            let events = self.noticed(heard, now).await?;
            self.recorder.record_all(events).await?;
        }
        let end_reason = self.end_reason.unwrap_or(EndReason::AgentFinished);
        let last = self.stream.finish(end_reason);
        let last = self.said(last, now);
        let held_back = self.hearing.ingest.finish(end_reason);
        self.recorder.record_all(held_back).await?;
        Ok(self.recorder.record_all(last).await?)
    }
}

/// Whether a budget that stops runs in flight is spent, what live runs report included.
async fn has_crossed(shared: &Shared, order: &RunOrder) -> Result<bool, DriveError> {
    for guard in order.guards.iter().filter(|guard| guard.stops) {
        let spent = shared.store.spend_so_far(guard.scope, &guard.window);
        if spent.await?.of(guard.ceiling.meter()).count() >= guard.ceiling.count() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The reason for which the run is asked to stop; never, when nobody can ask any more.
async fn asked_to_stop(stopped: &mut watch::Receiver<Option<EndReason>>) -> EndReason {
    match stopped
        .wait_for(Option::is_some)
        .await
        .map(|reason| *reason)
    {
        Ok(Some(reason)) => reason,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

const fn is_usage(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Usage { .. })
}
