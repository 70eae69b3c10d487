//! The task that drives one run: prepare, launch, stream, confirm the end, close.
//!
//! Each step's record comes before the next step's effect: the row before the shim, the shim's
//! identity before it may go on, the log's last line before the row is closed. If the database
//! refuses, the agent is ended and the row left live: the next pass finds a run without a task and
//! recovers it, which is the same road as after a crash.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::classify::Exit;
use super::close::{self, Closing, Ending, RunDirs};
use super::ingest::{Ingest, Metering};
use super::log::{Record, RunLog};
use super::model::{self, ModelAccess};
use super::provider;
use super::record::{RecordError, Recorder};
use super::registry::{DispatchError, Registered, Shared};
use super::stream::{Said, Stream, next_said};
use crate::adapter::{self, Endpoint, EventParser, Launch, LaunchSpec, Session};
use crate::model::chain::chain;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::event::AgentEvent;
use crate::model::run::{EndReason, RunOrder};
use crate::model::wake::Wake;
use crate::price::PriceTable;
use crate::process::{StopTarget, estop, stop};
use crate::prompt::{self, HistoryMessage, PromptInput};
use crate::sandbox::{LaunchPlan, Program, Running, none};
use crate::store::{Effect, StoreError};
use crate::task::{TaskError, blocking};

/// How long an event may be kept back from the database.
const STORE_EVERY: Duration = Duration::from_millis(100);
/// Messages that a prompt is made from; what does not fit in its window is left out anyway.
const HISTORY_MESSAGES_MAX: u32 = 500;
/// How long a shim that has said its last may take to exit.
const REAP: Duration = Duration::from_secs(1);
/// Pause after a stop that could not be confirmed; it doubles …
const CONFIRM_AGAIN: Duration = Duration::from_secs(1);
/// … up to this.
const CONFIRM_AGAIN_MAX: Duration = Duration::from_secs(30);

/// Drives the run until its row is closed.
pub(super) async fn drive(
    shared: Arc<Shared>,
    order: RunOrder,
    stopped: watch::Receiver<Option<EndReason>>,
    registered: Registered,
) {
    let run = order.run;
    let mut task = RunTask {
        shared: Arc::clone(&shared),
        order,
        stopped,
    };
    if let Err(error) = task.run().await {
        // The row stays live; without its task it is an orphan, and the next pass recovers it.
        tracing::error!(%run, error = &error as &dyn std::error::Error, "run left to recovery");
    }
    drop(registered);
}

