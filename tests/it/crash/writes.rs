//! Writes to the database that fail, as on a failing disk: the daemon goes on by itself.

use super::check::{Tally, check};
use super::fleet::Fleet;
use super::rig::{Random, World, seed};

/// What the failing writer says.
const INJECTED: &str = "disk I/O error (injected)";

/// Works a backlog off while the `nth` write fails; whether it came to that.
pub(super) fn one(backlog: usize, nth: u64) -> (Tally, bool) {
    let mut world = World::new(Fleet::of(backlog));
    let mut daemon = world.start(&["--fail-write", &nth.to_string()]);
    world.finish(&mut daemon);
    let has_failed = daemon.said().contains(INJECTED);
    drop(daemon.stop());
    let tally = check(&world);
    assert_eq!(
        tally.completed, backlog,
        "write {nth}: one loss costs one attempt"
    );
    (tally, has_failed)
}

/// Writes of a life that works `BACKLOG` wakes off; there are some more.
const WRITES: u64 = 60;
const BACKLOG: usize = 4;

#[test]
fn six_of_them() {
    for nth in spread(seed(), WRITES, 6) {
        let (_, has_failed) = one(BACKLOG, nth);
        assert!(has_failed, "write {nth} was not reached");
    }
}

/// How many writes a life makes that works a backlog off.
pub(super) fn count(backlog: usize) -> u64 {
    let far = 1_000_000;
    let mut world = World::new(Fleet::of(backlog));
    let mut daemon = world.start(&["--fail-write", &far.to_string()]);
    world.finish(&mut daemon);
    let said = daemon.stop();
    check(&world);
    let (_, left) = said.split_once("left=").expect("it says how many are left");
    let left: String = left.chars().take_while(char::is_ascii_digit).collect();
    far - left.parse::<u64>().unwrap()
}

/// One number from each of `parts` equal parts of `1..=all`.
pub(super) fn spread(seed: u64, all: u64, parts: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let width = all / parts;
    (0..parts)
        .map(|part| 1 + part * width + random.below(width))
        .collect()
}
