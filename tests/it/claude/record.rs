//! The recordings in `tests/data/stream/claude_code`, made anew: what the installed program prints in
//! every case that a provider of our own can bring about, with ids, paths and times evened out.
//!
//! ```text
//! cargo nextest run --features test-support --run-ignored only -E 'test(claude::record)'
//! SNAPSHOTS=overwrite cargo nextest run --features test-support -E 'test(it::stream) | test(stream::)'
//! git diff tests/data/stream
//! ```
//!
//! The first writes the recordings, the second what is made of them. Their table is `CLAUDE` in
//! `tests/it/stream.rs`; a case that is new here is a row there. Recordings of that table that are
//! not made here stay as they are. They need what this has not: a run as root, a provider that
//! thinks, refuses, recovers, breaks every answer or is asked without a gateway, a program that asks
//! for permission, plan mode and tools of ours.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use homeostat::adapter::{Adapter, Launch, Session};
use homeostat::gateway::{ModelGateway, Timeouts};
use homeostat::model::event::AgentEvent;
use homeostat::model::id::RunId;
use homeostat::process::deadline::{Deadline, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{LONG, World, nothing, programs};

/// What is done to the agent while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    /// It is told something else while a tool runs.
    Steer,
    /// It is interrupted while a tool runs.
    Interrupt,
    /// The same, and then it is told something else.
    InterruptThenMessage,
    /// It gets TERM while a tool runs.
    Term,
    /// It has had a run before, and goes on with that conversation.
    Resume,
}

const SAY: &str = "Say something.";
const WAIT: &str = "Run it.\nCMD=touch /srv/repo/begun && sleep 90";

/// Name, scenario, prompt, and what is done.
#[rustfmt::skip]
const CASES: &[(&str, &str, &str, Act)] = &[
    ("cut", "cut", SAY, Act::Nothing),
    ("e400", "e400", SAY, Act::Nothing),
    ("e401", "e401", SAY, Act::Nothing),
    ("e403", "e403", SAY, Act::Nothing),
    ("e429", "e429", SAY, Act::Nothing),
    ("e500", "e500", SAY, Act::Nothing),
    ("e529", "e529", SAY, Act::Nothing),
    ("empty", "silent", SAY, Act::Nothing),
    ("gateway-garbage", "garbage", SAY, Act::Nothing),
    ("gateway-hang", "hang", SAY, Act::Nothing),
    ("gateway-stall", "stall", SAY, Act::Nothing),
    ("interrupt", "ok", WAIT, Act::Interrupt),
    ("interrupt-then-message", "ok", WAIT, Act::InterruptThenMessage),
    ("max-tokens", "max-tokens", SAY, Act::Nothing),
    ("ra429", "ra429", SAY, Act::Nothing),
    ("resume", "ok", SAY, Act::Resume),
    ("sse-error", "sse-error", SAY, Act::Nothing),
    ("steer", "ok", "Run it.\nCMD=sleep 4", Act::Steer),
    ("term-in-tool", "ok", WAIT, Act::Term),
    ("text-only", "ok", SAY, Act::Nothing),
    ("tool-fails", "ok", "Run it.\nCMD=echo out; echo err >&2; exit 3", Act::Nothing),
    ("write", "ok", "Write it.\nFILE=/srv/repo/hello.txt", Act::Nothing),
];

