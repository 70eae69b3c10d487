//! An agent's output, from its bytes on a pipe to the transcript and the outcome of its run.
//!
//! The recordings of Claude Code are what version 2.1.197 printed while it talked to a model server
//! of our own, with ids, paths and times evened out. A golden lies beside each recording. How they are
//! made anew stands in `tests/it/claude/record.rs`; those named `gateway-…` are of a trouble that the
//! gateway puts into words, the others of a provider that is asked directly or passed through.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::adapter::for_spec;
use homeostat::adapter::lines::Lines;
use homeostat::dispatch::classify::{Facts, classify};
use homeostat::dispatch::transcript::Fold;
use homeostat::model::event::AgentEvent;
use homeostat::model::process::Exit;
use homeostat::model::run::EndReason;
use homeostat::model::spec::{AdapterSpec, AdapterType, OutputFormat};

/// What is known of a run beside what it printed.
struct Recording {
    /// The file of standard output. One of the same name that ends in `.stderr` may lie beside it.
    path: PathBuf,
    adapter: AdapterSpec,
    /// Whether something was said to the agent while it ran.
    has_input: bool,
    end: EndReason,
    exit: Exit,
}

impl Recording {
    /// Every event of the run, in order.
    async fn events(&self) -> Vec<AgentEvent> {
        let bytes = std::fs::read(&self.path).expect("a recorded output");
        let errors = std::fs::read(self.path.with_extension("stderr")).unwrap_or_default();
        let adapter = for_spec(&self.adapter);
        let mut parser = adapter.parser();
        if self.has_input {
            parser.note_input();
        }
        let mut events = Vec::new();
        let mut lines = Lines::new(bytes.as_slice());
        while let Some(line) = lines.next().await.expect("bytes in memory") {
            events.extend(parser.stdout_line(&line));
        }
        let mut lines = Lines::new(errors.as_slice());
        while let Some(line) = lines.next().await.expect("bytes in memory") {
            events.extend(parser.stderr_line(&line));
        }
        events.extend(parser.finish(self.end, self.exit));
        events
    }

