//! A volume that can't clone: nothing weaker instead, and nothing left behind.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::rig::{Fleet, fingerprint};
use crate::support::disk::Disk;

#[test]
fn no_plain_copy_stands_in_for_a_reflink() {
    let test = "no_plain_copy_stands_in_for_a_reflink";
    let Some(disk) = Disk::without_reflink(test) else {
        return;
    };
    let mut fleet = Fleet::on(disk, "reflink");
    fleet.start();
    assert!(
        fleet.said().contains("worktrees=reflink (refused here: "),
        "{}",
        fleet.said()
    );
    let before = fingerprint(&fleet.path("app"));
    let run = fleet.dispatch("note 'It ran'");
    let why = fleet.held(&run, "ProvisionFailed");
    assert!(why.contains("homeostat volume create"), "{why}");
    let why = fleet.held("space/room", "Terminal");
    assert!(why.contains("--worktree-backend git"), "{why}");
    let space = fleet.get("space", "room");
    let provisioned = space["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["type"] == "Provisioned");
    let provisioned = provisioned.expect("a space says whether it is provisioned");
    assert_eq!(provisioned["status"], "False");
    assert_eq!(provisioned["reason"], "ProvisionFailed");
    assert_eq!(fleet.runs().len(), 0);
    assert_eq!(files_below_repos(&fleet.path("data")), 0);
    assert_eq!(fingerprint(&fleet.path("app")), before);

    // The remedy is taken outside the manifests, so a start is what makes it count.
    fleet.signal(Signal::TERM);
    assert!(fleet.ended().success(), "{}", fleet.said());
    fleet.backend = "git";
    fleet.start();
    let run = fleet.over(&run);
    assert_eq!(run["liveness"], "productive");
    assert_eq!(run["worktreeBackend"], "git");
}

#[test]
fn a_cause_that_no_manifest_shows_is_looked_at_again_when_somebody_asks() {
    let mut fleet = Fleet::plain();
    fleet.git("app", &["checkout", "--quiet", "--orphan", "empty"]);
    fleet.start();
    let run = fleet.dispatch("note 'It ran'");
    let why = fleet.held("space/room", "Terminal");
    assert!(why.contains("make a first commit in the source"), "{why}");
    fleet.git("app", &["commit", "--quiet", "-m", "Begin"]);
    fleet.run(&["reconcile"]).expect(0);
    assert_eq!(fleet.over(&run)["liveness"], "productive");
}

/// How many names there are below any `repos` directory of the workspaces, and in what is built.
fn files_below_repos(data: &Path) -> usize {
    let list = |path: &Path| -> Vec<_> {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let workspaces = list(&data.join("workspaces"));
    let spaces = workspaces.iter().flat_map(|it| list(&it.join("spaces")));
    let in_repos: usize = spaces.map(|it| list(&it.join("repos")).len()).sum();
    in_repos + list(&data.join("build")).len()
}
