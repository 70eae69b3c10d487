//! One turn of an agent's program, as in a run: under a shim, as the run's user, through a gateway;
//! but in a directory that goes away, with a key that is none, and with a model of our own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::model::{ANSWER, INPUT, Model, OUTPUT};
use super::{AdapterProbe, Scratch};
use crate::adapter::lines::Lines;
use crate::adapter::{Endpoint, EventParser, Launch, LaunchError, LaunchSpec, Session, for_spec};
use crate::clock::{Clock, IdSource, RandomIds, SystemClock};
use crate::credential::{Scheme, Secret};
use crate::gateway::{
    ANTHROPIC_PATHS, Client, GatewayError, GatewaySpec, KeyError, ModelGateway, Notice, RunToken,
    Timeouts, TokenError, UpstreamKey,
};
use crate::model::event::AgentEvent;
use crate::model::id::RunId;
use crate::model::process::Exit;
use crate::model::run::EndReason;
use crate::model::spec::AdapterSpec;
use crate::process::control::{self, ControlError, Order};
use crate::process::table::RUN_MARK;
use crate::process::{StopError, StopTarget, stop};
use crate::sandbox::{self, LaunchPlan, Program, Running, none};
use crate::task::{TaskError, Tracker, blocking};

/// What a turn may take.
const TURN_MAX: Duration = Duration::from_secs(90);
/// What tasks get to end.
const END: Duration = Duration::from_secs(2);
/// Notices that wait to be read: a turn has few.
const NOTICES_MAX: usize = 64;
/// What the agent is told.
const PROMPT: &str = "Say one sentence. Use no tool.";

/// How the turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Smoke {
    /// From its start until it asked its model, in milliseconds.
    pub start_ms: u64,
    /// From its start to its end, in milliseconds.
    pub turn_ms: u64,
    /// What the gateway metered.
    pub input_tokens: u64,
    /// What the gateway metered.
    pub output_tokens: u64,
}

