//! The real program of Claude Code, driven as a run drives it: under a shim, as the run's user,
//! through a gateway, against a provider of our own. It is not ours to carry around: each version
//! that is installed below `<target directory>/tools/claude-code/<version>` (by npm, with that as
//! its prefix) is tested, and without one the tests are skipped. `record` makes the recordings that
//! are tested without it.

mod record;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use homeostat::adapter::claude_code;
use homeostat::adapter::lines::Lines;
use homeostat::adapter::{Adapter, Endpoint, Launch, LaunchSpec, Session, for_spec};
use homeostat::credential::{Scheme, Secret};
use homeostat::gateway::{
    ANTHROPIC_PATHS, Client, GatewaySpec, ModelGateway, Notice, RunToken, Timeouts, UpstreamKey,
};
use homeostat::model::event::AgentEvent;
use homeostat::model::id::RunId;
use homeostat::model::process::Exit;
use homeostat::model::run::{EndReason, Usage};
use homeostat::model::spec::{AdapterSpec, AdapterType, OutputFormat};
use homeostat::process::control::{self, Decoder, Input, Order, Report};
use homeostat::process::table::RUN_MARK;
use homeostat::process::{StopTarget, stop};
use homeostat::sandbox::{LaunchPlan, Program, RunIdentity, Running, none};
use homeostat::task::{Tracker, blocking};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::model_server::{CACHED_READ, CACHED_WRITE, INPUT, ModelServer, OUTPUT};

/// Longer than a run takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);
const TOKEN: &str = "0123456789abcdefghijkl";

fn shim_binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_homeostat"))
}

/// Every installed version's program.
pub(crate) fn programs(test: &str) -> Vec<PathBuf> {
    let target = shim_binary()
        .ancestors()
        .nth(2)
        .expect("a target directory");
    let tools = target.join("tools/claude-code");
    let versions = fs::read_dir(&tools).into_iter().flatten();
    let programs: Vec<_> = versions
        .map(|entry| entry.unwrap().path().join("node_modules/.bin/claude"))
        .filter(|program| program.exists())
        .collect();
    if programs.is_empty() {
        eprintln!(
            "SKIP claude::{test}: Claude Code is not installed below {}",
            tools.display()
        );
    }
    programs
}

/// A conversation's place on disk, a provider, and what the gateway reported.
struct World {
    dir: tempfile::TempDir,
    tracker: Tracker,
    server: ModelServer,
    client: Client,
    identity: RunIdentity,
    adapter: Box<dyn Adapter>,
    /// The pid of the agent that runs.
    leader: AtomicU32,
}

/// What is done when the agent has come so far.
type OnEvent<'a> = &'a mut (dyn FnMut(&AgentEvent, &ModelGateway) -> Option<String> + Send);

/// How a run went.
#[derive(Debug)]
struct Went {
    events: Vec<AgentEvent>,
    /// What it printed, as it is.
    printed: Vec<String>,
    exit: Exit,
    notices: Vec<Notice>,
}

