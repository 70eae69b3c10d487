//! The daemon's own end, and what becomes of the runs that it ended.

use rustix::process::Signal;

use super::rig::Fleet;

#[test]
fn a_stopping_daemon_lets_live_runs_finish_and_starts_none() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let live = fleet.dispatch(&format!("{}; note Finished", fleet.gate("live")));
    fleet.running(&live);
    fleet.signal(Signal::TERM);
    fleet.until("it drains", |fleet| {
        fleet.said().contains("stopping: ").then_some(())
    });
    let late = fleet
        .run(&[
            "dispatch",
            "--agent",
            "ada",
            "--space",
            "room",
            "--conversation",
            "side",
            "say Late",
        ])
        .line();
    fleet.held(&late, "Draining");
    fleet.open("live");
    assert!(fleet.ended().success(), "{}", fleet.said());
    assert_eq!(fleet.over(&live)["liveness"], "productive");
    assert_eq!(fleet.runs().len(), 1);
    fleet.start();
    assert_eq!(fleet.over(&late)["liveness"], "completed");
}

#[test]
fn a_daemon_that_is_stopped_while_it_starts_ends_in_order() {
    let mut fleet = Fleet::plain();
    fleet.begin();
    fleet.signal(Signal::TERM);
    assert!(fleet.ended().success(), "{}", fleet.said());
}

#[test]
fn a_run_that_the_daemon_ended_is_tried_again_and_has_lost_no_attempt() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let first = fleet.dispatch(&format!("{}; say Finished", fleet.gate("live")));
    fleet.running(&first);
    let mut last = first;
    for _ in 0..2 {
        fleet.signal(Signal::TERM);
        fleet.until("it drains", |fleet| {
            fleet.said().contains("stopping: ").then_some(())
        });
        fleet.signal(Signal::TERM);
        assert!(fleet.ended().success(), "{}", fleet.said());
        let run = fleet.over(&last);
        assert_eq!(run["endReason"], "daemonShutdown");
        assert_eq!(
            (&run["status"], &run["attempt"]),
            (&"error".into(), &0.into())
        );
        fleet.start();
        last = fleet.until("it is tried again", |fleet| {
            let runs = fleet.runs();
            let next = runs.iter().find(|run| run["retryOf"] == last.as_str())?;
            Some(next["id"].as_str()?.to_owned())
        });
        fleet.running(&last);
    }
    fleet.open("live");
    let run = fleet.over(&last);
    assert_eq!(
        (&run["liveness"], &run["reason"]),
        (&"completed".into(), &"recovery".into())
    );
    assert_eq!(fleet.runs().len(), 3);
}