/// Why a run's task gave up before its row was closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriveError {
    #[error("record the run")]
    Record(#[from] RecordError),
    #[error("finish the run")]
    Dispatch(#[from] DispatchError),
    #[error("find the wake that the run claimed")]
    NoWake,
    #[error("go on with a run whose record has moved on: {0}")]
    Stale(String),
}

/// Goes on only if the row is still this task's to write.
fn applied(effect: Effect) -> Result<(), DriveError> {
    match effect {
        Effect::Applied | Effect::Unchanged => Ok(()),
        Effect::Stale(what) => Err(DriveError::Stale(what)),
    }
}

impl From<StoreError> for DriveError {
    fn from(error: StoreError) -> Self {
        Self::Dispatch(error.into())
    }
}

impl From<TaskError> for DriveError {
    fn from(error: TaskError) -> Self {
        Self::Dispatch(error.into())
    }
}

/// Why an agent was not started.
struct Refusal {
    code: &'static str,
    message: String,
}

impl Refusal {
    fn directory(error: &std::io::Error) -> Self {
        Self {
            code: "run_directory",
            message: chain(error),
        }
    }

    fn shim(error: &none::LaunchError) -> Self {
        Self {
            code: "launch",
            message: chain(error),
        }
    }
}

/// What a run is launched with.
struct Prepared {
    launch: Launch,
    parser: Box<dyn EventParser>,
    access: Option<ModelAccess>,
    ingest: Ingest,
}

/// A run whose agent was released.
struct Launched {
    running: Running,
    parser: Box<dyn EventParser>,
    access: Option<ModelAccess>,
    ingest: Ingest,
}

struct RunTask {
    shared: Arc<Shared>,
    order: RunOrder,
    stopped: watch::Receiver<Option<EndReason>>,
}

impl RunTask {
    async fn run(&mut self) -> Result<(), DriveError> {
        let store = &self.shared.store;
        let record = store.wake(self.order.wake).await?;
        let Some(record) = record else {
            return Err(DriveError::NoWake);
        };
        let mut recorder = self.open_log().await?;
        let before = close::inspect_trees(&self.shared, &self.order.trees).await?;
        applied(store.begin_trees(self.order.run, before.clone()).await?)?;
        let mut price_table = None;
        let ending = match self.launch(&record.wake, &mut recorder).await? {
            Ok(launched) => {
                crash_point(CrashPoint::AgentReleased);
                applied(
                    store
                        .mark_running(self.order.run, self.shared.clock.now())
                        .await?,
                )?;
                price_table = Some(launched.ingest.price_table().to_owned());
                self.stream(launched, &mut recorder).await?
            }
            Err(Refusal { code, message }) => {
                let event = AgentEvent::Error {
                    message,
                    code: Some(code.to_owned()),
                };
                recorder.record(event).await?;
                let asked = *self.stopped.borrow();
                let end_reason = asked.unwrap_or(EndReason::LaunchFailed);
                Ending {
                    end_reason,
                    exit: Exit::default(),
                }
            }
        };
        confirm_gone(&self.shared, self.order.run, Duration::ZERO).await?;
        crash_point(CrashPoint::ProcessGone);
        let end = Record::End {
            code: ending.exit.code,
            signal: ending.exit.signal,
            end_reason: ending.end_reason,
            at: self.shared.clock.now(),
        };
        let closing = Closing {
            run: self.order.run,
            ending,
            fold: recorder.finish(&end).await?,
            trees: &self.order.trees,
            before: &before,
            silence: self.order.silence,
            price_table,
        };
        Ok(close::close(&self.shared, closing).await?)
    }

    async fn open_log(&self) -> Result<Recorder, DriveError> {
        let (order, path) = (&self.order, self.shared.log_path(self.order.run));
        let start = Record::Start {
            version: RunLog::VERSION,
            run_id: order.run,
            agent_id: order.agent,
            workspace_id: order.workspace,
            space_id: order.space,
            conversation_id: order.conversation,
            adapter: order.adapter_name.clone(),
            silence_secs: order.silence.as_secs(),
            at: self.shared.clock.now(),
        };
        let log = blocking("create run log", move || RunLog::create(&path, &start)).await?;
        let log = log.map_err(RecordError::Log)?;
        Ok(Recorder::new(Arc::clone(&self.shared), order.run, log))
    }

    /// Starts the agent. The inner error is why it could not be started.
    async fn launch(
        &self,
        wake: &Wake,
        recorder: &mut Recorder,
    ) -> Result<Result<Launched, Refusal>, DriveError> {
        let Prepared {
            launch,
            parser,
            access,
            ingest,
        } = match self.prepare(wake).await? {
            Ok(prepared) => prepared,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (settings, run) = (&self.shared.settings, self.order.run);
        let plan = LaunchPlan {
            run,
            identity: settings.identity,
            cgroup: settings.layers.cgroup_of(run),
            grace: settings.grace,
        };
        let program = settings.program.clone();
        let started = match blocking("start shim", move || none::start(&program)).await? {
            Ok(started) => started,
            Err(error) => return Ok(Err(Refusal::shim(&error))),
        };
        crash_point(CrashPoint::ShimSpawned);
        let cgroup = plan
            .cgroup
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned());
        let identity = started.identity().clone();
        applied(
            self.shared
                .store
                .store_identity(run, identity, cgroup)
                .await?,
        )?;
        crash_point(CrashPoint::IdentityStored);
        let attested = match blocking("prepare shim", move || started.prepare(&plan)).await? {
            Ok(attested) => attested,
            Err(error) => return Ok(Err(Refusal::shim(&error))),
        };
        recorder
            .record(AgentEvent::Debug {
                message: format!("launch: {}", settings.sandbox),
            })
            .await?;
        if self.must_not_start().await? {
            let message = "it was stopped before it started".to_owned();
            return Ok(Err(Refusal {
                code: "stopped",
                message,
            }));
        }
        let Launch {
            argv,
            env,
            stdin,
            keeps_stdin,
            files: _,
        } = launch;
        let program = Program {
            argv,
            env,
            cwd: self.order.cwd.clone().into(),
            stdin,
            keeps_stdin,
        };
        Ok(
            match blocking("launch agent", move || attested.launch(program)).await? {
                Ok(running) => Ok(Launched {
                    running,
                    parser,
                    access,
                    ingest,
                }),
                Err(error) => Err(Refusal::shim(&error)),
            },
        )
    }

    /// Whether somebody stopped the run, or everything, since it was admitted. The last look before
    /// its agent starts, at what also a command line without a daemon can write.
    async fn must_not_start(&self) -> Result<bool, DriveError> {
        let is_asked = self.stopped.borrow().is_some();
        Ok(is_asked || self.stop_on_record().await?.is_some())
    }

    /// The stop that is on record for the run, or for everything.
    async fn stop_on_record(&self) -> Result<Option<EndReason>, DriveError> {
        if let Some(asked) = self.shared.store.stop_requested(self.order.run).await? {
            return Ok(Some(asked.reason));
        }
        let data_dir = self.shared.settings.data_dir.clone();
        let stop = blocking("read estop", move || estop::read(&data_dir)).await?;
        let stop = stop.map_err(DispatchError::Estop)?;
        Ok(stop.map(|_set| EndReason::Estop))
    }

    /// Resolves prompt, environment and program, before any process starts.
    async fn prepare(&self, wake: &Wake) -> Result<Result<Prepared, Refusal>, DriveError> {
        let (order, settings) = (&self.order, &self.shared.settings);
        let access = match self.open_model(wake).await? {
            Ok(access) => access,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let ingest = self.ingest(wake, access.as_ref()).await?;
        let prompt = self.prompt(wake).await?;
        let (path, user) = (self.shared.run_dir(order.run), settings.user());
        let made = blocking("make run directory", move || {
            close::make_run_dir(&path, user)
        })
        .await?;
        let directories = match made {
            Ok(directories) => directories,
            Err(error) => return Ok(Err(Refusal::directory(&error))),
        };
        let RunDirs { home, tmp, config } = &directories;
        let state = home.join(".agent");
        let adapter = adapter::for_spec(&order.adapter);
        let spec = LaunchSpec {
            prompt: &prompt,
            search_path: &settings.path,
            home: &home.to_string_lossy(),
            tmp: &tmp.to_string_lossy(),
            user: "homeostat",
            time_zone: "UTC",
            git_env: &prompt::git_environment(&order.identity, wake.requested_by.as_deref()),
            caller_env: &wake.env,
            wake_env: &prompt::wake_environment(order.run, wake),
            model: order.model.as_deref(),
            effort: order.effort,
            endpoint: access.as_ref().map(|access| Endpoint {
                base_url: access.gateway.base_url(),
                key: &access.run_key,
            }),
            session: Session::New(order.run.uuid()),
            config_dir: &config.to_string_lossy(),
            state_dir: &state.to_string_lossy(),
            mcp_servers: &[],
        };
        let launch = match adapter.launch(&spec) {
            Ok(launch) => launch,
            Err(error) => {
                return Ok(Err(Refusal {
                    code: error.code(),
                    message: format!("{}; {}", chain(&error), error.remedy()),
                }));
            }
        };
        let (files, config) = (launch.files.clone(), config.clone());
        let written = blocking("write agent's configuration", move || {
            close::write_config(&config, &files, user)
        });
        Ok(match written.await? {
            Ok(()) => Ok(Prepared {
                parser: adapter.parser(),
                launch,
                access,
                ingest,
            }),
            Err(error) => Err(Refusal::directory(&error)),
        })
    }

    /// Opens the run's way to its model, and records whose key pays.
    async fn open_model(
        &self,
        wake: &Wake,
    ) -> Result<Result<Option<ModelAccess>, Refusal>, DriveError> {
        let access = match model::open(&self.shared, &self.order, wake).await? {
            Ok(access) => access,
            Err(error) => {
                return Ok(Err(Refusal {
                    code: error.code(),
                    message: chain(&error),
                }));
            }
        };
        if let Some(access) = &access {
            let (run, source) = (self.order.run, access.source.clone());
            let is_shared = access.is_shared;
            applied(
                self.shared
                    .store
                    .store_credential_source(run, source, is_shared)
                    .await?,
            )?;
        }
        Ok(Ok(access))
    }

    /// The stage that prices and redacts what the run says.
    async fn ingest(
        &self,
        wake: &Wake,
        access: Option<&ModelAccess>,
    ) -> Result<Ingest, DriveError> {
        let mut secrets: Vec<_> = model::secrets_of(&self.order.adapter.env)
            .chain(model::secrets_of(&wake.env))
            .collect();
        let metering = match access {
            Some(access) => {
                secrets.extend(access.secrets.iter().cloned());
                Metering::Metered
            }
            None => Metering::Reported,
        };
        let overrides = self.order.adapter.prices.clone();
        let prices = if overrides.is_empty() {
            Arc::clone(&self.shared.settings.prices)
        } else {
            let table = move || PriceTable::embedded(&overrides);
            Arc::new(blocking("make price table", table).await?)
        };
        Ok(Ingest::new(&secrets, prices, metering))
    }

    /// Makes the prompt and stores it: what is stored is exactly what is sent.
    async fn prompt(&self, wake: &Wake) -> Result<String, DriveError> {
        let store = &self.shared.store;
        let history = store
            .history(self.order.conversation, HISTORY_MESSAGES_MAX)
            .await?;
        let messages: Vec<_> = history
            .messages
            .into_iter()
            .map(|message| HistoryMessage {
                id: message.id,
                author: message.author.name().to_owned(),
                at: message.created_at,
                text: message.text,
            })
            .collect();
        let input = PromptInput {
            order: &self.order,
            wake,
            history: &messages,
            older: history.older,
            tools: &[],
            facts: &[],
        };
        let prompt = prompt::assemble(&input).render();
        applied(store.store_prompt(self.order.run, prompt.clone()).await?)?;
        Ok(prompt)
    }

    /// Records what the agent says until it is gone.
    async fn stream(
        &mut self,
        launched: Launched,
        recorder: &mut Recorder,
    ) -> Result<Ending, DriveError> {
        let Launched {
            running,
            parser,
            mut access,
            mut ingest,
        } = launched;
        let Running {
            mut shim,
            control,
            decoder,
            stdout,
            stderr,
            child_pid: _,
        } = running;
        let mut stream = Stream::new([stdout, stderr], control, decoder, parser)?;
        let silence = self.order.silence;
        let mut silent_at = Instant::now() + silence;
        let mut end_reason = None;
        let mut store_tick = interval(STORE_EVERY);
        store_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stream.is_over() {
            let has_unstored = recorder.has_unstored();
            let mut stopped = self.stopped.clone();
            tokio::select! {
                said = next_said(&mut stream, access.as_mut()) => {
                    silent_at = Instant::now() + silence;
                    let has_usage = self.record(said, &mut ingest, recorder).await?;
                    if has_usage && end_reason.is_none() && self.has_crossed().await? {
                        if let Some(access) = &access {
                            access.close("the budget of this run is spent");
                        }
                        end_reason = Some(EndReason::Budget);
                        self.end_in_background(EndReason::Budget);
                    }
                }
                reason = asked_to_stop(&mut stopped), if end_reason.is_none() => {
                    end_reason = Some(reason);
                    self.end_in_background(reason);
                }
                () = sleep_until(silent_at), if end_reason.is_none() => {
                    end_reason = Some(EndReason::Silence);
                    self.end_in_background(EndReason::Silence);
                }
                _ = store_tick.tick(), if has_unstored => recorder.store().await?,
            }
        }
        let exit = stream.exit();
        let end_reason = match end_reason {
            Some(reason) => reason,
            None if recorder.has_done() => EndReason::AgentFinished,
            None => self.unasked_end().await?,
        };
        let now = self.shared.clock.now();
        // What the wire told last is told before the agent's end.
        while let Some(notice) = access
            .as_mut()
            .and_then(|access| access.notices.try_recv().ok())
        {
            provider::heed(&self.shared, self.order.run, &notice, now).await?;
            recorder.record_all(ingest.noticed(notice, now)).await?;
        }
        let last = stream.finish(end_reason);
        let last: Vec<_> = last
            .into_iter()
            .flat_map(|event| ingest.said(event, now))
            .collect();
        recorder.record_all(ingest.finish(end_reason)).await?;
        recorder.record_all(last).await?;
        // It has nothing more to say, so it exits now; if it lingers the next start reaps it.
        drop(blocking("reap shim", move || shim.reap(REAP)).await?);
        Ok(Ending { end_reason, exit })
    }

    /// Prices, redacts and records what was said; whether it tells of tokens.
    async fn record(
        &self,
        said: Said,
        ingest: &mut Ingest,
        recorder: &mut Recorder,
    ) -> Result<bool, DriveError> {
        let now = self.shared.clock.now();
        let events: Vec<_> = match said {
            Said::Agent(events) => events
                .into_iter()
                .flat_map(|event| ingest.said(event, now))
                .collect(),
            Said::Gateway(notice) => {
                provider::heed(&self.shared, self.order.run, &notice, now).await?;
                ingest.noticed(notice, now)
            }
        };
        let has_usage = events.iter().any(is_usage);
        recorder.record_all(events).await?;
        Ok(has_usage)
    }

    /// Whether a budget that stops runs in flight is spent, what live runs report included.
    async fn has_crossed(&self) -> Result<bool, DriveError> {
        for guard in self.order.guards.iter().filter(|guard| guard.stops) {
            let spent = self
                .shared
                .store
                .spend_so_far(guard.scope, &guard.window)
                .await?;
            if spent.of(guard.ceiling.meter()).count() >= guard.ceiling.count() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Who ended the agent, when it was not this task. The emergency stop needs no daemon to end one,
    /// and it is set before it does.
    async fn unasked_end(&self) -> Result<EndReason, DriveError> {
        Ok(self
            .stop_on_record()
            .await?
            .unwrap_or(EndReason::AgentFinished))
    }

    /// Ends the agent, politely first, while its output is read on. That we ended it is on record
    /// before it can hear of it: an agent may answer TERM with a last `done`.
    fn end_in_background(&self, reason: EndReason) {
        let (shared, run) = (Arc::clone(&self.shared), self.order.run);
        let end = async move {
            let (by, now) = ("homeostat".to_owned(), shared.clock.now());
            let asked = shared.store.request_stop(run, reason, by, now).await;
            if let Err(error) = asked {
                tracing::warn!(%run, error = &error as &dyn std::error::Error, "stop not on record");
            }
            let (mut grace, mut pause) = (shared.settings.grace, CONFIRM_AGAIN);
            while let Err(error) = confirm_gone(&shared, run, grace).await {
                tracing::warn!(%run, error = &error as &dyn std::error::Error, "stop not confirmed");
                tokio::time::sleep(pause).await;
                (grace, pause) = (Duration::ZERO, (pause * 2).min(CONFIRM_AGAIN_MAX));
            }
        };
        drop(self.shared.tracker.spawn(format!("stop {run}"), end));
    }
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

/// Ends what is left of the run and confirms that nothing is.
pub(super) async fn confirm_gone(
    shared: &Shared,
    run: crate::model::id::RunId,
    grace: Duration,
) -> Result<(), DispatchError> {
    let process = shared.store.process_of(run).await?;
    let (identity, cgroup) = process
        .map(|process| (process.identity, process.cgroup))
        .unwrap_or_default();
    let target = StopTarget {
        identity,
        run,
        cgroup: cgroup.map(Into::into),
    };
    let report = blocking("stop run", move || stop(&target, grace)).await??;
    if !report.killed.is_empty() {
        tracing::info!(%run, killed = report.killed.len(), "killed what was left of the run");
    }
    Ok(())
}

const fn is_usage(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Usage { .. })
}
