//! The emergency stop, with the daemon and without it.

use std::fs;
use std::time::Duration;

use homeostat::process::deadline::Deadline;
use rustix::process::{Pid, Signal, kill_process};

use super::rig::{Fleet, is_gone};

#[test]
fn an_emergency_stop_ends_what_runs_and_holds_what_would() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let live = fleet.dispatch(&fleet.gate("never"));
    fleet.running(&live);
    fleet.run(&["estop", "--reason", "a bad prompt"]).expect(0);
    let run = fleet.over(&live);
    assert_eq!(
        (&run["status"], &run["liveness"]),
        (&"error".into(), &"failed".into())
    );
    assert_eq!(run["endReason"], "estop");
    assert!(run["errorFamily"].is_null(), "{run}");
    let next = fleet.dispatch("say Next");
    let why = fleet.held(&next, "Estop");
    assert!(why.contains("a bad prompt"), "{why}");
    fleet.restart();
    fleet.held(&next, "Estop");
    assert_eq!(fleet.runs().len(), 1);
    fleet.run(&["estop", "--clear"]).expect(0);
    assert_eq!(fleet.over(&next)["liveness"], "completed");
    assert_eq!(fleet.runs().len(), 2);
}

#[test]
fn an_emergency_stop_needs_no_daemon() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let survivor = fleet.path("open").join("survivor");
    let live = fleet.dispatch(&format!(
        "sleep 300 & echo $! >{}; wait",
        survivor.display()
    ));
    let pid = fleet.until("the agent works", |fleet| {
        fleet.left("survivor")?.trim().parse::<i32>().ok()
    });
    // Nobody is left to end the agent: neither the daemon nor what it started the agent with.
    let shim = fleet.running(&live)["process"]["pid"].as_i64().unwrap();
    fleet.signal(Signal::STOP);
    kill(i32::try_from(shim).unwrap());
    fleet.signal(Signal::KILL);
    fleet.ended();
    assert!(!is_gone(pid), "the agent is to survive");

    let answer = fleet
        .run(&["estop", "--reason", "the daemon is sick"])
        .expect(0);
    assert!(
        answer
            .stdout
            .contains(&format!("run {live} was ended from here")),
        "{answer:?}"
    );
    assert!(is_gone(pid));
    let file = fs::read_to_string(fleet.path("data/ESTOP")).unwrap();
    assert!(file.contains("the daemon is sick"), "{file}");

    fleet.start();
    let run = fleet.over(&live);
    assert_eq!(
        (&run["status"], &run["endReason"]),
        (&"error".into(), &"estop".into())
    );
    assert_eq!(fleet.runs().len(), 1);
    // What the stop ended is not tried again.
    fleet.run(&["estop", "--clear"]).expect(0);
    let next = fleet.dispatch("say Next");
    assert_eq!(fleet.over(&next)["liveness"], "completed");
    assert_eq!(fleet.runs().len(), 2);
}

#[test]
fn an_emergency_stop_does_not_wait_for_a_daemon_that_hangs() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let live = fleet.dispatch(&format!("trap '' TERM; say Deaf; {}", fleet.gate("never")));
    let shim = fleet.running(&live)["process"]["pid"].as_i64().unwrap();
    fleet.signal(Signal::STOP);
    let late = Deadline::after(Duration::from_secs(20));
    let answer = fleet.run(&["estop"]).expect(0);
    assert!(!late.passed(), "{answer:?}");
    assert!(answer.stdout.contains("was ended from here"), "{answer:?}");
    assert!(is_gone(i32::try_from(shim).unwrap()));
    // When it comes to, it neither blames the agent nor tries again.
    fleet.signal(Signal::CONT);
    let run = fleet.over(&live);
    assert_eq!(run["endReason"], "estop");
    assert!(run["errorFamily"].is_null(), "{run}");
    fleet.run(&["estop", "--clear"]).expect(0);
    let next = fleet.dispatch("say Next");
    assert_eq!(fleet.over(&next)["liveness"], "completed");
    assert_eq!(fleet.runs().len(), 2);
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}
