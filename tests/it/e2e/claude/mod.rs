//! Claude Code from a commit to the run's record: the real program, in a worktree, through the
//! daemon's gateway to a provider of our own.

mod provider;
mod silence;
mod stop;

use std::path::Path;

use homeostat::process::table::sweep;
use homeostat::task::Tracker;
use serde_json::{Value, json};

use super::commit::made_by_the_agent;
use super::rig::Fleet;
use crate::claude::programs;
use crate::support::model_server::{CACHED_READ, CACHED_WRITE, INPUT, ModelServer, OUTPUT};

/// What only the gateway may know.
const KEY: &str = "sk-ant-api03-only-the-gateway-knows-it";

pub(super) const MODEL: &str = "claude-sonnet-4-5";

/// What one answer costs by that model's list price: dollars for a million tokens are micros of a
/// dollar for one, and a cache is written at 1.25 and read at 0.1 times the price of input.
const ANSWER_MICROS: u64 = BEGUN_MICROS + OUTPUT * 15 - 15;

/// The same of an answer that only began: what it read, and the one token that its head counts.
const BEGUN_MICROS: u64 = INPUT * 3 + CACHED_WRITE * 15 / 4 + CACHED_READ * 3 / 10 + 15;

/// An Adapter of Claude Code that talks to a model of that scenario. Its program does not ask again by
/// itself: how often it would is not what is tested here.
fn adapter(program: &Path, server: &ModelServer, scenario: &str) -> Value {
    json!({
        "type": "claudeCode",
        "command": program.to_str().unwrap(),
        "env": {
            "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.base(scenario),
            "CLAUDE_CODE_MAX_RETRIES": "0",
        },
    })
}

/// A fleet whose `ada` is Claude Code and talks to a model of that scenario.
pub(super) fn with_claude(program: &Path, server: &ModelServer, scenario: &str) -> Fleet {
    let fleet = Fleet::plain();
    fleet.put("Adapter", "claude", &adapter(program, server, scenario));
    let ada = json!({"title": "Ada", "adapter": "claude", "model": MODEL});
    fleet.put("Agent", "ada", &ada);
    fleet.commit("Ada is Claude Code");
    fleet
}

pub(super) fn verdict(run: &Value) -> [&str; 3] {
    let of = |key: &str| run[key].as_str().unwrap_or_default();
    [of("status"), of("liveness"), of("errorFamily")]
}

/// Nothing that was started for the run is there any more.
#[track_caller]
fn nothing_is_left(run: &Value) {
    let id = run["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(sweep(id).unwrap(), [], "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_ticket_becomes_a_commit_of_claude_code() {
    let tracker = Tracker::new();
    for program in programs("a_committed_ticket_becomes_a_commit_of_claude_code") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let work = "CMD=echo thing >thing.txt && git add thing.txt && \
                    git commit --quiet --message 'Add the thing'";
        let ticket = json!({
            "title": "Add the thing", "assignee": "ada", "space": "room", "description": work,
        });
        fleet.put("Ticket", "thing", &ticket);
        fleet.commit("Ask for the thing");
        let run = fleet.until("the run is over", |fleet| {
            let runs = fleet.runs();
            runs.into_iter().find(|run| !run["endedAt"].is_null())
        });
        assert_eq!(verdict(&run), ["completed", "productive", ""], "{run}");
        made_by_the_agent(&fleet, &run);
        assert_eq!(run["summary"], "Done: the fake model finished the task.");
        assert_eq!(
            run["credentialSource"],
            "adapterOverride (ANTHROPIC_API_KEY)"
        );
        assert_eq!(run["model"], MODEL);
        assert_eq!(run["usage"]["inputTokens"], 2 * INPUT);
        assert_eq!(run["usage"]["costMicros"], 2 * ANSWER_MICROS);
        let seen = server.seen();
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|seen| {
            let key = seen.headers.get("x-api-key");
            key.is_none_or(|key| key == KEY)
        }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_never_has_the_key() {
    let tracker = Tracker::new();
    for program in programs("claude_code_never_has_the_key") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let kept = fleet.path("open").join("env");
        let run = fleet.dispatch(&format!("Look.\nCMD=env | tee {}", kept.display()));
        assert_eq!(verdict(&fleet.over(&run))[0], "completed");
        let seen = fleet.left("env").unwrap();
        assert!(
            seen.contains("ANTHROPIC_BASE_URL=http://127.0.0.1:"),
            "{seen}"
        );
        assert!(!seen.contains(KEY), "{seen}");
        // What it has instead is the run's, and is over with it; a transcript is kept.
        let run_key = seen
            .lines()
            .find_map(|line| line.strip_prefix("ANTHROPIC_API_KEY="))
            .unwrap();
        let transcript = fleet.run(&["transcript", &run]).expect(0).stdout;
        assert!(transcript.contains("ANTHROPIC_API_KEY="), "{transcript}");
        assert!(!transcript.contains(run_key), "{transcript}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_is_ended_by_the_answer_that_crosses_a_ceiling() {
    let tracker = Tracker::new();
    for program in programs("claude_code_is_ended_by_the_answer_that_crosses_a_ceiling") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        let cap = json!({
            "scope": {"kind": "agent", "name": "ada"},
            "monthly": "$0.005", "reserve": "$0.001", "enforcement": "gateAndStop",
        });
        fleet.put("BudgetPolicy", "cap", &cap);
        fleet.commit("Half a cent");
        fleet.start();
        let run = fleet.over(&fleet.dispatch("Go on.\nCMD=sleep 30"));
        assert_eq!(
            verdict(&run),
            ["error", "failed", "budgetExceeded"],
            "{run}"
        );
        assert_eq!(run["usage"]["costMicros"], ANSWER_MICROS);
        nothing_is_left(&run);
        fleet.held(&fleet.dispatch("More."), "PausedByBudget");
    }
}