/// Why a turn went wrong.
#[derive(Debug, Error)]
pub enum SmokeError {
    /// Its program is not to be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// It did not start.
    #[error("start its program")]
    Start(#[from] sandbox::LaunchError),
    /// Its configuration, its model or its pipes could not be made or used.
    #[error("talk to it")]
    Talk(#[from] io::Error),
    /// It could not be told to end.
    #[error("tell it to end")]
    Control(#[from] ControlError),
    /// There is no way to its model.
    #[error("start its gateway")]
    Gateway(#[from] GatewayError),
    /// The same.
    #[error("start its gateway")]
    Token(#[from] TokenError),
    /// The same.
    #[error("start its gateway")]
    Key(#[from] KeyError),
    /// It took too long.
    #[error("see its end within {} s", TURN_MAX.as_secs())]
    Slow,
    /// It could not be ended.
    #[error("end it")]
    Stop(#[from] StopError),
    /// It says that something went wrong.
    #[error("get an answer, as it says: {0}")]
    Said(String),
    /// It never asked its model.
    #[error("see it ask its model")]
    Mute,
    /// It did not hand on what its model said.
    #[error("get the model's answer out of it")]
    NoAnswer,
    /// What the gateway metered is not what the model said.
    #[error("meter it: {metered} tokens came over the wire, and {used} were used")]
    Unmetered {
        /// The sum of all tokens.
        metered: u64,
        /// The sum of all tokens.
        used: u64,
    },
    /// A step panicked.
    #[error("finish a step")]
    Task(#[from] TaskError),
}

/// Has the Adapter's program take one turn.
pub(super) async fn turn(
    probe: &AdapterProbe<'_>,
    spec: &AdapterSpec,
    scratch: &Scratch,
) -> Result<Smoke, SmokeError> {
    let tracker = Tracker::new();
    let took = Turn::new(probe, spec, scratch, &tracker).await;
    let went = match took {
        Ok(turn) => turn.take().await,
        Err(error) => Err(error),
    };
    tracker.cancel();
    drop(tracker.wait(END).await);
    went
}

/// A turn that is about to begin.
struct Turn {
    model: Model,
    gateway: ModelGateway,
    notices: mpsc::Receiver<Notice>,
    parser: Box<dyn EventParser>,
    program: Program,
    plan: LaunchPlan,
    shim: std::path::PathBuf,
}

impl Turn {
    async fn new(
        probe: &AdapterProbe<'_>,
        spec: &AdapterSpec,
        scratch: &Scratch,
        tracker: &Tracker,
    ) -> Result<Self, SmokeError> {
        let model = Model::start(tracker).await?;
        let key = format!("{}{}", RandomIds.mint().simple(), RandomIds.mint().simple());
        let (sink, notices) = mpsc::channel(NOTICES_MAX);
        let no_key = Secret::new("no-key".to_owned());
        let gateway_spec = GatewaySpec {
            token: RunToken::new(key.clone())?,
            upstream: model.base_url(),
            key: UpstreamKey::new(&no_key, Scheme::ApiKey)?,
            timeouts: Timeouts::default(),
            paths: ANTHROPIC_PATHS,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = Client::new(tracker)?;
        let gateway = ModelGateway::start(listener, gateway_spec, client, sink, tracker)?;
        let run = RunId::from_uuid(RandomIds.mint());
        let adapter = for_spec(spec);
        let endpoint = Endpoint {
            base_url: gateway.base_url(),
            key: &key,
        };
        let launch = launch(probe, scratch, run, endpoint, adapter.as_ref())?;
        Ok(Self {
            parser: adapter.parser(),
            program: Program {
                argv: launch.argv,
                env: launch.env,
                cwd: scratch.path("work"),
                stdin: launch.stdin,
                keeps_stdin: launch.keeps_stdin,
            },
            plan: LaunchPlan {
                run,
                identity: probe.identity,
                cgroup: None,
                grace: Duration::ZERO,
            },
            shim: probe.shim.to_owned(),
            model,
            gateway,
            notices,
        })
    }

    async fn take(self) -> Result<Smoke, SmokeError> {
        let Self {
            model,
            gateway,
            mut notices,
            parser,
            program,
            plan,
            shim,
        } = self;
        let run = plan.run;
        let begun = SystemClock.monotonic();
        let started = blocking("launch", move || {
            let started = none::start(&shim)?;
            let target = StopTarget {
                identity: Some(started.identity().clone()),
                run,
                cgroup: None,
            };
            let running = started.prepare(&plan).and_then(|it| it.launch(program));
            Ok::<_, sandbox::LaunchError>((running, target))
        });
        let (running, target) = started.await??;
        let driven = match running {
            Ok(running) => timeout(TURN_MAX, drive(running, parser)).await,
            Err(error) => Ok(Err(error.into())),
        };
        let ended = SystemClock.monotonic();
        drop(blocking("stop", move || stop(&target, Duration::ZERO)).await??);
        let events = driven.map_err(|_elapsed| SmokeError::Slow)??;
        drop(gateway);
        let (mut input_tokens, mut output_tokens) = (0, 0);
        while let Ok(Some(notice)) = timeout(END, notices.recv()).await {
            if let Notice::Usage(metered) = notice {
                input_tokens += metered.usage.input_tokens;
                output_tokens += metered.usage.output_tokens;
            }
        }
        judge(&events, &model, input_tokens + output_tokens)?;
        let first = model.first_asked().ok_or(SmokeError::Mute)?;
        let ms = |until: Duration| {
            u64::try_from(until.saturating_sub(begun).as_millis()).unwrap_or(u64::MAX)
        };
        Ok(Smoke {
            start_ms: ms(first),
            turn_ms: ms(ended),
            input_tokens,
            output_tokens,
        })
    }
}

/// Whether the turn was one.
fn judge(events: &[AgentEvent], model: &Model, metered: u64) -> Result<(), SmokeError> {
    let said = events.iter().find_map(|event| match event {
        AgentEvent::Error { message, .. } => Some(message),
        _ => None,
    });
    if let Some(message) = said {
        return Err(SmokeError::Said(message.clone()));
    }
    let used = model.answers() * (INPUT + OUTPUT);
    if used == 0 {
        return Err(SmokeError::Mute);
    }
    let text = events.iter().filter_map(|event| match event {
        AgentEvent::Text { text } => Some(text.as_str()),
        _ => None,
    });
    if !text.collect::<String>().contains(ANSWER) {
        return Err(SmokeError::NoAnswer);
    }
    match metered == used {
        true => Ok(()),
        false => Err(SmokeError::Unmetered { metered, used }),
    }
}

fn launch(
    probe: &AdapterProbe<'_>,
    scratch: &Scratch,
    run: RunId,
    endpoint: Endpoint<'_>,
    adapter: &dyn crate::adapter::Adapter,
) -> Result<Launch, SmokeError> {
    let path = |name: &str| scratch.path(name).to_string_lossy().into_owned();
    let none = BTreeMap::new();
    let config = scratch.path("config");
    let launch = adapter.launch(&LaunchSpec {
        prompt: PROMPT,
        search_path: probe.search_path,
        home: &path("home"),
        tmp: &path("tmp"),
        user: "homeostat",
        time_zone: "UTC",
        git_env: &none,
        caller_env: &none,
        wake_env: &BTreeMap::from([(RUN_MARK.to_owned(), run.to_string())]),
        model: None,
        effort: None,
        endpoint: Some(endpoint),
        session: Session::New(run.uuid()),
        config_dir: &config.to_string_lossy(),
        state_dir: &path("state"),
        mcp_servers: &[],
    })?;
    for file in &launch.files {
        let path = config.join(file.name);
        fs::write(&path, &file.text)?;
        if rustix::process::geteuid().is_root() {
            let user = probe.identity;
            std::os::unix::fs::chown(&path, Some(user.uid()), Some(user.gid()))?;
        }
    }
    Ok(launch)
}

/// Reads what it says to its end, and closes its standard input when its turn is over.
async fn drive(
    running: Running,
    mut parser: Box<dyn EventParser>,
) -> Result<Vec<AgentEvent>, SmokeError> {
    let mut out = Lines::new(pipe::Receiver::from_owned_fd(running.stdout)?);
    let mut errors = Lines::new(pipe::Receiver::from_owned_fd(running.stderr)?);
    let mut control = UnixStream::from_std(running.control)?;
    let (mut is_out_open, mut is_err_open) = (true, true);
    let mut events = Vec::new();
    while is_out_open || is_err_open {
        tokio::select! {
            line = out.next(), if is_out_open => match line? {
                Some(line) => {
                    events.extend(parser.stdout_line(&line));
                    if parser.awaits_input() {
                        let order = control::encode(&Order::CloseInput)?;
                        control.write_all(&order).await?;
                    }
                }
                None => is_out_open = false,
            },
            line = errors.next(), if is_err_open => match line? {
                Some(line) => events.extend(parser.stderr_line(&line)),
                None => is_err_open = false,
            },
        }
    }
    // How its process ended is not asked: what it said tells whether it took its turn.
    events.extend(parser.finish(EndReason::AgentFinished, Exit::with_code(0)));
    Ok(events)
}