impl World {
    async fn new(program: &Path) -> Self {
        let dir = tempfile::Builder::new().tempdir().unwrap();
        let own = rustix::process::geteuid();
        let group = rustix::process::getegid();
        let identity = RunIdentity::resolve(own.as_raw(), group.as_raw(), None).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["repo", "home", "tmp", "state", "config"] {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            if own.is_root() && name != "config" {
                chown(&path, Some(identity.uid()), Some(identity.gid())).unwrap();
            }
        }
        let tracker = Tracker::new();
        Self {
            server: ModelServer::start(&tracker).await,
            client: Client::new(&tracker).unwrap(),
            tracker,
            identity,
            adapter: for_spec(&AdapterSpec {
                prices: Vec::new(),
                r#type: AdapterType::ClaudeCode,
                command: Some(program.to_str().unwrap().to_owned()),
                args: Vec::new(),
                env: BTreeMap::new(),
                output: OutputFormat::Text,
            }),
            dir,
            leader: AtomicU32::new(0),
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn gateway(&self, scenario: &str) -> (ModelGateway, mpsc::Receiver<Notice>) {
        self.gateway_within(
            scenario,
            Timeouts {
                idle: Duration::from_secs(2),
                ..Timeouts::default()
            },
        )
    }

    fn gateway_within(
        &self,
        scenario: &str,
        timeouts: Timeouts,
    ) -> (ModelGateway, mpsc::Receiver<Notice>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let key = Secret::new("real-key".to_owned());
        let spec = GatewaySpec {
            token: RunToken::new(TOKEN).unwrap(),
            upstream: self.server.base(scenario),
            key: UpstreamKey::new(&key, Scheme::ApiKey).unwrap(),
            timeouts,
            paths: ANTHROPIC_PATHS,
        };
        let (sink, notices) = mpsc::channel(100);
        let started = ModelGateway::start(listener, spec, self.client.clone(), sink, &self.tracker);
        (started.unwrap(), notices)
    }

    fn launch(&self, prompt: &str, session: Session, gateway: &ModelGateway, run: RunId) -> Launch {
        let variables = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let own = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            own.collect::<BTreeMap<_, _>>()
        };
        let git = variables(&[
            ("GIT_AUTHOR_NAME", "Ada (agent)"),
            ("GIT_AUTHOR_EMAIL", "ada@agents.homeostat.local"),
            ("GIT_COMMITTER_NAME", "Ada (agent)"),
            ("GIT_COMMITTER_EMAIL", "ada@agents.homeostat.local"),
        ]);
        let launch = self.adapter.launch(&LaunchSpec {
            prompt,
            search_path: "/usr/local/bin:/usr/bin:/bin",
            home: &self.path("home"),
            tmp: &self.path("tmp"),
            user: "homeostat",
            time_zone: "UTC",
            git_env: &git,
            caller_env: &BTreeMap::new(),
            wake_env: &variables(&[(RUN_MARK, &run.to_string())]),
            model: Some("claude-sonnet-4-5"),
            effort: None,
            endpoint: Some(Endpoint {
                base_url: gateway.base_url(),
                key: TOKEN,
            }),
            session,
            config_dir: &self.path("config"),
            state_dir: &self.path("state"),
            mcp_servers: &[],
        });
        let launch = launch.unwrap();
        for file in &launch.files {
            let path = Path::new(&self.path("config")).join(file.name);
            fs::write(&path, &file.text).unwrap();
        }
        launch
    }

    /// One run, from its launch to its end. `on_event` may answer an event with input.
    async fn run(
        &self,
        scenario: &str,
        prompt: &str,
        session: Session,
        on_event: OnEvent<'_>,
    ) -> Went {
        let opened = self.gateway(scenario);
        self.run_through(opened, prompt, session, |_| {}, on_event)
            .await
    }

    /// The same through that gateway, with what `tweak` makes of the launch.
    async fn run_through(
        &self,
        (gateway, mut notices): (ModelGateway, mpsc::Receiver<Notice>),
        prompt: &str,
        session: Session,
        tweak: impl FnOnce(&mut Launch),
        on_event: OnEvent<'_>,
    ) -> Went {
        let run = RunId::derived(&[&format!("{:?} {prompt} {session:?}", self.dir.path())]);
        let mut launch = self.launch(prompt, session, &gateway, run);
        tweak(&mut launch);
        let plan = LaunchPlan {
            run,
            identity: self.identity,
            cgroup: None,
            grace: Duration::from_secs(1),
        };
        let program = Program {
            argv: launch.argv,
            env: launch.env,
            cwd: self.path("repo").into(),
            stdin: launch.stdin,
            keeps_stdin: launch.keeps_stdin,
        };
        let started = blocking("launch", move || {
            let started = none::start(shim_binary()).unwrap();
            let target = StopTarget {
                identity: Some(started.identity().clone()),
                run,
                cgroup: None,
            };
            let attested = started.prepare(&plan).unwrap();
            (attested.launch(program).unwrap(), target)
        });
        let (running, target) = started.await.unwrap();
        self.leader.store(running.child_pid, Ordering::Relaxed);
        let driven = self.drive(running, &gateway, on_event);
        let driven = timeout(LONG, driven).await;
        drop(stop(&target, Duration::ZERO).unwrap());
        let (events, printed, exit) = driven.expect("the agent ends in time");
        drop(gateway);
        let mut reported = Vec::new();
        while let Some(notice) = timeout(LONG, notices.recv()).await.expect("an end") {
            reported.push(notice);
        }
        Went {
            events,
            printed,
            exit,
            notices: reported,
        }
    }

    async fn drive(
        &self,
        running: Running,
        gateway: &ModelGateway,
        on_event: OnEvent<'_>,
    ) -> (Vec<AgentEvent>, Vec<String>, Exit) {
        let mut parser = self.adapter.parser();
        let mut out = Lines::new(pipe::Receiver::from_owned_fd(running.stdout).unwrap());
        let mut errors = Lines::new(pipe::Receiver::from_owned_fd(running.stderr).unwrap());
        let mut control = UnixStream::from_std(running.control).unwrap();
        let (mut events, mut printed) = (Vec::new(), Vec::new());
        while let Some(line) = out.next().await.unwrap() {
            let mut said = false;
            printed.push(String::from_utf8(line.bytes.clone()).unwrap());
            for event in parser.stdout_line(&line) {
                if let Some(text) = on_event(&event, gateway) {
                    parser.note_input();
                    let order = control::encode(&Order::Input(Input { text })).unwrap();
                    control.write_all(&order).await.unwrap();
                    said = true;
                }
                events.push(event);
            }
            if parser.awaits_input() && !said {
                let order = control::encode(&Order::CloseInput).unwrap();
                control.write_all(&order).await.unwrap();
            }
        }
        while let Some(line) = errors.next().await.unwrap() {
            events.extend(parser.stderr_line(&line));
        }
        let exit = exit(&mut control, running.decoder).await;
        events.extend(parser.finish(EndReason::AgentFinished, exit));
        (events, printed, exit)
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = snapbox::cmd::Command::new("git");
        command = command.args(["-c", "safe.directory=*", "-c", "init.defaultBranch=main"]);
        let output = command
            .args(args)
            .current_dir(self.path("repo"))
            .assert()
            .success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    }
}

async fn exit(control: &mut UnixStream, mut decoder: Decoder) -> Exit {
    let mut piece = [0; 4096];
    loop {
        match decoder.message::<Report>().unwrap() {
            Some(Report::Exited(exited)) => return exited.exit,
            Some(other) => panic!("not the end: {other:?}"),
            None => {}
        }
        let read = control.read(&mut piece).await.unwrap();
        assert_ne!(read, 0, "the shim ended without a report");
        decoder.push(&piece[..read]);
    }
}

impl Went {
    /// What the agent's program says that it used.
    fn said_usage(&self) -> Usage {
        let mut sum = Usage::default();
        for event in &self.events {
            if let AgentEvent::Usage { usage, .. } = event {
                sum.add(&Usage {
                    cost_micros: None,
                    ..Usage::from(*usage)
                });
            }
        }
        sum
    }

