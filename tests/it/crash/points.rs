//! Every named crash point.

use homeostat::git::command::Git;
use homeostat::model::crash::CrashPoint;

use super::check::{Tally, check};
use super::fleet::Fleet;
use super::rig::{LONG, World};

const SMALL: Fleet = Fleet {
    spaces: 2,
    wakes: 4,
    at_once: 2,
};

/// Dies at `point`, and before that at each of `before` in a life of its own, then lives on to the
/// end: a single death costs a wake one attempt at most.
pub(super) fn survives(fleet: Fleet, before: &[CrashPoint], point: CrashPoint, nth: u64) -> Tally {
    let mut world = World::new(fleet);
    for (point, nth) in before.iter().map(|it| (it, 1)).chain([(&point, nth)]) {
        world
            .start(&["--crash-at", &format!("{point}:{nth}")])
            .dies();
    }
    let mut daemon = world.start(&[]);
    world.finish(&mut daemon);
    drop(daemon.stop());
    let tally = check(&world);
    assert_eq!(tally.completed, world.fleet.wakes);
    tally
}

/// Removes a space whose worktree holds work that was not committed, dies at `point`, and lives on
/// until the space is gone: its work is in a salvage ref, once.
pub(super) fn salvages(fleet: Fleet, point: CrashPoint) {
    let mut world = World::new(fleet);
    let mut daemon = world.start(&[]);
    world.finish(&mut daemon);
    drop(daemon.stop());
    check(&world);
    world.fleet.spaces -= 1;
    let leaving = format!("Space/core/space-{}", world.fleet.spaces);
    let trees = world.records().trees;
    let tree = trees.into_iter().find(|it| it.of == leaving).unwrap().path;
    std::fs::write(tree.join("draft.txt"), "not committed\n").unwrap();
    world.declare();
    world.start(&["--crash-at", &format!("{point}:1")]).dies();
    let mut daemon = world.start(&[]);
    world.wait(&mut daemon, "the end of the space", |records, fleet| {
        records.trees.len() == fleet.spaces && records.roots == fleet.spaces
    });
    drop(daemon.stop());
    assert!(!tree.exists());
    let [(reference, commit)] = &world.records().salvages[..] else {
        panic!("not one salvage: {:?}", world.records().salvages);
    };
    let repos = std::fs::read_dir(world.data().join("repos")).unwrap();
    let repos: Vec<_> = repos.map(|entry| entry.unwrap().path()).collect();
    let cache = repos[0].join("salvage.git");
    let git = |subcommand| Git::new(&cache, subcommand);
    let stored = git("rev-parse").arg(reference).run().unwrap();
    assert_eq!(stored.line().unwrap(), commit);
    let names = git("for-each-ref").args(["--format=%(refname)", "refs/homeostat/salvage"]);
    assert_eq!(names.run().unwrap().line().unwrap(), reference);
    let draft = git("show")
        .arg(format!("{reference}:draft.txt"))
        .run()
        .unwrap();
    assert_eq!(draft.stdout, b"not committed\n");
}

/// One test a point: they run beside each other.
macro_rules! points {
    ($($test:ident: $point:ident $nth:literal, after $before:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let _tally = survives(SMALL, &$before, CrashPoint::$point, $nth);
            }
        )*
    };
}

points! {
    a_revision_was_accepted: RevisionAccepted 1, after [];
    a_worktree_is_recorded: WorktreeRecorded 1, after [];
    the_second_worktree_is_made: WorktreeMade 2, after [];
    the_second_run_is_admitted: RunAdmitted 2, after [];
    a_shim_was_spawned: ShimSpawned 1, after [];
    an_identity_is_stored: IdentityStored 1, after [];
    the_second_agent_was_released: AgentReleased 2, after [];
    an_event_is_stored: EventStored 1, after [];
    a_process_is_gone: ProcessGone 1, after [];
    the_second_run_is_closed: RunClosed 2, after [];
    a_run_is_settled: RunSettled 1, after [];
    an_orphan_was_killed: OrphanKilled 1, after [CrashPoint::AgentReleased];
}

#[test]
fn the_work_of_a_tree_is_saved() {
    salvages(SMALL, CrashPoint::TreeSalvaged);
}

#[test]
fn a_tree_is_in_the_trash() {
    salvages(SMALL, CrashPoint::TreeTrashed);
}

#[test]
fn a_panic_of_the_loop_ends_the_daemon_and_the_next_goes_on() {
    let mut world = World::new(SMALL);
    let mut daemon = world.start(&["--panic-at", "revisionAccepted:1"]);
    let ended = daemon.ended_within(LONG).and_then(|status| status.code());
    assert_eq!(ended, Some(70), "{}", daemon.said());
    assert!(
        daemon.said().contains("the daemon stopped by itself"),
        "{}",
        daemon.said()
    );
    let mut daemon = world.start(&[]);
    world.finish(&mut daemon);
    drop(daemon.stop());
    assert_eq!(check(&world).completed, world.fleet.wakes);
}
