//! The local API over a real socket and a real store, asked by the program itself.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat::api::control::{Control, Facts, Levers, Pulse, SourceReport};
use homeostat::api::dto::Surroundings;
use homeostat::api::server::{self, ServeError};
use homeostat::clock::{SeededIds, SystemClock};
use homeostat::manifest::{self, ManifestFile};
use homeostat::model::budget::Reservation;
use homeostat::model::event::AgentEvent;
use homeostat::model::id::{ConversationId, RunId};
use homeostat::model::kind::{Kind, ObjectRef, Revision};
use homeostat::model::observed::{Backoff, WorktreeBackend};
use homeostat::model::run::{EndReason, Liveness, RunOrder, RunStatus, Usage};
use homeostat::model::spec::{AdapterSpec, AdapterType, GitIdentity, Mode, OutputFormat};
use homeostat::model::wake::{WakeReason, WakeState};
use homeostat::process::deadline::{Deadline, poll_until};
use homeostat::process::{Presence, identify, is_alive};
use homeostat::store::{Accept, Admission, AdmitFacts, FirstObjects, RunClose, RunEvent, Store};
use homeostat::task::Tracker;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::env::TestEnv;

const MANIFESTS: &str = "\
apiVersion: homeostat/v1alpha1
kind: Workspace
metadata: { name: core }
spec: {}
---
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: { name: echo }
spec: { type: command, command: cat }
---
apiVersion: homeostat/v1alpha1
kind: Agent
metadata: { name: writer, workspace: core }
spec: { title: Writer, adapter: echo, budget: { monthly: \"$1.00\" } }
---
apiVersion: homeostat/v1alpha1
kind: Agent
metadata: { name: reviewer, workspace: core }
spec: { title: Reviewer, adapter: echo }
---
apiVersion: homeostat/v1alpha1
kind: Agent
metadata: { name: stranger, workspace: core }
spec: { title: Stranger, adapter: echo }
---
apiVersion: homeostat/v1alpha1
kind: Space
metadata: { name: desk, workspace: core }
spec: { agents: [writer, reviewer] }
";

/// A store that is served, and what its levers were pulled for.
struct Served {
    env: TestEnv,
    runtime: Runtime,
    store: Store,
    tracker: Tracker,
    pulled: Arc<Mutex<Vec<String>>>,
}

impl Served {
    fn new() -> Self {
        let env = TestEnv::new();
        std::fs::create_dir(env.data()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let store = Store::open(&env.data().join("homeostat.db")).unwrap();
        let served = Self {
            env,
            store,
            tracker: Tracker::new(),
            pulled: Arc::default(),
            runtime,
        };
        served.accept();
        served.serve(&served.socket()).unwrap();
        served
    }

    fn socket(&self) -> PathBuf {
        self.env.data().join("homeostat.sock")
    }

    fn accept(&self) {
        let file = ManifestFile {
            path: "all.yaml".to_owned(),
            bytes: MANIFESTS.into(),
        };
        let loaded = manifest::load(&[file]);
        assert_eq!(loaded.diagnostics, []);
        let accept = Accept {
            revision: Revision::new("0123456789abcdef0123456789abcdef01234567"),
            documents: loaded.documents,
            author: None,
            committed_at: None,
            first_revision: FirstObjects::Run,
            now: now(),
        };
        let accepted = self.store.accept(accept, Arc::new(SeededIds::new(1)));
        assert_eq!(self.runtime.block_on(accepted).unwrap().created.len(), 6);
    }

    fn serve(&self, socket: &std::path::Path) -> Result<(), ServeError> {
        let lever = |name: &'static str| {
            let pulled = Arc::clone(&self.pulled);
            move |what: String| {
                let mut pulled = pulled.lock().unwrap_or_else(PoisonError::into_inner);
                pulled.push(format!("{name} {what}").trim().to_owned());
            }
        };
        let (trigger, reconcile, stop) = (lever("trigger"), lever("reconcile"), lever("stop"));
        let levers = Levers {
            trigger: Box::new(move |why| trigger(why.to_owned())),
            reconcile: Box::new(move || {
                reconcile(String::new());
                1
            }),
            finished: Box::new(|_| Box::pin(std::future::ready(()))),
            stop: Box::new(move |run, reason| {
                stop(format!("{run} {reason}"));
                true
            }),
            is_listening: Box::new(|_| true),
            changes: Box::new(|_| Box::pin(std::future::ready(Ok(Vec::new())))),
            source: Box::new(|| SourceReport {
                is_ok: true,
                message: "ok".to_owned(),
                waiting_since: None,
                failing_since: None,
                begun: 1,
                finished: 1,
                attempted: None,
            }),
            pulse: Box::new(|| Pulse {
                is_ok: true,
                since_last_pass: Duration::from_secs(3),
            }),
        };
        let facts = Facts {
            sandbox: "none".to_owned(),
            worktree_backend: WorktreeBackend::Git,
            surroundings: Surroundings {
                search_path: "/usr/bin:/bin".to_owned(),
                model_variables: vec!["ANTHROPIC_API_KEY".to_owned()],
                run_uid: 70_007,
            },
        };
        let control = Control::new(
            self.store.clone(),
            Arc::new(SystemClock),
            Arc::new(SeededIds::new(2)),
            facts,
            levers,
            self.tracker.child_token(),
        );
        let _inside = self.runtime.enter();
        server::serve(socket, control, &self.tracker)
    }

    /// Ends the server, as a daemon that goes away.
    fn stop(&self) {
        self.tracker.cancel();
        let stuck = self
            .runtime
            .block_on(self.tracker.wait(Duration::from_secs(20)));
        assert_eq!(stuck, Vec::<String>::new());
    }

    fn pulled(&self) -> Vec<String> {
        std::mem::take(&mut *self.pulled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the command says, after it exited with `code`.
    fn say(&self, args: &[&str], code: i32) -> String {
        let output = self.env.homeostat(args).output().unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
        if out.is_empty() { err } else { out }
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.say(&args, 0)).unwrap()
    }

    fn dispatch(&self, more: &[&str]) -> RunId {
        let args = ["dispatch", "--agent", "writer", "--space", "desk"];
        let args: Vec<&str> = args
            .iter()
            .chain(more)
            .copied()
            .chain(["Say hello"])
            .collect();
        self.say(&args, 0).trim().parse().unwrap()
    }

    /// Starts the run, as the daemon's executor does.
    fn start(&self, run: RunId) {
        let waiting = self.store.wakes(WakeState::Pending, 100);
        let waiting = self.runtime.block_on(waiting).unwrap();
        let wake = waiting.into_iter().find(|it| RunId::of(it.wake.id) == run);
        let wake = wake.expect("its wake waits").wake;
        let order = RunOrder {
            run,
            wake: wake.id,
            reason: wake.reason,
            attempt: 0,
            workspace: wake.workspace,
            workspace_name: "core".to_owned(),
            agent: wake.agent,
            agent_ref: reference(Kind::Agent, "writer"),
            agent_title: "Writer".to_owned(),
            persona: None,
            skills: Vec::new(),
            space: wake.space,
            space_name: "desk".to_owned(),
            roster: Vec::new(),
            mode: Mode::Chat,
            conversation: ConversationId::main_of(wake.space),
            ticket: None,
            adapter_name: "echo".to_owned(),
            adapter: AdapterSpec {
                prices: Vec::new(),
                r#type: AdapterType::Command,
                command: Some("cat".to_owned()),
                args: Vec::new(),
                env: std::collections::BTreeMap::new(),
                output: OutputFormat::Text,
            },
            adapter_generation: 1,
            model: None,
            effort: None,
            cwd: "/".to_owned(),
            trees: Vec::new(),
            identity: GitIdentity {
                name: "Writer (agent)".to_owned(),
                email: "writer@agents.homeostat.local".to_owned(),
            },
            silence: Duration::from_secs(900),
            reservation: Reservation::default(),
            guards: Vec::new(),
            revision: Revision::new("0123456789abcdef0123456789abcdef01234567"),
            generation: 1,
        };
        let facts = AdmitFacts {
            incarnation: "one".to_owned(),
            sandbox_state: "none".to_owned(),
            credential_source: "none".to_owned(),
            backend: WorktreeBackend::Git,
            log_path: "/nowhere".to_owned(),
            contract: None,
            now: now(),
        };
        let admission = self
            .runtime
            .block_on(self.store.admit(&order, facts))
            .unwrap();
        assert_eq!(admission, Admission::Admitted);
    }

    fn emit(&self, run: RunId, seq: u64, event: AgentEvent) {
        let event = RunEvent {
            seq,
            at: now(),
            event,
        };
        let stored = self.store.append_events(run, vec![event]);
        let _effect = self.runtime.block_on(stored).unwrap();
    }

    fn close(&self, run: RunId, status: RunStatus, liveness: Liveness, end_reason: EndReason) {
        let close = RunClose {
            run,
            status,
            liveness,
            family: None,
            end_reason,
            error_code: None,
            is_retryable: false,
            exit_code: Some(0),
            signal: None,
            summary: Some("said hello".to_owned()),
            usage: Usage {
                cost_micros: Some(250_000),
                ..Usage::default()
            },
            model: None,
            price_table: None,
            reply: Some("hello".to_owned()),
            transcript_json: Some(r#"[{"type":"text","text":"hello"}]"#.to_owned()),
            trees: Vec::new(),
            continuation: None,
            ended_at: now(),
        };
        let _closed = self.runtime.block_on(self.store.close_run(close)).unwrap();
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "rows of a real time, for the program to read"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

fn reference(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef {
        kind,
        workspace: Some("core".parse().unwrap()),
        name: name.parse().unwrap(),
    }
}

fn said(text: &str) -> AgentEvent {
    AgentEvent::Text {
        text: text.to_owned(),
    }
}

#[test]
fn a_dispatch_is_durable_before_it_is_acknowledged() {
    let served = Served::new();
    let run = served.dispatch(&["--priority", "high", "--env", "TOPIC=hello"]);
    let waiting = served
        .runtime
        .block_on(served.store.wakes(WakeState::Pending, 10))
        .unwrap();
    let [wake] = &waiting[..] else {
        panic!("one wake waits: {waiting:?}")
    };
    assert_eq!(RunId::of(wake.wake.id), run);
    assert_eq!(wake.wake.reason, WakeReason::FollowUp);
    assert_eq!(wake.wake.prompt, "Say hello");
    assert_eq!(wake.wake.env["TOPIC"], "hello");
    let by = wake.wake.requested_by.as_deref().unwrap();
    assert!(by.starts_with("uid:"), "what the kernel says: {by}");
    assert_eq!(served.pulled(), ["trigger dispatched"]);
    let audit = served.runtime.block_on(served.store.audit_log(10)).unwrap();
    assert_eq!(audit[0].action, "dispatch");
    assert_eq!(audit[0].subject, run.to_string());
}

#[test]
fn the_same_key_is_the_same_run() {
    let served = Served::new();
    let first = served.dispatch(&["--idempotency-key", "k"]);
    assert_eq!(served.dispatch(&["--idempotency-key", "k"]), first);
    assert_ne!(served.dispatch(&["--idempotency-key", "other"]), first);
    assert_ne!(served.dispatch(&[]), first);
}

#[test]
fn what_cannot_run_is_refused_with_what_to_do() {
    let served = Served::new();
    let dispatch = |agent: &'static str, space: &'static str, code| {
        served.say(&["dispatch", "--agent", agent, "--space", space, "x"], code)
    };
    assert_eq!(
        dispatch("writer", "nowhere", 1),
        "error: there is no Space 'nowhere'\n"
    );
    assert_eq!(
        dispatch("nobody", "desk", 1),
        "error: there is no Agent 'core/nobody'\n"
    );
    assert_eq!(
        dispatch("stranger", "desk", 3),
        "error: Agent/core/stranger does not serve Space/core/desk\n\
         hint: its agents are: writer, reviewer\n"
    );
    let reserved = ["--env", "HOMEOSTAT_RUN_ID=1"];
    let args = ["dispatch", "--agent", "writer", "--space", "desk", "x"];
    let args: Vec<&str> = args.iter().chain(&reserved).copied().collect();
    let refused = served.say(&args, 2);
    assert_eq!(
        refused,
        "error: 'HOMEOSTAT_RUN_ID' is no variable that a run may have\n"
    );
    let waiting = served.store.wakes(WakeState::Pending, 10);
    assert_eq!(served.runtime.block_on(waiting).unwrap().len(), 0);
}

#[test]
fn a_message_wakes_whom_it_means() {
    let served = Served::new();
    for (words, agent) in [
        ("hello", "writer"),
        ("@reviewer, look", "reviewer"),
        ("@nobody", "writer"),
    ] {
        let run: RunId = served
            .say(&["send", "desk", words], 0)
            .trim()
            .parse()
            .unwrap();
        let why = served.json(&["why", &run.to_string()]);
        assert_eq!(
            why["wakes"][0]["agent"],
            format!("Agent/core/{agent}"),
            "{words}"
        );
        assert_eq!(why["wakes"][0]["reason"], "userMessage");
    }
    let again = ["send", "desk", "once", "--idempotency-key", "m"];
    assert_eq!(served.say(&again, 0), served.say(&again, 0));
}

#[test]
fn a_run_is_told_from_its_wake_to_its_end() {
    let served = Served::new();
    let run = served.dispatch(&[]);
    let id = run.to_string();
    assert!(
        served
            .say(&["why", &id], 0)
            .contains("it waits for the next pass")
    );
    assert_eq!(
        served.say(&["wait", &id, "--timeout", "0s"], 124),
        format!("{id} timeout\n")
    );
    served.start(run);
    let _effect = served
        .runtime
        .block_on(served.store.store_prompt(run, "Be kind.\n".into()));
    served.emit(run, 0, said("hel"));
    served.emit(run, 1, said("lo"));
    let short = &id[..8];
    assert!(
        served
            .say(&["logs", short], 0)
            .contains(" text             hel\n")
    );
    assert_eq!(served.say(&["prompt", short], 0), "Be kind.\n");
    assert!(
        served
            .say(&["transcript", short], 1)
            .contains("has no transcript yet")
    );
    served.close(
        run,
        RunStatus::Completed,
        Liveness::Completed,
        EndReason::AgentFinished,
    );
    assert_eq!(
        served.say(&["wait", short], 0),
        format!("{short} ok, completed\n")
    );
    assert_eq!(served.say(&["transcript", short], 0), "hello\n\n");
    let row = served.say(&["runs", "--agent", "core/writer"], 0);
    let row: Vec<&str> = row.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row[..7],
        [
            short,
            "writer",
            "desk",
            "followUp",
            "1",
            "completed",
            "$0.25"
        ]
    );
    let why = served.say(&["why", short], 0);
    assert!(
        why.contains("it ended as completed, completed: agentFinished; said hello"),
        "{why}"
    );
    shows_its_budget(&served);
}

fn shows_its_budget(served: &Served) {
    let budget = served.json(&["budget"]);
    assert_eq!(budget["budgets"][0]["budget"], "Agent/core/writer");
    assert_eq!(budget["budgets"][0]["spentMicros"], 250_000);
    assert_eq!(budget["budgets"][0]["scope"], "Agent/core/writer");
    let money = &budget["budgets"][0]["uses"][0];
    assert_eq!(
        (&money["meter"], &money["remaining"]),
        (&json!("money"), &json!(750_000))
    );
    let row = served.say(&["budget"], 0);
    let row: Vec<&str> = row.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..2], ["Agent/core/writer", "Agent/core/writer"]);
    assert_eq!(row[3..8], ["UTC", "$0.25", "$0.00", "$1.00", "$0.75"]);
    let yaml = served.say(&["budget", "-o", "yaml"], 0);
    assert!(yaml.contains("\nscope: Agent/core/writer\n"), "{yaml}");
    let wide = served.say(&["budget", "-o", "wide"], 0);
    assert!(wide.contains("25 %"), "{wide}");
    assert_eq!(
        served.say(&["budget", "-o", "name"], 0),
        "Agent/core/writer\n"
    );
}

#[test]
fn a_run_that_fails_is_no_success() {
    let served = Served::new();
    let run = served.dispatch(&[]);
    served.start(run);
    served.close(
        run,
        RunStatus::Error,
        Liveness::Failed,
        EndReason::StoppedByHuman,
    );
    let waited = served.say(&["wait", &run.to_string()], 1);
    assert_eq!(
        waited,
        format!("{run} error, failed: stoppedByHuman: said hello\n")
    );
}

#[test]
fn following_ends_with_the_run() {
    let served = Served::new();
    let run = served.dispatch(&[]);
    served.start(run);
    served.emit(run, 0, said("one"));
    let command = served
        .env
        .homeostat(&["logs", "--follow", &run.to_string()]);
    let wait = served.env.homeostat(&["wait", &run.to_string()]);
    let (followed, waited) = std::thread::scope(|scope| {
        let followed = scope.spawn(|| command.output().unwrap());
        let waited = scope.spawn(|| wait.output().unwrap());
        served.emit(run, 1, said("two"));
        served.close(
            run,
            RunStatus::Completed,
            Liveness::Productive,
            EndReason::AgentFinished,
        );
        (followed.join().unwrap(), waited.join().unwrap())
    });
    let followed = text(followed.stdout);
    let words: Vec<&str> = followed
        .lines()
        .map(|it| it.split_whitespace().last().unwrap())
        .collect();
    assert_eq!(words, ["one", "two"]);
    assert_eq!(text(waited.stdout), format!("{run} ok, productive\n"));
}

#[test]
fn a_stop_reaches_a_live_run_and_drops_one_that_waits() {
    let served = Served::new();
    let (live, waiting) = (served.dispatch(&[]), served.dispatch(&[]));
    served.start(live);
    served.pulled();
    served.say(&["stop", &live.to_string()], 0);
    assert_eq!(served.pulled(), [format!("stop {live} stoppedByHuman")]);
    let asked = served
        .runtime
        .block_on(served.store.stop_requested(live))
        .unwrap();
    assert_eq!(asked.unwrap().reason, EndReason::StoppedByHuman);
    served.say(&["stop", &waiting.to_string()], 0);
    let waited = served.say(&["wait", &waiting.to_string()], 1);
    assert!(
        waited.contains("it never started: stopped by uid:"),
        "{waited}"
    );
    assert_eq!(
        served.say(&["stop", "ffffffff"], 1),
        "error: there is no run 'ffffffff'\n"
    );
}

#[test]
fn a_pause_is_recorded_and_taken_back() {
    let served = Served::new();
    served.say(&["pause", "writer", "--for", "1h", "--reason", "lunch"], 0);
    served.say(&["pause", "core/writer"], 0);
    let observed = served
        .runtime
        .block_on(served.store.observe(now()))
        .unwrap();
    let [timed, open] = &observed.operator_pauses[..] else {
        panic!("two pauses: {:?}", observed.operator_pauses)
    };
    assert_eq!(timed.reason.as_deref(), Some("lunch"));
    assert_eq!(
        timed.until.unwrap().as_second() - timed.since.as_second(),
        3_600
    );
    assert_eq!(open.until, None);
    let resumed = served.say(&["resume", "writer"], 0);
    assert!(
        resumed.starts_with("2 pauses of Agent/core/writer were taken back\n"),
        "{resumed}"
    );
    assert_eq!(
        served.pulled(),
        [
            "trigger agent paused",
            "trigger agent paused",
            "trigger agent resumed"
        ]
    );
}

#[test]
fn a_held_revision_is_approved_by_its_beginning() {
    let served = Served::new();
    let held = Revision::new("feedfacefeedfacefeedfacefeedfacefeedface");
    let hold = served
        .store
        .hold_revision(held.clone(), "it removes much".into(), now());
    let _effect = served.runtime.block_on(hold).unwrap();
    served.say(&["approve", "feedface"], 0);
    assert!(
        served
            .runtime
            .block_on(served.store.is_approved(held))
            .unwrap()
    );
    assert_eq!(served.pulled(), ["reconcile"]);
    let serving = served.say(&["approve", "01234567"], 3);
    assert!(serving.contains("is accepted"), "{serving}");
    served.say(&["approve", "beef"], 1);
}

#[test]
fn looking_gives_the_same_with_and_without_a_daemon() {
    let served = Served::new();
    let run = served.dispatch(&[]);
    served.start(run);
    served.emit(run, 0, said("hello"));
    served.close(
        run,
        RunStatus::Completed,
        Liveness::Completed,
        EndReason::AgentFinished,
    );
    let id = run.to_string();
    let questions: [&[&str]; 9] = [
        &["get", "all", "-o", "json"],
        &["get", "agents", "-o", "name"],
        &["describe", "agent/writer", "-o", "json"],
        &["why", "space/desk", "-o", "json"],
        &["runs", "-o", "json"],
        &["logs", "--follow", &id, "-o", "json"],
        &["transcript", &id],
        &["budget", "-o", "name"],
        &["events", "-o", "json"],
    ];
    let live: Vec<String> = questions.iter().map(|args| served.say(args, 0)).collect();
    // A forecast is another one every second.
    let budgets = |mut list: Value| {
        let uses = &mut list["budgets"][0]["uses"][0];
        assert_eq!(uses["spent"], 250_000);
        uses.as_object_mut().unwrap().remove("forecast");
        list
    };
    let live_budgets = budgets(served.json(&["budget"]));
    served.stop();
    assert_eq!(budgets(served.json(&["budget"])), live_budgets);
    for (args, live) in questions.iter().zip(live) {
        let output = served.env.homeostat(args).output().unwrap();
        assert_eq!(text(output.stdout), live, "{args:?}");
        let note = text(output.stderr);
        assert!(
            note.starts_with("note: no daemon answers; this is what "),
            "{note}"
        );
    }
    served.say(&["stop", &id], 5);
}

#[test]
fn objects_are_found_by_kind_and_name() {
    let served = Served::new();
    assert_eq!(
        served.say(&["get", "agents", "-o", "name"], 0),
        "Agent/core/reviewer\nAgent/core/stranger\nAgent/core/writer\n"
    );
    let table = served.say(&["get", "agent", "core/writer"], 0);
    assert!(
        table.starts_with("OBJECT") && table.lines().count() == 2,
        "{table}"
    );
    let yaml = served.say(&["get", "space", "desk", "-o", "yaml"], 0);
    assert!(
        yaml.contains("agents:") && yaml.contains("status:"),
        "{yaml}"
    );
    let wide = served.say(&["get", "agents", "-o", "wide"], 0);
    assert!(wide.contains("all.yaml:"), "{wide}");
    served.say(&["get", "agent", "nobody"], 1);
    let described = served.say(&["describe", "agent/writer"], 0);
    assert!(
        described.contains("Object      Agent/core/writer\n"),
        "{described}"
    );
}

#[test]
fn the_socket_is_its_owners_and_nobody_elses_is_taken() {
    let served = Served::new();
    let mode = std::fs::metadata(served.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(
        served.serve(&served.socket()),
        Err(ServeError::Taken { .. })
    ));
    let file = served.env.data().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(
        served.serve(&file),
        Err(ServeError::NotASocket { .. })
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    served.stop();
}

#[test]
fn a_socket_that_a_dead_daemon_left_is_replaced() {
    let served = Served::new();
    let left = served.env.data().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    served.serve(&left).unwrap();
    let socket = left.to_str().unwrap();
    served.say(&["--socket", socket, "reconcile"], 0);
    assert_eq!(served.pulled(), ["reconcile"]);
}

#[test]
fn a_plan_is_held_against_what_is_recorded() {
    let served = Served::new();
    served.env.write("same/all.yaml", MANIFESTS);
    let same = served.say(&["plan", "same", "--detailed-exitcode"], 2);
    assert!(
        same.contains(": 0 to create, 0 to change, 0 to remove\n"),
        "{same}"
    );
    assert!(
        same.contains("ensureSpaceRoot"),
        "nothing was executed yet: {same}"
    );
    let other = MANIFESTS
        .replace("title: Writer", "title: Author")
        .replace("stranger", "newcomer");
    served.env.write("other/all.yaml", other);
    let plan = served.say(&["plan", "other"], 0);
    for line in [
        ": 1 to create, 1 to change, 1 to remove\n",
        "\n  + Agent/core/newcomer\n",
        "\n  - Agent/core/stranger\n",
        "\n  ~ Agent/core/writer\n",
    ] {
        assert!(plan.contains(line), "{line} in {plan}");
    }
    served.env.write(
        "less/all.yaml",
        &MANIFESTS[..MANIFESTS.find("---").unwrap()],
    );
    let plan = served.say(&["plan", "less"], 0);
    assert!(
        plan.contains("it would be held: it removes 5 of 6 objects"),
        "{plan}"
    );
}

impl Served {
    /// Status line and body of a request as any client may make it.
    fn raw(&self, request: &str) -> (String, Value) {
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(self.socket()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.lines().next().unwrap().to_owned();
        (status, serde_json::from_str(body).unwrap())
    }

    fn raw_get(&self, path: &str) -> (String, Value) {
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        ))
    }
}

#[test]
fn health_really_looks_and_problems_have_one_form() {
    let served = Served::new();
    for path in ["/healthz", "/readyz"] {
        let (status, health) = served.raw_get(path);
        assert_eq!(status, "HTTP/1.1 200 OK", "{path}");
        assert_eq!(health["isHealthy"], true);
        assert_eq!(health["store"], "ok");
        assert_eq!(health["lastPassSecsAgo"], 3);
        assert_eq!(health.get("sourceWaitingSince"), None);
        assert_eq!(health["sandbox"], "none");
        assert_eq!(health["worktreeBackend"], "git");
        assert_eq!(
            health["revision"],
            "0123456789abcdef0123456789abcdef01234567"
        );
    }
    let (status, seen) = served.raw_get("/v1/surroundings");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let expected = serde_json::json!({
        "searchPath": "/usr/bin:/bin", "modelVariables": ["ANTHROPIC_API_KEY"], "runUid": 70_007,
    });
    assert_eq!(seen, expected);
    for (path, status, code) in [
        ("/v1/nothing", "HTTP/1.1 404 Not Found", "notFound"),
        ("/v1/runs/ffff", "HTTP/1.1 404 Not Found", "notFound"),
        ("/v1/objects/pods", "HTTP/1.1 400 Bad Request", "badRequest"),
        (
            "/v1/runs?colour=red",
            "HTTP/1.1 400 Bad Request",
            "badRequest",
        ),
    ] {
        let (answer, problem) = served.raw_get(path);
        assert_eq!(
            (answer.as_str(), &problem["code"]),
            (status, &Value::from(code)),
            "{path}"
        );
        assert!(problem["message"].is_string() && problem["details"].is_array());
    }
    let (answer, problem) = served.raw(
        "POST /v1/dispatch HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 15\r\n\r\n{\"agent\": true}",
    );
    assert_eq!(answer, "HTTP/1.1 400 Bad Request");
    assert_eq!(problem["code"], "badRequest");
}

#[test]
fn a_poke_makes_the_loop_look_and_frees_nothing_that_waits() {
    let served = Served::new();
    let failure = Backoff {
        failures: 4,
        not_before: None,
        generation: 1,
        code: "reflinkUnsupported".to_owned(),
        message: "clone; move the data directory".to_owned(),
    };
    let key = "provisionWorktree/1".to_owned();
    let recorded = served.store.record_failure(key, failure);
    served.runtime.block_on(recorded).unwrap();
    let post = |path: &str| {
        let head = "host: x\r\nconnection: close\r\ncontent-type: application/json";
        let (status, _answer) = served.raw(&format!(
            "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: 2\r\n\r\n{{}}"
        ));
        assert_eq!(status, "HTTP/1.1 200 OK", "{path}");
        let observed = served
            .runtime
            .block_on(served.store.observe(now()))
            .unwrap();
        observed.backoffs.len()
    };
    assert_eq!(post("/v1/poke"), 1);
    assert_eq!(served.pulled(), ["trigger poked"]);
    assert_eq!(post("/v1/reconcile"), 0);
    assert_eq!(served.pulled(), ["reconcile"]);
    served.say(&["estop", "--clear"], 0);
    assert_eq!(served.pulled(), ["trigger poked"]);
}

#[test]
fn a_request_is_finished_also_when_its_client_has_gone() {
    use std::io::Write;
    let served = Served::new();
    let run = served.dispatch(&[]);
    served.start(run);
    served.pulled();
    // Nothing is written while this transaction lasts.
    let other = rusqlite::Connection::open(served.env.data().join("homeostat.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(served.socket()).unwrap();
    let head = "host: x\r\ncontent-type: application/json\r\ncontent-length: 2";
    write!(
        client,
        "POST /v1/runs/{run}/stop HTTP/1.1\r\n{head}\r\n\r\n{{}}"
    )
    .unwrap();
    // By the time that it has answered others the server has seen what was sent before them. It
    // need not begin for a client that goes before that; this one goes in the middle.
    let answer_others = || (0..20).for_each(|_| drop(served.raw_get("/healthz")));
    answer_others();
    drop(client);
    answer_others();
    other.execute_batch("ROLLBACK").unwrap();
    let deadline = Deadline::after(Duration::from_secs(20));
    let mut pulled = Vec::new();
    while pulled.is_empty() && !deadline.passed() {
        poll_until(&mut [], Some(Deadline::after(Duration::from_millis(5)))).unwrap();
        pulled = served.pulled();
    }
    assert_eq!(pulled, [format!("stop {run} stoppedByHuman")]);
}

#[test]
fn an_emergency_stop_ends_what_a_dead_daemon_left() {
    let served = Served::new();
    let run = served.dispatch(&[]);
    served.start(run);
    served.stop();
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that a dead daemon left"
    )]
    let mut left = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let identity = identify(left.id()).unwrap().expect("it was just started");
    let stored = served.store.store_identity(run, identity.clone(), None);
    let _effect = served.runtime.block_on(stored).unwrap();
    assert_eq!(
        served.say(&["estop"], 0),
        format!("run {run} was ended from here\n")
    );
    assert_eq!(is_alive(&identity), Presence::Gone);
    assert_eq!(left.wait().unwrap().code(), None, "a signal ended it");
}
