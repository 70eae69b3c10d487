//! Claude Code that somebody stops.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use homeostat::task::Tracker;
use serde_json::Value;

use super::{ANSWER_MICROS, BEGUN_MICROS, adapter, nothing_is_left, verdict, with_claude};
use crate::claude::programs;
use crate::e2e::rig::Fleet;
use crate::support::model_server::ModelServer;

/// What everyone who asks later is told of a run that a person stopped.
#[track_caller]
fn stopped_by_a_person(fleet: &Fleet, run: &Value) {
    assert_eq!(verdict(run), ["error", "failed", ""], "{run}");
    assert_eq!(run["errorCode"], Value::Null, "{run}");
    assert_eq!(run["endReason"], "stoppedByHuman");
    assert_eq!(run["summary"], "stopped by a person");
    nothing_is_left(run);
    // Nor does anything follow from it.
    assert_eq!(fleet.get("agent", "ada")["hold"], Value::Null);
    assert_eq!(fleet.runs().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_stopped_in_a_tool_is_not_done() {
    let tracker = Tracker::new();
    for program in programs("a_run_that_is_stopped_in_a_tool_is_not_done") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        fleet.start();
        let begun = fleet.path("open").join("begun");
        let run = fleet.dispatch(&format!(
            "Go on.\nCMD=touch {} && sleep 300",
            begun.display()
        ));
        fleet.until("the tool runs", |fleet| fleet.left("begun"));
        fleet.run(&["stop", &run]).expect(0);
        let run = fleet.over(&run);
        stopped_by_a_person(&fleet, &run);
        let events = fleet.run(&["logs", run["id"].as_str().unwrap()]).stdout;
        assert!(events.contains("ended: stoppedByHuman"), "{events}");
        // A version may ask its model once more before it goes. What that costs is counted.
        let asked = u64::try_from(server.asked("ok")).unwrap();
        assert!((1..=2).contains(&asked), "{asked}");
        assert_eq!(run["usage"]["costMicros"], asked * ANSWER_MICROS, "{run}");
    }
}

/// Some ways of starting the program make it answer TERM in a tool with a result that says success,
/// and exit with 0. This one does not hear an interrupt, so that it gets there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_after_a_stop_is_none() {
    const POLITE: &str = r#"#!/bin/sh
trap 'echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"All done.\"}"; exit 0' TERM
exec 3<&0
{ head -n 1 <&3; exec sleep 1000; } | claude "$@" &
wait $!
"#;
    let tracker = Tracker::new();
    for program in programs("a_success_after_a_stop_is_none") {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "ok");
        let polite = fleet.path("polite");
        let script = POLITE.replace("claude", program.to_str().unwrap());
        std::fs::write(&polite, script).unwrap();
        std::fs::set_permissions(&polite, Permissions::from_mode(0o755)).unwrap();
        fleet.put("Adapter", "claude", &adapter(&polite, &server, "ok"));
        fleet.commit("Ada is polite");
        fleet.start();
        let begun = fleet.path("open").join("begun");
        let run = fleet.dispatch(&format!(
            "Go on.\nCMD=touch {} && sleep 300",
            begun.display()
        ));
        fleet.until("the tool runs", |fleet| fleet.left("begun"));
        fleet.run(&["stop", &run]).expect(0);
        let run = fleet.over(&run);
        assert_eq!(run["exitCode"], 0, "{run}");
        stopped_by_a_person(&fleet, &run);
        assert_eq!(run["usage"]["costMicros"], ANSWER_MICROS, "{run}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_stopped_while_its_model_speaks_is_charged_for_what_it_heard() {
    let tracker = Tracker::new();
    let name = "a_run_that_is_stopped_while_its_model_speaks_is_charged_for_what_it_heard";
    for program in programs(name) {
        let server = ModelServer::start(&tracker).await;
        let mut fleet = with_claude(&program, &server, "stall");
        fleet.start();
        let run = fleet.dispatch("Go on.");
        fleet.until("the model speaks", |_| {
            (server.asked("stall") == 1).then_some(())
        });
        fleet.run(&["stop", &run]).expect(0);
        let run = fleet.over(&run);
        stopped_by_a_person(&fleet, &run);
        assert_eq!(run["usage"]["costMicros"], BEGUN_MICROS, "{run}");
    }
}