/// Long enough for an answer on loopback.
const SHORT: Timeouts = Timeouts {
    first_byte: Duration::from_secs(3),
    whole: Duration::from_secs(3),
    idle: Duration::from_secs(3),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes tests/data/stream/claude_code anew"]
async fn the_recordings() {
    for program in programs("the_recordings") {
        for (name, scenario, prompt, act) in CASES {
            let world = World::new(&program).await;
            let printed = record(&world, scenario, prompt, *act).await;
            let folder =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stream/claude_code");
            fs::write(folder.join(format!("{name}.jsonl")), printed).unwrap();
        }
    }
}

/// One run; what it printed.
async fn record(world: &World, scenario: &str, prompt: &str, act: Act) -> String {
    let prompt = prompt.replace("/srv/repo", &world.path("repo"));
    let id = RunId::derived(&["record"]).uuid();
    let mut session = Session::New(id);
    if act == Act::Resume {
        let first = world.gateway_within(scenario, SHORT);
        drop(
            world
                .run_through(first, "Begin.", session, |_| {}, &mut nothing)
                .await,
        );
        session = Session::Resume(id);
    }
    let tweak = |launch: &mut Launch| {
        launch
            .env
            .insert("CLAUDE_CODE_MAX_RETRIES".to_owned(), "2".to_owned());
    };
    let mut inputs = inputs(world.adapter.as_ref(), act).into_iter();
    let (leader, begun) = (&world.leader, world.path("repo/begun"));
    let mut on_event = |event: &AgentEvent, _: &ModelGateway| {
        let is_tool = matches!(event, AgentEvent::ToolCall { .. });
        // The usage of a turn is its end.
        let is_next = act == Act::InterruptThenMessage && matches!(event, AgentEvent::Usage { .. });
        if is_tool && act == Act::Term {
            // The tool begins after it is told of.
            let deadline = Deadline::after(LONG);
            while !Path::new(&begun).exists() && !deadline.passed() {
                poll_until(&mut [], Some(Deadline::after(Duration::from_millis(50)))).unwrap();
            }
            let pid = leader.load(Ordering::Relaxed).try_into().ok();
            kill_process(pid.and_then(Pid::from_raw).unwrap(), Signal::TERM).unwrap();
        }
        if is_tool || is_next {
            return inputs.next();
        }
        None
    };
    let opened = world.gateway_within(scenario, SHORT);
    let went = world.run_through(opened, &prompt, session, tweak, &mut on_event);
    let went = went.await;
    let mut even = Even::new(world);
    let lines = went.printed.iter().map(|line| even.line(line));
    lines.collect()
}

/// What the agent is told, one at each occasion.
fn inputs(adapter: &dyn Adapter, act: Act) -> Vec<String> {
    let message = || adapter.message("Rather say something.\nCMD=true").unwrap();
    let interrupt = || adapter.interrupt("r1").unwrap();
    match act {
        Act::Steer => vec![message()],
        Act::Interrupt => vec![interrupt()],
        Act::InterruptThenMessage => vec![interrupt(), message()],
        Act::Nothing | Act::Term | Act::Resume => Vec::new(),
    }
}

/// Makes what differs from run to run the same.
struct Even {
    /// Where the world is, and what stands for it.
    roots: [(String, &'static str); 2],
    ids: BTreeMap<String, String>,
}

impl Even {
    fn new(world: &World) -> Self {
        let repo = world.path("repo");
        let root = repo.strip_suffix("/repo").unwrap().to_owned();
        Self {
            roots: [(repo, "/srv/repo"), (root, "/srv")],
            ids: BTreeMap::new(),
        }
    }

    fn line(&mut self, line: &str) -> String {
        match serde_json::from_str::<Value>(line) {
            Ok(mut value) => {
                self.value("", &mut value);
                format!("{value}\n")
            }
            Err(_) => format!("{}\n", self.text(line)),
        }
    }

    fn value(&mut self, name: &str, value: &mut Value) {
        match value {
            // A name of a directory in it is made of the world's.
            Value::Object(fields) if name == "memory_paths" => fields.clear(),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.value(name, value);
                }
            }
            // What else a version has.
            Value::Array(items) if matches!(name, "slash_commands" | "skills" | "agents") => {
                items.clear();
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value("", item)),
            Value::String(text) => {
                *text = match name {
                    "timestamp" => "2026-01-01T00:00:00.000Z".to_owned(),
                    _ => self.text(text),
                }
            }
            Value::Number(_) if name.ends_with("_ms") => *value = json!(100),
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    /// The text with other paths, ports and ids.
    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.roots {
            text = text.replace(from, to);
        }
        if let Some(at) = text.find("127.0.0.1:") {
            let from = at + "127.0.0.1:".len();
            let port = text[from..].bytes().take_while(u8::is_ascii_digit).count();
            text.replace_range(from..from + port, "1");
        }
        let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
        let ids: Vec<_> = words
            .filter(|word| word.len() == 36 && word.parse::<uuid::Uuid>().is_ok())
            .map(str::to_owned)
            .collect();
        for id in ids {
            let next = self.ids.len() + 1;
            let even = self.ids.entry(id.clone());
            let even = even.or_insert_with(|| format!("{next:08x}-0000-4000-8000-000000000000"));
            text = text.replace(&id, even);
        }
        text
    }
}
