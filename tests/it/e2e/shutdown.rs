//! The daemon's own end, and what becomes of the runs that it ended.

use std::fs;

use homeostat::clock::{Clock, SystemClock};
use homeostat::model::run::EndReason;
use homeostat::store::{Effect, Store};
use rustix::fs::{CWD, FileType, Mode, mknodat};
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

#[test]
fn a_source_that_never_answers_holds_up_nothing_and_not_the_end() {
    let mut fleet = Fleet::plain();
    fleet.start();
    // Whoever opens it to read waits for a writer, for ever.
    let branch = fleet.path("config").join(".git/refs/heads/main");
    fs::remove_file(&branch).unwrap();
    mknodat(CWD, &branch, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fleet.run(&["reconcile"]).expect(0);
    fleet.until("the source is waited for", |fleet| {
        let health = fleet.health();
        (!health["sourceWaitingSince"].is_null()).then_some(())
    });
    let meanwhile = fleet.dispatch("say Meanwhile");
    assert_eq!(fleet.over(&meanwhile)["liveness"], "completed");
    assert!(!fleet.health()["sourceWaitingSince"].is_null());
    fleet.signal(Signal::TERM);
    assert!(fleet.ended().success(), "{}", fleet.said());
}

#[test]
fn a_stop_that_is_on_record_only_is_delivered() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let live = fleet.dispatch(&fleet.gate("never"));
    fleet.running(&live);
    // As a client that goes away between the row and the lever leaves it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::open(&fleet.path("data/homeostat.db")).unwrap();
        let (by, reason) = ("Olga".to_owned(), EndReason::StoppedByHuman);
        let run = live.parse().unwrap();
        let asked = store.request_stop(run, reason, by, SystemClock.now());
        assert_eq!(asked.await.unwrap(), Effect::Applied);
    });
    fleet.run(&["reconcile"]).expect(0);
    assert_eq!(fleet.over(&live)["endReason"], "stoppedByHuman");
}
