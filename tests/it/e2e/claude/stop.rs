//! Claude Code that somebody stops.

use homeostat::task::Tracker;
use serde_json::Value;

use super::{ANSWER_MICROS, BEGUN_MICROS, nothing_is_left, verdict, with_claude};
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
        // Told to go, it ends its tool, asks its model once more and says that all is well: version
        // for version. What that costs is counted.
        let events = fleet.run(&["logs", run["id"].as_str().unwrap()]).stdout;
        assert!(events.contains("ended: stoppedByHuman"), "{events}");
        let asked = u64::try_from(server.asked("ok")).unwrap();
        assert!((1..=2).contains(&asked), "{asked}");
        assert_eq!(run["usage"]["costMicros"], asked * ANSWER_MICROS, "{run}");
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
