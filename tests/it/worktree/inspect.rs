//! A tree's state, told without obeying the tree.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use homeostat::model::observed::WorktreeBackend;
use homeostat::worktree::inspect::{TreeFacts, inspect};

use super::fixture::{
    Disk, agent_git, agent_write, canary, fingerprint, give, make_hostile, source, tool, user,
    worktree,
};

#[test]
fn facts_follow_what_the_agent_does() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    let look = || inspect(&layout, tree, &made.base, user()).unwrap();
    let clean = TreeFacts {
        head: Some(made.base.clone()),
        branch: Some("homeostat/room".to_owned()),
        ahead_of_base: Some(0),
        ..TreeFacts::default()
    };
    assert_eq!(look(), clean);
    assert!(!look().is_changed_since(&made.base));
    // Of the same length, in the same second as the checkout: git must not believe the time.
    agent_write(&tree.join("plain"), "dirty");
    assert_eq!(look().modified, 1);

    agent_write(&tree.join("plain"), "changed");
    agent_write(&tree.join("new"), "new");
    agent_write(&tree.join("ignored"), "ignored");
    fs::remove_file(tree.join("-dash")).unwrap();
    agent_write(&tree.join("dir/file"), "staged");
    agent_git(tree, &["add", "dir/file"]);
    let facts = look();
    assert_eq!((facts.modified, facts.staged, facts.untracked), (2, 1, 1));
    assert!(facts.is_dirty() && facts.is_changed_since(&made.base));

    agent_git(tree, &["stash", "-q"]);
    agent_git(tree, &["commit", "-q", "--allow-empty", "-m", "one"]);
    agent_git(tree, &["commit", "-q", "--allow-empty", "-m", "two"]);
    let facts = look();
    assert_eq!(
        (facts.ahead_of_base, facts.stashes, facts.modified),
        (Some(2), 1, 0)
    );
    agent_git(tree, &["checkout", "-q", "--detach"]);
    assert_eq!(look().branch, None);
}

#[test]
fn what_is_not_committed_has_a_fingerprint() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    let look = || inspect(&layout, tree, &made.base, user()).unwrap();
    assert_eq!((look().dirt, look().changed), (None, Vec::new()));
    let mut seen = Vec::new();
    let steps: [&dyn Fn(); 8] = [
        &|| agent_write(&tree.join("plain"), "one"),
        // The tree is dirty already, by the same path and with the same size.
        &|| agent_write(&tree.join("plain"), "two"),
        &|| agent_write(&tree.join("new"), "new"),
        &|| agent_write(&tree.join("new"), "newer"),
        &|| drop(agent_git(tree, &["add", "plain"])),
        &|| fs::remove_file(tree.join("plain")).unwrap(),
        &|| drop(agent_git(tree, &["init", "-q", "nested"])),
        &|| drop(agent_git(tree, &["stash", "-q"])),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        step();
        let dirt = look().dirt;
        assert!(dirt.is_some() && !seen.contains(&dirt), "step {number}");
        assert_eq!(look().dirt, dirt, "step {number}");
        seen.push(dirt);
    }
    agent_write(&tree.join("plain"), "three");
    assert_eq!(look().changed, ["nested", "new", "plain"]);
}

#[test]
fn hidden_changes_are_seen() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    agent_git(tree, &["update-index", "--assume-unchanged", "plain"]);
    agent_git(tree, &["update-index", "--skip-worktree", "large"]);
    agent_write(&tree.join("plain"), "hidden");
    agent_write(&tree.join("large"), "hidden");
    assert_eq!(agent_git(tree, &["diff-files", "--name-only"]), "");
    let facts = inspect(&layout, tree, &made.base, user()).unwrap();
    assert_eq!(facts.modified, 2);
}

#[test]
fn an_index_that_cannot_be_copied_is_done_without() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let look = || inspect(&layout, &made.path, &made.base, user()).unwrap();
    agent_git(&made.path, &["update-index", "--split-index"]);
    assert!(!look().is_dirty());
    let index = made.path.join(".git/index");
    for damage in [b"garbage".as_slice(), b""] {
        fs::write(&index, damage).unwrap();
        assert!(!look().is_dirty());
    }
    fs::remove_file(&index).unwrap();
    symlink("/etc/passwd", &index).unwrap();
    assert!(!look().is_dirty());
}

#[test]
fn looking_executes_and_changes_nothing() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let tree = &made.path;
    let (program, mark) = canary(&disk.path());
    make_hostile(tree, "./x", &program);
    for nested in ["nested", "tracked"] {
        agent_write(&tree.join(nested).join("file"), "changed");
    }
    let before = fingerprint(tree);
    let facts = inspect(&layout, tree, &made.base, user()).unwrap();
    assert!(facts.is_dirty() && facts.nested == 1, "{facts:?}");
    assert!(!mark.exists(), "something of the tree's was executed");
    assert_eq!(fingerprint(tree), before);
    let scratch = fs::read_dir(layout.build()).unwrap().count();
    assert_eq!(scratch, 0, "scratch was left");
    // The trap is live: git as people run it walks into it.
    let tree = tree.to_str().unwrap();
    tool("git", &["-c", "safe.directory=*", "-C", tree, "status"]);
    assert!(mark.exists());
}

#[test]
fn an_unreadable_repository_is_unknown_and_not_clean() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let git_directory = made.path.join(".git");
    let head = fs::read(git_directory.join("HEAD")).unwrap();
    fs::write(git_directory.join("HEAD"), "nonsense").unwrap();
    assert!(inspect(&layout, &made.path, &made.base, user()).is_err());
    fs::write(git_directory.join("HEAD"), head).unwrap();
    // A `.git` that leads elsewhere is not followed.
    let elsewhere = disk.path().join("elsewhere");
    fs::rename(&git_directory, &elsewhere).unwrap();
    symlink(&elsewhere, &git_directory).unwrap();
    assert!(inspect(&layout, &made.path, &made.base, user()).is_err());
    fs::remove_file(&git_directory).unwrap();
    agent_write(
        &git_directory,
        &format!("gitdir: {}\n", elsewhere.display()),
    );
    assert!(inspect(&layout, &made.path, &made.base, user()).is_err());
    // Without any repository every file is untracked.
    fs::remove_file(&git_directory).unwrap();
    fs::create_dir(made.path.join("empty-directory")).unwrap();
    give(&made.path.join("empty-directory"));
    fs::set_permissions(&made.path, Permissions::from_mode(0o755)).unwrap();
    let facts = inspect(&layout, &made.path, &made.base, user()).unwrap();
    assert_eq!((facts.head.clone(), facts.nested), (None, 0));
    assert!(facts.untracked > 10, "{facts:?}");
}
