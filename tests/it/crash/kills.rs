//! SIGKILL at any moment, of the daemon, of the shims, of both.

use std::time::Duration;

use homeostat::process::Pidfd;
use rustix::process::Signal;

use super::check::{Tally, check};
use super::fleet::Fleet;
use super::records::Records;
use super::rig::{Daemon, LONG, Random, World, seed};

/// Kills daemons, one after the other, each at a moment of its life that the seed says. Whenever a
/// backlog is done before the last kill, another one like it is declared.
pub(super) fn many(seed: u64, backlog: usize, kills: usize) -> Tally {
    let mut random = Random::new(seed);
    let mut world = World::new(Fleet::of(backlog));
    for _ in 0..kills {
        if world.is(Records::are_all_over) {
            world.fleet.wakes += backlog;
            world.declare();
        }
        let mut daemon = world.start(&[]);
        let moment = Duration::from_millis(random.below(1_500));
        assert!(daemon.ended_within(moment).is_none(), "{}", daemon.said());
        daemon.kill();
    }
    let mut daemon = world.start(&[]);
    world.finish(&mut daemon);
    drop(daemon.stop());
    check(&world)
}

#[test]
fn five_at_any_moment() {
    let _tally = many(seed(), 6, 5);
}

/// A world in which a run is live and its agent has been heard.
fn with_a_live_run() -> (World, Daemon) {
    let mut world = World::new(Fleet {
        spaces: 1,
        wakes: 1,
        at_once: 1,
    });
    world.hold();
    let mut daemon = world.start(&[]);
    world.wait(&mut daemon, "an agent that speaks", |records, _| {
        records.runs.iter().any(|run| run.was_heard)
    });
    (world, daemon)
}

#[test]
fn agents_end_by_themselves_when_the_daemon_is_killed() {
    let (world, daemon) = with_a_live_run();
    let shim = world.records().runs[0]
        .identity
        .clone()
        .expect("it was heard");
    let handle = Pidfd::open(&shim).unwrap().expect("it is watching");
    daemon.kill();
    assert!(handle.wait(LONG).unwrap(), "the shim lives on");
    // It goes only after everything below it, also what has left the session and ignores TERM.
    assert_eq!(world.processes(), [0; 0]);
    recover(world);
}

#[test]
fn survivors_of_daemon_and_shim_are_killed_before_the_next_attempt() {
    let (world, daemon) = with_a_live_run();
    let shim = world.records().runs[0]
        .identity
        .clone()
        .expect("it was heard");
    let handle = Pidfd::open(&shim).unwrap().expect("it is watching");
    // Both at once, so that neither can end what the other had: first they are stopped.
    handle.signal(Signal::STOP).unwrap();
    daemon.kill();
    handle.signal(Signal::KILL).unwrap();
    assert!(handle.wait(LONG).unwrap());
    assert!(!world.processes().is_empty(), "nobody to find");
    recover(world);
}

/// The next daemon brings the one wake to its end in the second attempt.
fn recover(mut world: World) {
    world.let_go();
    let mut daemon = world.start(&[]);
    world.finish(&mut daemon);
    drop(daemon.stop());
    let expected = Tally {
        wakes: 1,
        runs: 2,
        completed: 1,
    };
    assert_eq!(check(&world), expected);
}
