//! Claude Code in a conversation: the tools that it calls back with, what it owes, and what it
//! remembers from run to run.

use homeostat::task::Tracker;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::claude::{verdict, with_claude};
use super::rig::Fleet;
use crate::claude::programs;
use crate::support::model_server::ModelServer;

/// The fleet's only space, in that mode.
fn put_room(fleet: &Fleet, mode: &str) {
    let room = json!({"agents": ["ada"], "repos": ["app"], "mode": mode});
    fleet.put("Space", "room", &room);
    fleet.commit(&format!("The room is for {mode}"));
}

/// The texts of the last request that the model got with messages in it.
fn last_request(server: &ModelServer) -> String {
    let seen = server.seen();
    let bodies = seen.iter().rev().filter(|seen| !seen.body.is_empty());
    let mut bodies = bodies.map(|seen| String::from_utf8(seen.body.to_vec()).unwrap());
    bodies.next().expect("a request")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_handed_in_by_a_call_and_by_nothing_else() {
    let tracker = Tracker::new();
    for program in programs("a_plan_is_handed_in_by_a_call_and_by_nothing_else") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        put_room(&fleet, "plan");
        fleet.start();
        let plan = r#"CALL=mcp__homeostat__submit_plan {"plan": "1. Look. 2. Leap."}"#;
        let run = fleet.over(&fleet.dispatch(plan));
        assert_eq!(verdict(&run), ["completed", "productive", ""], "{run}");
        let shown = fleet.json(&["runs", run["id"].as_str().unwrap()]);
        assert!(shown.to_string().contains("1. Look. 2. Leap."), "{shown}");

        let run = fleet.over(&fleet.dispatch("Just say that there is a plan."));
        assert_eq!(verdict(&run), ["completed", "empty", "silentRun"], "{run}");
        assert_eq!(
            run["summary"],
            "no plan: plan mode ended without a call of submit_plan"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_run_keeps_another_is_told_and_can_look_up() {
    let tracker = Tracker::new();
    for program in programs("what_one_run_keeps_another_is_told_and_can_look_up") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let keep = r#"CALL=mcp__homeostat__remember {"key": "deploys", "text": "Deploys happen on Tuesday."}"#;
        fleet.over(&fleet.dispatch(keep));
        let look = "When do the deploys of this project happen?\n\
                    CALL=mcp__homeostat__recall {\"query\": \"deploys\"}";
        let run = fleet.dispatch(look);
        assert_eq!(verdict(&fleet.over(&run))[0], "completed");
        let prompt = fleet.run(&["prompt", &run]).expect(0).stdout;
        assert!(prompt.contains("Deploys happen on Tuesday."), "{prompt}");
        assert!(prompt.contains("`get_messages`"), "{prompt}");
        let transcript = fleet.json(&["transcript", &run]);
        let answer = r#"{\"facts\":[{\"key\":\"deploys\""#;
        assert!(transcript.to_string().contains(answer), "{transcript}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_goes_on_in_one_session() {
    let tracker = Tracker::new();
    for program in programs("a_conversation_goes_on_in_one_session") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let send = |text: &str| fleet.run(&["send", "room", text]).line();
        let first = fleet.over(&send("Call me Ishmael."));
        assert_eq!(verdict(&first), ["completed", "completed", ""], "{first}");
        let second = send("What is my name?");
        assert_eq!(verdict(&fleet.over(&second))[0], "completed");
        // The program remembers, so that it is told only what is new.
        let told: Value = serde_json::from_str(&last_request(&server)).unwrap();
        let messages = told["messages"].as_array().unwrap();
        assert!(
            messages[0].to_string().contains("Call me Ishmael."),
            "{told}"
        );
        assert!(messages.len() >= 3, "{told}");
        let prompt = fleet.run(&["prompt", &second]).expect(0).stdout;
        assert!(!prompt.contains("Call me Ishmael."), "{prompt}");

        // A session that its program has lost is not a conversation that is lost.
        let sessions = fleet.path("data/workspaces");
        assert!(remove_transcripts(&sessions) > 0);
        let third = send("And now?");
        let over = fleet.over(&third);
        assert_eq!(over["errorCode"], "session_not_found", "{over}");
        let next = fleet.until("a next attempt", |fleet| {
            let runs = fleet.runs();
            runs.into_iter()
                .find(|run| run["retryOf"] == third.as_str() && !run["endedAt"].is_null())
        });
        assert_eq!(verdict(&next)[0], "completed", "{next}");
        let prompt = fleet.run(&["prompt", next["id"].as_str().unwrap()]);
        let prompt = prompt.expect(0).stdout;
        assert!(prompt.contains("Call me Ishmael."), "{prompt}");
    }
}

/// Removes what the program remembers, wherever it lies beneath.
fn remove_transcripts(directory: &std::path::Path) -> usize {
    let mut removed = 0;
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            removed += remove_transcripts(&path);
        } else if path.extension().is_some_and(|it| it == "jsonl") {
            std::fs::remove_file(&path).unwrap();
            removed += 1;
        }
    }
    removed
}

/// A command that the agent runs until [`Fleet::open`] lets it end.
fn waits(fleet: &Fleet, gate: &str) -> String {
    let path = fleet.path("open").join(gate);
    format!("CMD=until [ -e {} ]; do sleep 0.05; done", path.display())
}

/// Waits until the run's agent has begun a command.
#[track_caller]
fn works(fleet: &Fleet, run: &str) {
    fleet.until("the agent runs a command", |fleet| {
        let events = fleet.run(&["logs", run, "--output", "json"]).stdout;
        events.contains("\"toolCall\"").then_some(())
    });
}

/// Work that shows in the worktree.
fn adds(name: &str) -> String {
    format!(
        "CMD=echo {name} >{name}.txt && git add {name}.txt && git commit --quiet -m 'Add {name}'"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_run_is_told_what_a_person_says() {
    let tracker = Tracker::new();
    for program in programs("a_live_run_is_told_what_a_person_says") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let run = fleet.dispatch(&waits(&fleet, "go"));
        works(&fleet, &run);
        let answer = fleet.run(&["steer", &run, &adds("steered")]).expect(0);
        assert!(answer.stderr.contains("the agent is told"), "{answer:?}");
        let told = answer.line();
        fleet.until("the agent is told", |fleet| {
            let why = fleet.run(&["why", &told]).stdout;
            why.contains(&run[..8]).then_some(())
        });
        fleet.open("go");
        let over = fleet.over(&run);
        assert_eq!(verdict(&over), ["completed", "productive", ""], "{over}");
        assert_eq!(fleet.runs().len(), 1);
        // The id of the message's own run leads to the one that took it.
        let found = fleet.json(&["runs", &told]);
        assert_eq!(found["id"], run.as_str());
        fleet.run(&["wait", &told]).expect(0);
        let head = over["trees"][0]["path"].as_str().unwrap();
        assert!(std::path::Path::new(head).join("steered.txt").exists());
        let transcript = fleet.run(&["logs", &run]).expect(0).stdout;
        assert!(transcript.contains("told while it works"), "{transcript}");
        // A run that is over is told nothing.
        fleet.run(&["steer", &run, "hello?"]).expect(3);
        // What it was told is no news to the next one, which remembers it.
        let next = fleet.run(&["send", "room", "What now?"]).line();
        assert_eq!(verdict(&fleet.over(&next))[0], "completed");
        let prompt = fleet.run(&["prompt", &next]).expect(0).stdout;
        assert!(!prompt.contains("steered"), "{prompt}");
        assert!(last_request(&server).contains("steered"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_may_interrupt_a_run_and_has_the_next_one() {
    let tracker = Tracker::new();
    for program in programs("a_message_may_interrupt_a_run_and_has_the_next_one") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let run = fleet.dispatch(&waits(&fleet, "never"));
        works(&fleet, &run);
        let text = adds("instead");
        let next = fleet
            .run(&["send", "room", "--delivery", "interrupt", &text])
            .line();
        let over = fleet.over(&run);
        assert_eq!(verdict(&over), ["error", "failed", ""], "{over}");
        assert_eq!(over["endReason"], "interrupted");
        let next = fleet.over(&next);
        assert_eq!(verdict(&next), ["completed", "productive", ""], "{next}");
        // It goes on in the session of the run that it interrupted.
        assert!(last_request(&server).contains("until [ -e"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_space_is_taken_over_and_handed_back() {
    let tracker = Tracker::new();
    for program in programs("a_space_is_taken_over_and_handed_back") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let run = fleet.dispatch(&waits(&fleet, "never"));
        works(&fleet, &run);
        let taken = fleet.run(&["takeover", "room", "--reason", "to finish it"]);
        let tree = taken.line();
        let over = fleet.over(&run);
        assert_eq!(verdict(&over), ["error", "failed", ""], "{over}");
        assert_eq!(over["endReason"], "takenOver");
        let second = fleet.run(&["takeover", "room"]).expect(3);
        assert!(second.stderr.contains("has it since"), "{second:?}");
        let waiting = fleet.dispatch(&adds("afterwards"));
        let why = fleet.held(&waiting, "TakenOver");
        assert!(why.contains("to finish it"), "{why}");
        std::fs::write(std::path::Path::new(&tree).join("mine.txt"), "by hand").unwrap();
        let handed = fleet.run(&["handback", "room"]).line();
        assert!(handed.contains("not committed: mine.txt"), "{handed}");
        let next = fleet.over(&waiting);
        assert_eq!(verdict(&next), ["completed", "productive", ""], "{next}");
        let prompt = fleet.run(&["prompt", &waiting]).expect(0).stdout;
        assert!(prompt.contains("not committed: mine.txt"), "{prompt}");
        fleet.run(&["handback", "room"]).expect(3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_died_with_the_daemon_goes_on_in_its_session() {
    let tracker = Tracker::new();
    for program in programs("a_run_that_died_with_the_daemon_goes_on_in_its_session") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let run = fleet.dispatch(&format!("Remember Ishmael.\n{}", waits(&fleet, "go")));
        works(&fleet, &run);
        let told = fleet.run(&["steer", &run, "And remember Ahab."]).line();
        fleet.until("the agent is told", |fleet| {
            let why = fleet.run(&["why", &told]).stdout;
            why.contains(&run[..8]).then_some(())
        });
        fleet.signal(Signal::KILL);
        assert!(!fleet.ended().success());
        fleet.open("go");
        fleet.start();
        let lost = fleet.over(&run);
        assert_eq!(verdict(&lost), ["error", "dead", "processLost"], "{lost}");
        let next = fleet.until("the next attempt is over", |fleet| {
            let runs = fleet.runs();
            runs.into_iter()
                .find(|next| next["retryOf"] == run.as_str() && !next["endedAt"].is_null())
        });
        assert_eq!(verdict(&next)[0], "completed", "{next}");
        let requested: Value = serde_json::from_str(&last_request(&server)).unwrap();
        let messages = requested["messages"].as_array().unwrap();
        assert!(
            messages[0].to_string().contains("Remember Ishmael."),
            "{requested}"
        );
        // Who said something to the run that died has an answer, of the next attempt or after it.
        fleet.run(&["wait", &told]).expect(0);
        let runs = fleet.runs();
        let attempts = runs.iter().filter(|it| it["retryOf"] == run.as_str());
        assert_eq!(attempts.count(), 1, "{runs:?}");
    }
}
