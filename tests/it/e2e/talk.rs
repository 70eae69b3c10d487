//! Messages, dispatches, waits, stops, and what is shown of a run.

use super::rig::{Fleet, is_gone};

#[test]
fn messages_are_answered_one_at_a_time_in_order() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let [one, two] = ["one", "two"].map(|name| {
        let script = format!("{}; say 'About {name}'", fleet.gate(name));
        fleet.run(&["send", "room", &script]).line()
    });
    fleet.running(&one);
    let why = fleet.held(&two, "ConversationBusy");
    assert!(why.contains(&one) || why.contains(&one[..8]), "{why}");
    fleet.open("two");
    fleet.open("one");
    let (first, second) = (fleet.over(&one), fleet.over(&two));
    assert_eq!(first["summary"], "About one");
    assert_eq!(second["summary"], "About two");
    assert!(
        first["endedAt"].as_str() <= second["startedAt"].as_str(),
        "{first} {second}"
    );
    let prompt = fleet.run(&["prompt", &two]).expect(0).stdout;
    let (said_before, asked) = prompt.split_once("\n</context>\n\n").unwrap();
    assert!(said_before.contains("> About one"), "{prompt}");
    assert!(asked.ends_with("say 'About two'"), "{prompt}");
    let transcript = fleet.json(&["transcript", &one]);
    assert_eq!(transcript["segments"][0]["text"], "About one");
}

#[test]
fn one_key_is_one_run() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let ask = || {
        let args = [
            "dispatch",
            "--agent",
            "ada",
            "--space",
            "room",
            "--idempotency-key",
            "k1",
            "say hello",
        ];
        fleet.run(&args).line()
    };
    let run = ask();
    assert_eq!(ask(), run);
    fleet.over(&run);
    assert_eq!(ask(), run);
    let say = || {
        fleet
            .run(&["send", "room", "--idempotency-key", "k2", "say hello"])
            .line()
    };
    let reply = say();
    assert_eq!(say(), reply);
    fleet.over(&reply);
    assert_eq!(fleet.runs().len(), 2);
}

#[test]
fn a_wait_says_how_it_ended() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let slow = fleet.dispatch(&format!("{}; say done", fleet.gate("slow")));
    let waited = fleet
        .run(&["wait", &slow, "--timeout", "1s", "--output", "json"])
        .expect(124);
    assert!(waited.stdout.contains("\"timeout\""), "{waited:?}");
    assert_eq!(
        fleet.running(&slow)["stopRequested"],
        serde_json::Value::Null
    );
    fleet.open("slow");
    fleet.run(&["wait", &slow, "--timeout", "60s"]).expect(0);
    let productive = fleet.dispatch("note 'Add a note'");
    fleet.run(&["wait", &productive]).expect(0);
    assert_eq!(fleet.over(&productive)["liveness"], "productive");
    let failing = fleet.dispatch("fail 'It broke'");
    let waited = fleet.run(&["wait", &failing]).expect(1);
    assert!(waited.stdout.contains("It broke"), "{waited:?}");
    let mute = fleet.dispatch("true");
    fleet.run(&["wait", &mute]).expect(1);
    assert_eq!(fleet.over(&mute)["liveness"], "empty");
    fleet.run(&["wait", "no-such-run"]).expect(1);
    let args = [
        "dispatch",
        "--agent",
        "ada",
        "--space",
        "room",
        "--wait",
        "--timeout",
        "60s",
        "say hello",
    ];
    fleet.run(&args).expect(0);
}

#[test]
fn a_stopped_run_is_not_the_agents_failure_and_cannot_refuse() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let gate = fleet.gate("never");
    let deaf = fleet.dispatch(&format!("trap '' TERM; say 'I stay'; {gate}"));
    fleet.until("the agent is deaf", |fleet| {
        let logs = fleet.run(&["logs", &deaf]);
        logs.stdout.contains("I stay").then_some(())
    });
    let process = fleet.running(&deaf)["process"]["pid"].as_i64().unwrap();
    fleet.run(&["stop", &deaf]).expect(0);
    // Following ends with the run.
    let logs = fleet.run(&["logs", "--follow", &deaf]).expect(0).stdout;
    assert!(logs.contains("I stay"), "{logs}");
    let run = fleet.over(&deaf);
    assert_eq!(run["status"], "error");
    assert_eq!(run["liveness"], "failed");
    assert_eq!(run["errorFamily"], serde_json::Value::Null);
    assert_eq!(run["endReason"], "stoppedByHuman");
    assert_eq!(run["summary"], "stopped by a person");
    assert!(is_gone(i32::try_from(process).unwrap()));

    // One that waits is dropped, and says so.
    fleet.run(&["pause", "ada"]).expect(0);
    let waiting = fleet.dispatch("note 'Never'");
    fleet.held(&waiting, "PausedByOperator");
    fleet.run(&["stop", &waiting]).expect(0);
    let waited = fleet.run(&["wait", &waiting, "--timeout", "60s"]).expect(1);
    assert!(waited.stdout.contains("it never started"), "{waited:?}");
}