    /// Runs it through parser, fold and classification, and compares with its golden.
    async fn check(&self) {
        let mut fold = Fold::new();
        let mut shown = String::new();
        for event in self.events().await {
            fold.push(&event);
            writeln!(shown, "event   {}", event.type_name()).expect("memory");
        }
        fold.close();
        for segment in fold.segments() {
            let json = serde_json::to_string(segment).expect("JSON");
            writeln!(shown, "segment {json}").expect("memory");
        }
        let outcome = classify(&Facts {
            end: self.end,
            exit: self.exit,
            has_done: fold.has_done(),
            last_error: fold.last_error(),
            last_text: fold.last_text(),
            has_changed_tree: false,
            contract: None,
            silence: Duration::from_secs(900),
        });
        writeln!(shown, "usage   {:?}", fold.usage()).expect("memory");
        writeln!(shown, "reply   {:?}", fold.reply_text()).expect("memory");
        writeln!(shown, "outcome {outcome:?}").expect("memory");
        let golden = format!("{}.out", self.path.display());
        let golden = snapbox::Data::read_from(Path::new(&golden), None).raw();
        snapbox::assert_data_eq!(shown, golden);
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/stream")
        .join(name)
}

async fn check_command(name: &str, output: OutputFormat, exit: Exit) {
    let recording = Recording {
        path: folder("command").join(name),
        adapter: AdapterSpec {
            prices: Vec::new(),
            r#type: AdapterType::Command,
            command: Some("agent".to_owned()),
            args: Vec::new(),
            env: BTreeMap::new(),
            output,
        },
        has_input: false,
        end: EndReason::AgentFinished,
        exit,
    };
    recording.check().await;
}

#[tokio::test]
async fn an_agent_that_works() {
    check_command("fix.jsonl", OutputFormat::JsonLines, Exit::with_code(0)).await;
}

#[tokio::test]
async fn an_agent_that_lies() {
    check_command(
        "hostile.jsonl",
        OutputFormat::JsonLines,
        Exit::by_signal(11),
    )
    .await;
}

#[tokio::test]
async fn an_agent_whose_model_is_overloaded() {
    check_command(
        "overloaded.jsonl",
        OutputFormat::JsonLines,
        Exit::with_code(1),
    )
    .await;
}

#[tokio::test]
async fn a_program_that_prints() {
    check_command("plain.txt", OutputFormat::Text, Exit::with_code(0)).await;
}

fn claude(name: &str, end: EndReason, exit: i32, has_input: bool) -> Recording {
    Recording {
        path: folder("claude_code").join(format!("{name}.jsonl")),
        adapter: AdapterSpec {
            prices: Vec::new(),
            r#type: AdapterType::ClaudeCode,
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            output: OutputFormat::Text,
        },
        has_input,
        end,
        exit: Exit::with_code(exit),
    }
}

/// Every recording of Claude Code: its name, who ended the run, its exit code, whether something
/// was said to it.
#[rustfmt::skip]
const CLAUDE: &[(&str, EndReason, i32, bool)] = &[
    ("as-root", EndReason::AgentFinished, 1, false),
    ("bad-sse", EndReason::AgentFinished, 1, false),
    ("commit", EndReason::AgentFinished, 0, false),
    ("cut", EndReason::AgentFinished, 0, false),
    ("cut-final", EndReason::AgentFinished, 1, false),
    ("e400", EndReason::AgentFinished, 1, false),
    ("e401", EndReason::AgentFinished, 1, false),
    ("e403", EndReason::AgentFinished, 1, false),
    ("e429", EndReason::AgentFinished, 1, false),
    ("e500", EndReason::AgentFinished, 1, false),
    ("e529", EndReason::AgentFinished, 1, false),
    ("e529-then-works", EndReason::AgentFinished, 0, false),
    ("empty", EndReason::AgentFinished, 0, false),
    ("garbage", EndReason::AgentFinished, 1, false),
    ("gateway-garbage", EndReason::AgentFinished, 1, false),
    ("gateway-hang", EndReason::AgentFinished, 1, false),
    ("gateway-stall", EndReason::AgentFinished, 0, false),
    ("hang", EndReason::Silence, 143, false),
    ("hang-timeout", EndReason::AgentFinished, 1, false),
    ("interrupt", EndReason::AgentFinished, 1, true),
    ("interrupt-then-message", EndReason::AgentFinished, 0, true),
    ("max-tokens", EndReason::AgentFinished, 1, false),
    ("permission-denied", EndReason::AgentFinished, 0, false),
    ("plan-mcp", EndReason::AgentFinished, 0, false),
    ("plan-mode", EndReason::AgentFinished, 0, false),
    ("ra429", EndReason::AgentFinished, 1, false),
    ("refusal", EndReason::AgentFinished, 1, false),
    ("resume", EndReason::AgentFinished, 0, false),
    ("sse-error", EndReason::AgentFinished, 0, false),
    ("stall", EndReason::Silence, 143, false),
    ("steer", EndReason::AgentFinished, 0, true),
    ("term-in-model", EndReason::StoppedByHuman, 143, false),
    ("term-in-tool", EndReason::StoppedByHuman, 143, false),
    ("text-only", EndReason::AgentFinished, 0, false),
    ("too-long", EndReason::AgentFinished, 1, false),
    ("tool-fails", EndReason::AgentFinished, 0, false),
    ("unknown-session", EndReason::AgentFinished, 1, false),
    ("write", EndReason::AgentFinished, 0, false),
];

#[tokio::test]
async fn what_claude_code_does_in_every_case() {
    for (name, end, exit, has_input) in CLAUDE {
        claude(name, *end, *exit, *has_input).check().await;
    }
    let listed: Vec<_> = CLAUDE.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let entries = std::fs::read_dir(folder("claude_code")).expect("recordings");
    let mut there: Vec<_> = entries
        .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned))
        .collect();
    there.sort();
    assert_eq!(there, listed);
}

#[tokio::test]
async fn the_same_run_has_one_outcome_however_it_is_stopped() {
    let stopped = [
        EndReason::StoppedByHuman,
        EndReason::Estop,
        EndReason::Removed,
        EndReason::Silence,
        EndReason::DaemonShutdown,
    ];
    for end in stopped {
        for (name, _, exit, _) in CLAUDE {
            let recording = claude(name, end, *exit, true);
            let events = recording.events().await;
            let ends = |event: &&AgentEvent| {
                matches!(event, AgentEvent::Done {} | AgentEvent::Error { .. })
            };
            let ended = events.iter().find(ends);
            assert_eq!(ended, None, "{name} {end}");
        }
    }
}
