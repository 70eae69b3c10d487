//! Work that nobody handed over survives its tree.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use homeostat::model::observed::WorktreeBackend;
use homeostat::worktree::layout::Layout;
use homeostat::worktree::provision::Provisioned;
use homeostat::worktree::salvage::{SalvageRef, SalvageRequest, salvage};

use super::fixture::{
    Disk, agent_git, agent_write, canary, fingerprint, git, give, id, make_hostile, now, source,
    user, worktree,
};

fn save(layout: &Layout, made: &Provisioned) -> Option<SalvageRef> {
    let request = SalvageRequest {
        tree: made.path.clone(),
        space: id("space"),
        repo: id("repo"),
        base: made.base.clone(),
        user: user(),
        now: now(),
    };
    salvage(layout, &request).unwrap()
}

/// A checkout of what was saved.
fn restore(layout: &Layout, saved: &SalvageRef, at: &Path) -> PathBuf {
    let restored = at.join("restored");
    git(at, &["init", "-q", "restored"]);
    let saved_in = layout.salvage(id("repo"));
    let refspec = format!("{}:refs/heads/saved", saved.name);
    git(
        &restored,
        &["fetch", "-q", saved_in.to_str().unwrap(), &refspec],
    );
    git(&restored, &["checkout", "-q", "saved"]);
    git(&restored, &["fsck", "--connectivity-only"]);
    restored
}

#[test]
fn a_tree_without_work_needs_no_saving() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    assert_eq!(save(&layout, &made), None);
    agent_write(&made.path.join("ignored"), "x");
    agent_git(
        &made.path,
        &["checkout", "-q", "-b", "mine", "origin/other"],
    );
    assert_eq!(save(&layout, &made), None);
}

#[test]
fn everything_that_would_be_lost_can_be_restored() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    agent_write(&tree.join("stashed"), "stashed");
    agent_git(tree, &["add", "stashed"]);
    agent_git(tree, &["stash", "-q"]);
    agent_git(tree, &["checkout", "-q", "-b", "side"]);
    agent_write(&tree.join("side"), "side");
    agent_git(tree, &["add", "side"]);
    agent_git(tree, &["commit", "-qm", "side work"]);
    agent_git(tree, &["checkout", "-q", "homeostat/room"]);
    agent_write(&tree.join("committed"), "committed");
    agent_git(tree, &["add", "committed"]);
    agent_git(tree, &["commit", "-qm", "room work"]);
    let head = agent_git(tree, &["rev-parse", "HEAD"]);
    agent_write(&tree.join("both"), "staged");
    agent_git(tree, &["add", "both"]);
    agent_write(&tree.join("both"), "then changed");
    agent_write(&tree.join("new\nname"), "untracked");
    agent_write(&tree.join("ignored"), "ignored");
    fs::remove_file(tree.join("plain")).unwrap();
    // A file where a directory was.
    fs::remove_dir_all(tree.join("dir")).unwrap();
    agent_write(&tree.join("dir"), "now a file");
    agent_git(tree, &["init", "-q", "nested"]);
    agent_write(&tree.join("nested/inner"), "inner");
    agent_git(&tree.join("nested"), &["add", "inner"]);
    agent_git(&tree.join("nested"), &["commit", "-qm", "inner work"]);
    agent_write(&tree.join("nested/loose"), "loose");

    let before = fingerprint(tree);
    let saved = save(&layout, &made).unwrap();
    assert_eq!(fingerprint(tree), before, "saving changed the tree");
    assert_eq!(
        saved.name,
        format!("refs/homeostat/salvage/{}/20260304T050607089Z", id("space"))
    );
    assert_eq!(
        save(&layout, &made).map(|saved| saved.commit.as_str().len()),
        Some(40)
    );

    let restored = restore(&layout, &saved, &disk.path());
    let read = |name: &str| fs::read_to_string(restored.join(name)).unwrap();
    assert_eq!(read("committed"), "committed");
    assert_eq!(read("both"), "then changed");
    assert_eq!(read("new\nname"), "untracked");
    assert_eq!(read("dir"), "now a file");
    assert!(!restored.join("plain").exists() && !restored.join("ignored").exists());
    assert_eq!(git(&restored, &["rev-parse", "saved^1"]), head);
    let message = git(&restored, &["log", "-1", "--format=%b", "saved"]);
    for (what, path, content) in [
        ("refs/heads/side", "side", "side"),
        ("stash@{0}", "stashed", "stashed"),
        ("the index", "both", "staged"),
        ("the repository in \"nested\"", "inner", "inner"),
        ("the repository in \"nested\"", "loose", "loose"),
    ] {
        let line = message.lines().find(|line| line.ends_with(what));
        let line = line.unwrap_or_else(|| panic!("no {what} in {message}"));
        let number = line
            .trim_start_matches("parent ")
            .split(':')
            .next()
            .unwrap();
        let object = format!("saved^{number}:{path}");
        assert_eq!(
            git(&restored, &["cat-file", "blob", &object]),
            content,
            "{what}"
        );
    }
    let author = git(&restored, &["log", "-1", "--format=%ae %ct", "saved"]);
    assert_eq!(author.trim(), "salvage@homeostat.local 1772600767");
}

