//! The task that drives one run: prepare, launch, stream, confirm the end, close.
//!
//! Each step's record comes before the next step's effect: the row before the shim, the shim's
//! identity before it may go on, the log's last line before the row is closed. If the database
//! refuses, the agent is ended and the row left live: the next pass finds a run without a task and
//! recovers it, which is the same road as after a crash.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::classify::Exit;
use super::close::{self, Closing, Ending};
use super::live::Live;
use super::log::{Record, RunLog};
use super::prepare::{Hearing, Prepared, Preparing, Refusal};
use super::record::{RecordError, Recorder};
use super::registry::{DispatchError, Registered, Shared};
use super::stream::Stream;
use crate::adapter::Launch;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::event::AgentEvent;
use crate::model::run::{EndReason, RunOrder};
use crate::process::{StopTarget, stop};
use crate::sandbox::{LaunchPlan, Program, Running, none};
use crate::store::{Effect, StoreError};
use crate::task::{TaskError, blocking};

/// How long a shim that has said its last may take to exit.
const REAP: Duration = Duration::from_secs(1);

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
pub(super) fn applied(effect: Effect) -> Result<(), DriveError> {
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
        let preparing = Preparing {
            shared: &self.shared,
            order: &self.order,
            wake: &record.wake,
        };
        let launched = match preparing.prepare().await? {
            Ok(Prepared { launch, hearing }) => {
                let launched = self.launch(launch, &mut recorder).await?;
                launched.map(|running| (running, hearing))
            }
            Err(refusal) => Err(refusal),
        };
        let ending = match launched {
            Ok((running, hearing)) => {
                crash_point(CrashPoint::AgentReleased);
                applied(
                    store
                        .mark_running(self.order.run, self.shared.clock.now())
                        .await?,
                )?;
                price_table = Some(hearing.ingest.price_table().to_owned());
                self.follow(running, hearing, &mut recorder).await?
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
        launch: Launch,
        recorder: &mut Recorder,
    ) -> Result<Result<Running, Refusal>, DriveError> {
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
        let launched = blocking("launch agent", move || attested.launch(program)).await?;
        Ok(launched.map_err(|error| Refusal::shim(&error)))
    }

    /// Whether somebody stopped the run, or everything, since it was admitted. The last look before
    /// its agent starts, at what also a command line without a daemon can write.
    async fn must_not_start(&self) -> Result<bool, DriveError> {
        let is_asked = self.stopped.borrow().is_some();
        Ok(is_asked || self.shared.stop_on_record(self.order.run).await?.is_some())
    }

    /// Follows the released agent until it is gone.
    async fn follow(
        &self,
        running: Running,
        hearing: Hearing,
        recorder: &mut Recorder,
    ) -> Result<Ending, DriveError> {
        let Running {
            mut shim,
            control,
            decoder,
            stdout,
            stderr,
            child_pid: _,
        } = running;
        let parser = hearing.adapter.parser();
        let stream = Stream::new([stdout, stderr], control, decoder, parser)?;
        let mut live = Live::new(&self.shared, &self.order, recorder, stream, hearing);
        let ending = live.follow(self.stopped.clone()).await?;
        // It has nothing more to say, so it exits now; if it lingers the next start reaps it.
        drop(blocking("reap shim", move || shim.reap(REAP)).await?);
        Ok(ending)
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