    /// What went over the wire.
    fn metered_usage(&self) -> Usage {
        let mut sum = Usage::default();
        for notice in &self.notices {
            if let Notice::Usage(metered) = notice {
                sum.add(&metered.usage.into());
            }
        }
        sum
    }

    fn last_error(&self) -> Option<&str> {
        self.events.iter().rev().find_map(|event| match event {
            AgentEvent::Error { code, .. } => code.as_deref(),
            _ => None,
        })
    }

    fn has_done(&self) -> bool {
        self.events.contains(&AgentEvent::Done {})
    }
}

fn answers(count: u64) -> Usage {
    Usage {
        input_tokens: INPUT * count,
        output_tokens: OUTPUT * count,
        thought_tokens: 0,
        cached_read_tokens: CACHED_READ * count,
        cached_write_tokens: CACHED_WRITE * count,
        cost_micros: None,
    }
}

fn nothing(_: &AgentEvent, _: &ModelGateway) -> Option<String> {
    None
}

#[tokio::test]
async fn a_version_that_can_be_used() {
    for program in programs("a_version_that_can_be_used") {
        let world = World::new(&program).await;
        let (home, identity) = (world.path("home"), world.identity);
        let installed = program
            .ancestors()
            .nth(3)
            .expect("its prefix")
            .file_name()
            .unwrap();
        let installed = installed.to_str().unwrap().to_owned();
        let found = blocking("probe", move || {
            claude_code::probe(&claude_code::Probe {
                shim: shim_binary(),
                identity,
                command: program.to_str(),
                search_path: "/usr/bin:/bin",
                home: Path::new(&home),
                limit: LONG,
            })
        });
        let (path, version) = found.await.unwrap().unwrap();
        assert!(path.ends_with("node_modules/.bin/claude"));
        assert_eq!(version.to_string(), installed);
    }
}

#[test]
fn a_program_that_is_no_claude_is_told_apart() {
    let dir = tempfile::Builder::new().tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let own = rustix::process::geteuid();
    let group = rustix::process::getegid();
    let identity = RunIdentity::resolve(own.as_raw(), group.as_raw(), None).unwrap();
    let table = [
        (
            "echo '2.1.999 (Claude Code)'",
            "2.1.999",
            Duration::from_secs(60),
        ),
        ("echo hello", "not_claude", Duration::from_secs(60)),
        (
            "echo '2.0.1 (Claude Code)'",
            "too_old",
            Duration::from_secs(60),
        ),
        ("yes", "not_claude", Duration::from_secs(60)),
        ("echo oops >&2; exit 3", "failed", Duration::from_secs(60)),
        ("exec sleep 1000", "silent", Duration::from_millis(300)),
    ];
    for (number, (script, expected, limit)) in table.into_iter().enumerate() {
        let path = dir.path().join(format!("claude-{number}"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let probed = claude_code::probe(&claude_code::Probe {
            shim: shim_binary(),
            identity,
            command: path.to_str(),
            search_path: "/usr/bin:/bin",
            home: dir.path(),
            limit,
        });
        let got = match probed {
            Ok((_, version)) => version.to_string(),
            Err(error) => error.code().to_owned(),
        };
        assert_eq!(got, expected, "{script}");
    }
}

#[tokio::test]
async fn it_edits_and_commits_and_goes_on_where_it_was() {
    for program in programs("it_edits_and_commits_and_goes_on_where_it_was") {
        let world = World::new(&program).await;
        let root = rustix::process::geteuid().is_root();
        world.git(&["init", "--quiet"]);
        if root {
            // As a worktree is: the run user's.
            let own = format!("{}:{}", world.identity.uid(), world.identity.gid());
            let chown = snapbox::cmd::Command::new("chown");
            chown
                .args(["-R", &own, &world.path("repo")])
                .assert()
                .success();
        }
        let session = RunId::derived(&["session"]).uuid();
        let prompt = "Add a file.\nCMD=echo hello > new.txt && git add new.txt && \
                      git commit --quiet --message 'Add a file'";
        let went = world
            .run("ok", prompt, Session::New(session), &mut nothing)
            .await;
        assert_eq!(went.exit, Exit::with_code(0), "{went:?}");
        assert!(went.has_done() && went.last_error().is_none(), "{went:?}");
        let commit = world.git(&["log", "--format=%an|%ae|%s|%b"]);
        assert_eq!(
            commit.trim(),
            "Ada (agent)|ada@agents.homeostat.local|Add a file|"
        );
        assert_eq!(world.git(&["status", "--short"]), "");
        assert_eq!(went.said_usage(), answers(2));
        assert_eq!(went.metered_usage(), answers(2));
        let before = world.server.seen();
        assert!(before.iter().all(|seen| {
            let key = seen.headers.get("x-api-key");
            key.is_none_or(|key| key == "real-key")
        }));

        let file = world.path("repo/again.txt");
        let prompt = format!("And another.\nFILE={file}");
        let went = world
            .run("ok", &prompt, Session::Resume(session), &mut nothing)
            .await;
        assert!(went.has_done() && went.last_error().is_none(), "{went:?}");
        assert!(Path::new(&file).exists());
        assert_eq!(went.said_usage(), answers(2));
        assert_eq!(went.metered_usage(), answers(2));
        let asked = &world.server.seen()[before.len()..];
        let remembers = |body: &[u8]| String::from_utf8_lossy(body).contains("Add a file");
        assert!(asked.iter().any(|seen| remembers(&seen.body)));
    }
}

#[tokio::test]
async fn it_is_interrupted_and_told_something_else() {
    for program in programs("it_is_interrupted_and_told_something_else") {
        let world = World::new(&program).await;
        let file = world.path("repo/two.txt");
        let message = world.adapter.message(&format!("Rather that.\nFILE={file}"));
        let interrupt = world.adapter.interrupt("stop-1");
        let mut inputs = vec![message, interrupt];
        let mut answer = |event: &AgentEvent, _: &ModelGateway| match event {
            AgentEvent::ToolCall { name, .. } if name == "Bash" => inputs.pop().flatten(),
            // The first turn's usage is its end.
            AgentEvent::Usage { .. } => inputs.pop().flatten(),
            _ => None,
        };
        let session = Session::New(RunId::derived(&["interrupt"]).uuid());
        let went = world
            .run("ok", "Wait.\nCMD=sleep 100", session, &mut answer)
            .await;
        assert!(went.has_done() && went.last_error().is_none(), "{went:?}");
        assert_eq!(went.exit, Exit::with_code(0));
        assert!(Path::new(&file).exists(), "{went:?}");
        // Of the first, the end may have been cut off.
        assert_eq!(went.metered_usage().input_tokens, 3 * INPUT);
    }
}

#[tokio::test]
async fn faults_of_its_model_are_named() {
    for program in programs("faults_of_its_model_are_named") {
        let world = World::new(&program).await;
        let table = [
            ("e401", Some("authentication_error"), 0),
            ("ra429", Some("rate_limit_error"), 0),
            ("e529", Some("overloaded_error"), 0),
            ("garbage", Some("api_error"), 0),
            // It asks again in one piece, which this provider gives.
            ("cut", None, 2),
            ("stall", None, 2),
        ];
        for (scenario, code, answered) in table {
            let session = Session::New(RunId::derived(&[scenario]).uuid());
            let went = world
                .run(scenario, "Say something.", session, &mut nothing)
                .await;
            assert_eq!(went.last_error(), code, "{scenario}: {went:?}");
            assert!(went.has_done(), "{scenario}: {went:?}");
            let trouble = |notice: &&Notice| matches!(notice, Notice::Trouble(_));
            assert!(went.notices.iter().any(|it| trouble(&it)), "{scenario}");
            // Both answers cost, and the program knows of one alone.
            let input = went.metered_usage().input_tokens;
            assert_eq!(input, answered * INPUT, "{scenario}: {went:?}");
        }
    }
}

#[tokio::test]
async fn it_ends_when_its_budget_is_used_up() {
    for program in programs("it_ends_when_its_budget_is_used_up") {
        let world = World::new(&program).await;
        let mut close = |event: &AgentEvent, gateway: &ModelGateway| {
            if matches!(event, AgentEvent::ToolCall { .. }) {
                gateway.close_admission("the budget is used up");
            }
            None
        };
        let session = Session::New(RunId::derived(&["budget"]).uuid());
        let went = world
            .run("ok", "Go on.\nCMD=sleep 1", session, &mut close)
            .await;
        assert_eq!(went.last_error(), Some("permission_error"), "{went:?}");
        assert_eq!(went.metered_usage(), answers(1));
    }
}