#[test]
fn saving_twice_names_what_was_saved() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    agent_write(&made.path.join("new"), "new");
    agent_git(&made.path, &["add", "new"]);
    agent_git(&made.path, &["commit", "-qm", "new"]);
    let first = save(&layout, &made).unwrap();
    assert_eq!(save(&layout, &made), Some(first.clone()));
    agent_write(&made.path.join("plain"), "dirty");
    let mut later = SalvageRequest {
        tree: made.path.clone(),
        space: id("space"),
        repo: id("repo"),
        base: made.base.clone(),
        user: user(),
        now: "2026-03-04T06:00:00Z".parse().unwrap(),
    };
    let second = salvage(&layout, &later).unwrap().unwrap();
    assert_ne!(second, first);
    later.now = "2026-03-04T07:00:00Z".parse().unwrap();
    assert_eq!(salvage(&layout, &later).unwrap(), Some(second));
}

#[test]
fn a_conflict_in_progress_is_saved_as_it_lies() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    agent_git(tree, &["checkout", "-q", "-b", "theirs"]);
    agent_write(&tree.join("plain"), "theirs\n");
    agent_git(tree, &["commit", "-qam", "theirs"]);
    agent_git(tree, &["checkout", "-q", "homeostat/room"]);
    agent_write(&tree.join("plain"), "ours\n");
    agent_git(tree, &["commit", "-qam", "ours"]);
    let merge = homeostat::git::command::Git::new(tree, "merge")
        .args(["-q", "theirs"])
        .env("GIT_COMMITTER_NAME", "A")
        .env("GIT_COMMITTER_EMAIL", "a@example.com")
        .user(user())
        .output();
    assert!(!merge.unwrap().is_success());
    let saved = save(&layout, &made).unwrap();
    let restored = restore(&layout, &saved, &disk.path());
    let plain = fs::read_to_string(restored.join("plain")).unwrap();
    assert!(
        plain.contains("<<<<<<<") && plain.contains("theirs"),
        "{plain}"
    );
}

#[test]
fn a_tree_without_its_repository_is_saved_as_files() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    agent_write(&made.path.join("new"), "new");
    fs::remove_dir_all(made.path.join(".git")).unwrap();
    let saved = save(&layout, &made).unwrap();
    let restored = restore(&layout, &saved, &disk.path());
    assert_eq!(fs::read_to_string(restored.join("new")).unwrap(), "new");
    assert_eq!(
        fs::read_to_string(restored.join("dir/file")).unwrap(),
        "dir/file"
    );
}

#[test]
fn what_its_owner_cannot_read_is_saved_too() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let closed = made.path.join("closed");
    fs::create_dir(&closed).unwrap();
    give(&closed);
    agent_write(&closed.join("secret"), "work");
    for path in [closed.join("secret"), closed] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let saved = save(&layout, &made).unwrap();
    let restored = restore(&layout, &saved, &disk.path());
    assert_eq!(
        fs::read_to_string(restored.join("closed/secret")).unwrap(),
        "work"
    );
}

#[test]
fn saving_executes_nothing_of_the_trees() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    let (program, mark) = canary(&disk.path());
    make_hostile(tree, "-x", &program);
    // Links that lead out are saved as links.
    std::os::unix::fs::symlink("/etc/passwd", tree.join("out")).unwrap();
    give(&tree.join("out"));
    agent_write(&tree.join("tracked/more"), "more");
    let saved = save(&layout, &made).unwrap();
    assert!(!mark.exists(), "something of the tree's was executed");
    let restored = restore(&layout, &saved, &disk.path());
    assert_eq!(
        fs::read_to_string(restored.join("plain")).unwrap(),
        "changed"
    );
    assert!(restored.join("out").is_symlink());
}
