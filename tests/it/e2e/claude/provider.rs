//! Claude Code whose provider is in trouble: what the run's record says, what it cost, and what
//! follows.

use homeostat::task::Tracker;
use serde_json::{Value, json};

use super::{ANSWER_MICROS, BEGUN_MICROS, MODEL, adapter, nothing_is_left, verdict, with_claude};
use crate::claude::programs;
use crate::e2e::rig::Fleet;
use crate::support::model_server::ModelServer;

/// One trouble: the scenario, the verdict with its code, how the summary begins, the cost, how often
/// the model was asked, and what holds the next attempt.
type Trouble = (
    &'static str,
    [&'static str; 4],
    &'static str,
    u64,
    usize,
    &'static str,
);

const UPSTREAM: [&str; 3] = ["error", "failed", "transientUpstream"];

const fn failed(code: &'static str) -> [&'static str; 4] {
    let [status, liveness, family] = UPSTREAM;
    [status, liveness, family, code]
}

/// Every trouble of a provider's.
#[rustfmt::skip]
const TROUBLES: &[Trouble] = &[
    // Lasting: somebody has to act.
    ("e400", failed("invalid_request_error"), "API Error: 400", 0, 1, ""),
    ("e401", failed("authentication_error"), "Failed to authenticate. API Error: 401", 0, 1, ""),
    ("e403", failed("permission_error"), "Failed to authenticate. API Error: 403", 0, 1, ""),
    // Passing.
    ("e429", failed("rate_limit_error"), "API Error: Request rejected (429)", 0, 1, "UpstreamRetry"),
    ("e500", failed("api_error"), "API Error: 500", 0, 1, "UpstreamRetry"),
    ("e529", failed("overloaded_error"), "API Error: 529", 0, 1, "UpstreamRetry"),
    ("garbage", failed("api_error"), "API Error: 502", 0, 1, "UpstreamRetry"),
    // It asks once more in one piece, which this provider gives; both answers cost.
    ("cut", ["completed", "completed", "", ""], "A plain answer.", BEGUN_MICROS + ANSWER_MICROS, 2, ""),
    ("sse-error", ["completed", "completed", "", ""], "A plain answer.", BEGUN_MICROS + ANSWER_MICROS, 2, ""),
    ("bad-sse", ["completed", "completed", "", ""], "A plain answer.", ANSWER_MICROS, 2, ""),
];

/// Declares an agent of its own for the scenario, in a space without a repo.
fn put_agent(fleet: &Fleet, program: &std::path::Path, server: &ModelServer, scenario: &str) {
    fleet.put("Adapter", scenario, &adapter(program, server, scenario));
    let agent = json!({"title": scenario, "adapter": scenario, "model": MODEL});
    fleet.put("Agent", scenario, &agent);
    let space = json!({"agents": [scenario], "repos": []});
    fleet.put("Space", scenario, &space);
}

fn dispatch(fleet: &Fleet, name: &str) -> String {
    let args = [
        "dispatch",
        "--agent",
        name,
        "--space",
        name,
        "Say something.",
    ];
    fleet.run(&args).line()
}

/// The hold of the next attempt that waits for the agent, when there is one: its reason and message.
fn next_attempt(fleet: &Fleet, agent: &str) -> Option<(String, String)> {
    let why = fleet.json(&["why", &format!("Agent/shop/{agent}")]);
    let mut wakes = why["wakes"].as_array()?.iter();
    let hold = &wakes.find(|wake| wake["reason"] == "recovery")?["hold"];
    let of = |key: &str| Some(hold[key].as_str()?.to_owned());
    Some((of("reason")?, of("message")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_trouble_of_the_provider_is_on_record() {
    let tracker = Tracker::new();
    for program in programs("every_trouble_of_the_provider_is_on_record") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = Fleet::plain();
        for (scenario, ..) in TROUBLES {
            put_agent(&fleet, &program, &server, scenario);
        }
        fleet.commit("An agent for every trouble");
        fleet.start();
        let runs: Vec<_> = TROUBLES
            .iter()
            .map(|(scenario, ..)| dispatch(&fleet, scenario))
            .collect();
        for (trouble, run) in TROUBLES.iter().zip(runs) {
            let (scenario, expected, summary, cost, asked, next) = trouble;
            let run = fleet.over(&run);
            let [status, liveness, family] = verdict(&run);
            let code = run["errorCode"].as_str().unwrap_or_default();
            assert_eq!([status, liveness, family, code], *expected, "{run}");
            assert_eq!(run["endReason"], "agentFinished", "{scenario}");
            let said = run["summary"].as_str().unwrap();
            assert!(said.starts_with(summary), "{scenario}: {said}");
            assert_eq!(run["usage"]["costMicros"], *cost, "{scenario}: {run}");
            assert_eq!(server.asked(scenario), *asked, "{scenario}");
            nothing_is_left(&run);
            if next.is_empty() {
                assert_eq!(next_attempt(&fleet, scenario), None, "{scenario}");
                continue;
            }
            let (reason, message) =
                fleet.until("a next attempt", |fleet| next_attempt(fleet, scenario));
            assert_eq!(reason, *next, "{scenario}");
            assert!(message.contains(code), "{scenario}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_says_how_long_is_left_alone_that_long() {
    let tracker = Tracker::new();
    for program in programs("a_provider_that_says_how_long_is_left_alone_that_long") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ra429");
        fleet.start();
        let run = fleet.over(&fleet.dispatch("Go on."));
        assert_eq!(verdict(&run), UPSTREAM, "{run}");
        assert_eq!(run["errorCode"], "rate_limit_error");
        assert_eq!(run["usage"]["costMicros"], 0, "{run}");
        nothing_is_left(&run);
        let (reason, message) = fleet.until("a next attempt", |fleet| next_attempt(fleet, "ada"));
        assert_eq!(reason, "PausedByProvider");
        assert!(
            message.contains("asked to be left alone until"),
            "{message}"
        );
        // Everybody heeds it, also after a start.
        let other = fleet.dispatch("Something else.");
        let held = fleet.held(&other, "PausedByProvider");
        assert!(held.contains("status 429"), "{held}");
        let ada = fleet.run(&["describe", "Agent/shop/ada"]).expect(0).stdout;
        assert!(ada.contains("left alone until"), "{ada}");
        fleet.restart();
        let held_again = fleet.held(&other, "PausedByProvider");
        let time = |why: &str| {
            let (_, rest) = why.split_once("alone until ").unwrap();
            rest.split(": ").next().unwrap().to_owned()
        };
        assert_eq!(time(&held_again), time(&held));
        assert_eq!(fleet.runs().len(), 1);
        assert_eq!(server.asked("ra429"), 1);
        // Until somebody gives the adapter something else to ask.
        fleet.put("Adapter", "claude", &adapter(&program, &server, "ok"));
        fleet.commit("Another provider");
        assert_eq!(verdict(&fleet.over(&other)), ["completed", "completed", ""]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_attempt_comes_when_the_provider_has_been_left_alone() {
    let tracker = Tracker::new();
    for program in programs("the_next_attempt_comes_when_the_provider_has_been_left_alone") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ra429-then-ok");
        fleet.start();
        let first = fleet.over(&fleet.dispatch("Go on."));
        assert_eq!(verdict(&first), UPSTREAM, "{first}");
        let next = fleet.until("the next attempt is over", |fleet| {
            let mut runs = fleet.runs().into_iter();
            runs.find(|run| run["retryOf"] == first["id"] && !run["endedAt"].is_null())
        });
        assert_eq!(verdict(&next), ["completed", "completed", ""], "{next}");
        assert_eq!(next["attempt"], 1);
        assert_eq!(next["reason"], "recovery");
        assert_eq!(next["usage"]["costMicros"], ANSWER_MICROS);
        let prompt = fleet.run(&["prompt", next["id"].as_str().unwrap()]);
        let prompt = prompt.expect(0).stdout;
        assert!(prompt.contains("This is attempt 2"), "{prompt}");
        assert_eq!(fleet.runs().len(), 2);
        assert_eq!(server.asked("ra429-then-ok"), 2);
        assert_eq!(fleet.get("agent", "ada")["hold"], Value::Null);
    }
}
