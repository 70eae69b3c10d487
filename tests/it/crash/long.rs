//! The long form, for `cargo xtask crash --all`: every point, 40 failed writes, 50 kills, each over
//! a backlog of 20 wakes. Progress goes to standard error, the result to standard output, in lines
//! that begin with `crash `.

use homeostat::model::crash::CrashPoint;
use strum::IntoEnumIterator;

use super::check::Tally;
use super::fleet::Fleet;
use super::rig::{Random, seed};
use super::{kills, points, writes};

const BACKLOG: usize = 20;
const WRITES: u64 = 40;
const KILLS: usize = 50;

#[test]
#[ignore = "takes minutes: cargo xtask crash --all"]
fn every_point() {
    let mut random = Random::new(seed());
    let mut count = 0;
    for point in CrashPoint::iter() {
        let nth = match point {
            CrashPoint::RevisionAccepted => 1,
            CrashPoint::WorktreeRecorded | CrashPoint::WorktreeMade => 1 + random.below(3),
            CrashPoint::OrphanKilled => 1,
            CrashPoint::RunAdmitted
            | CrashPoint::ShimSpawned
            | CrashPoint::IdentityStored
            | CrashPoint::AgentReleased
            | CrashPoint::EventStored
            | CrashPoint::ProcessGone
            | CrashPoint::RunClosed
            | CrashPoint::RunSettled => 1 + random.below(20),
            CrashPoint::TreeSalvaged | CrashPoint::TreeTrashed => {
                points::salvages(Fleet::of(BACKLOG), point);
                eprintln!("point {point}: salvaged once");
                count += 1;
                continue;
            }
        };
        let before = if point == CrashPoint::OrphanKilled {
            &[CrashPoint::AgentReleased][..]
        } else {
            &[]
        };
        let tally = points::survives(Fleet::of(BACKLOG), before, point, nth);
        eprintln!("point {point}:{nth}: {tally}");
        count += 1;
    }
    println!("crash points: {count} survived");
}

#[test]
#[ignore = "takes minutes: cargo xtask crash --all"]
fn forty_failed_writes() {
    let all = writes::count(BACKLOG);
    let mut failed = 0;
    for nth in writes::spread(seed(), all, WRITES) {
        let (tally, has_failed) = writes::one(BACKLOG, nth);
        failed += u64::from(has_failed);
        let came = if has_failed { "failed" } else { "not reached" };
        eprintln!("write {nth} of about {all}: {came}, {tally}");
    }
    println!("crash writes: {failed} of {WRITES} failed and were survived");
}

#[test]
#[ignore = "takes minutes: cargo xtask crash --all"]
fn fifty_kills() {
    let tally: Tally = kills::many(seed(), BACKLOG, KILLS);
    println!("crash kills: {KILLS} survived, {tally}");
}
