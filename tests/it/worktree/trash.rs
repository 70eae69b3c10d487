//! What is ours goes, what is not stays, and nothing that resists stops the rest.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use homeostat::model::observed::WorktreeBackend;
use homeostat::worktree::layout::Layout;
use homeostat::worktree::marker::{Marker, MarkerKind};
use homeostat::worktree::provision::{Provisioned, provision};
use homeostat::worktree::space::{SpaceRequest, ensure_overlay, ensure_space_root};
use homeostat::worktree::trash::{
    ReclaimRequest, TrashError, purge, reclaim, reclaim_space_root, sweep_build,
};

use super::fixture::{
    Disk, agent_git, agent_write, canary, fingerprint, git, id, names, now, request, source, user,
    worktree,
};

fn order(tree: &Path) -> ReclaimRequest {
    ReclaimRequest {
        tree: tree.to_owned(),
        space: id("space"),
        repo: id("repo"),
        now: now(),
    }
}

fn room() -> SpaceRequest {
    SpaceRequest {
        workspace: id("workspace"),
        space: id("space"),
        user: user(),
        now: now(),
    }
}

fn purge_all(layout: &Layout) -> Vec<PathBuf> {
    loop {
        let purged = purge(layout, 10).unwrap();
        assert!(purged.removed <= 10);
        if !purged.is_more {
            return purged.stuck.into_iter().map(|(path, _)| path).collect();
        }
    }
}

fn one_life(disk: &Disk, backend: WorktreeBackend) {
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let before = fingerprint(&source);
    let made = worktree(&layout, &source, backend);
    let overlay = ensure_overlay(&layout, &room(), id("agent")).unwrap();
    assert_eq!(
        ensure_overlay(&layout, &room(), id("agent")).unwrap(),
        overlay
    );
    agent_write(&overlay.join("notes"), "x");
    assert_eq!(reclaim(&layout, &order(&made.path)).unwrap(), None);
    assert!(!made.path.exists());
    assert_eq!(reclaim(&layout, &order(&made.path)).unwrap(), None);

    // The same place again, and work this time.
    let made = worktree(&layout, &source, backend);
    agent_write(&made.path.join("plain"), "work");
    agent_git(&made.path, &["commit", "-qam", "work"]);
    let tip = agent_git(&made.path, &["rev-parse", "HEAD"]);
    let saved = reclaim(&layout, &order(&made.path)).unwrap().unwrap();
    let parent = format!("{}^1", saved.name);
    assert_eq!(
        git(&layout.salvage(id("repo")), &["rev-parse", &parent]),
        tip
    );
    // As after a crash before the answer was recorded.
    assert_eq!(reclaim(&layout, &order(&made.path)).unwrap(), Some(saved));
    reclaim_space_root(&layout, id("workspace"), id("space")).unwrap();
    reclaim_space_root(&layout, id("workspace"), id("space")).unwrap();
    assert!(!layout.space(id("workspace"), id("space")).exists());
    let kept = layout.kept(id("space")).join(id("agent").to_string());
    assert_eq!(fs::read_to_string(kept.join("notes")).unwrap(), "x");
    assert_eq!(purge_all(&layout), Vec::<PathBuf>::new());
    assert_eq!(names(&layout.trash()), [layout.trash()]);
    assert_eq!(fingerprint(&source), before);
}

#[test]
fn a_space_goes_and_its_work_stays() {
    one_life(&Disk::plain(), WorktreeBackend::Git);
    if let Some(disk) = Disk::xfs("a_space_goes_and_its_work_stays") {
        one_life(&disk, WorktreeBackend::Reflink);
    }
}

#[test]
fn what_is_not_ours_stays() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    let root = layout.space(id("workspace"), id("space"));
    let foreign = root.join("repos/foreign");
    fs::create_dir(&foreign).unwrap();
    let mut another = order(&made.path);
    another.repo = id("another");
    let mut elsewhere = order(&made.path);
    elsewhere.space = id("another");
    let through = root.join("repos/x/../app");
    for wrong in [
        order(&foreign),
        another,
        elsewhere,
        order(&source),
        order(&through),
    ] {
        let before = names(&disk.path());
        let error = reclaim(&layout, &wrong).unwrap_err();
        assert!(
            matches!(
                error,
                TrashError::NotOurs { .. } | TrashError::Elsewhere { .. }
            ),
            "{error:?}"
        );
        assert_eq!(names(&disk.path()), before);
    }
    let occupied = reclaim_space_root(&layout, id("workspace"), id("space"));
    assert!(matches!(occupied, Err(TrashError::Occupied { .. })));
    reclaim(&layout, &order(&made.path)).unwrap();
    let occupied = reclaim_space_root(&layout, id("workspace"), id("space"));
    assert!(matches!(occupied, Err(TrashError::Occupied { .. })));
    fs::remove_dir(foreign).unwrap();
    fs::remove_file(root.join(".homeostat")).unwrap();
    let unmarked = reclaim_space_root(&layout, id("workspace"), id("space"));
    assert!(matches!(unmarked, Err(TrashError::NotOurs { .. })));
    assert!(root.exists());
}

#[test]
fn what_an_agent_left_in_its_overlay_is_kept() {
    let disk = Disk::plain();
    let layout = disk.layout();
    let elsewhere = disk.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let life = |agents: &[&str]| {
        ensure_space_root(&layout, &room()).unwrap();
        agents.iter().for_each(|agent| {
            let overlay = ensure_overlay(&layout, &room(), id(agent)).unwrap();
            agent_write(&overlay.join("notes"), agent);
            symlink(&elsewhere, overlay.join("link")).unwrap();
            fs::set_permissions(&overlay, Permissions::from_mode(0o555)).unwrap();
        });
        ensure_overlay(&layout, &room(), id("idle")).unwrap();
        reclaim_space_root(&layout, id("workspace"), id("space")).unwrap();
        assert!(!layout.space(id("workspace"), id("space")).exists());
    };
    life(&["ada", "max"]);
    // The same space once more: nothing that is kept is replaced.
    life(&["ada"]);
    let kept = layout.kept(id("space"));
    let mut found = Vec::new();
    for entry in fs::read_dir(&kept).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let notes = fs::read_to_string(path.join("notes")).unwrap();
            let owner = Marker::verify(MarkerKind::Overlay, &path, id(&notes)).unwrap();
            assert_eq!(owner.user, user());
            found.push(notes);
        }
    }
    found.sort();
    assert_eq!(found, ["ada", "ada", "max"]);
    assert_eq!(purge_all(&layout), Vec::<PathBuf>::new());
    assert!(elsewhere.exists());

    // What has no marker is not ours to move.
    let root = ensure_space_root(&layout, &room()).unwrap();
    let foreign = root.join("agents/foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("file"), "x").unwrap();
    let occupied = reclaim_space_root(&layout, id("workspace"), id("space"));
    assert!(matches!(occupied, Err(TrashError::Occupied { .. })));
}

#[test]
fn a_tree_whose_work_cannot_be_saved_stays() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let made = worktree(&layout, &source, WorktreeBackend::Git);
    fs::write(made.path.join(".git/HEAD"), "nonsense").unwrap();
    let error = reclaim(&layout, &order(&made.path)).unwrap_err();
    assert!(matches!(error, TrashError::Salvage { .. }), "{error:?}");
    assert!(made.path.exists());
    let again: Provisioned = provision(&layout, &request(&source, WorktreeBackend::Git)).unwrap();
    assert_eq!(again, made);
}

#[test]
fn deleting_is_bounded_follows_no_link_and_masters_any_mode() {
    let disk = Disk::plain();
    let layout = disk.layout();
    let kept = disk.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "x").unwrap();
    let (_program, mark) = canary(&kept);
    let entry = layout.trash().join("t-1");
    fs::create_dir_all(entry.join("locked/inner")).unwrap();
    fs::write(entry.join("locked/inner/file"), "x").unwrap();
    symlink(&kept, entry.join("link")).unwrap();
    symlink(&kept, layout.trash().join("t-link")).unwrap();
    let mut deep = entry.clone();
    for _ in 0..100 {
        deep.push("deeper");
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
    }
    for number in 0..50 {
        fs::write(entry.join(number.to_string()), "x").unwrap();
    }
    for path in ["locked/inner", "locked"] {
        fs::set_permissions(entry.join(path), Permissions::from_mode(0o000)).unwrap();
    }
    let total = names(&layout.trash()).len();
    let first = purge(&layout, 7).unwrap();
    assert_eq!((first.removed, first.is_more), (7, true));
    assert_eq!(names(&layout.trash()).len(), total - 7);
    assert_eq!(purge_all(&layout), Vec::<PathBuf>::new());
    assert_eq!(names(&layout.trash()), [layout.trash()]);
    assert!(kept.join("file").exists() && !mark.exists());
}

#[test]
fn scratch_of_a_dead_daemon_goes() {
    let disk = Disk::plain();
    let layout = disk.layout();
    fs::create_dir_all(layout.build().join("confined-x/rw/objects")).unwrap();
    fs::write(layout.build().join("salvage-x"), "x").unwrap();
    sweep_build(&layout).unwrap();
    assert_eq!(names(&layout.build()), [layout.build()]);
    assert_eq!(purge_all(&layout), Vec::<PathBuf>::new());
    assert_eq!(names(&layout.trash()), [layout.trash()]);
}

#[test]
fn a_root_is_made_once_and_only_where_nothing_foreign_is() {
    let disk = Disk::plain();
    let layout = disk.layout();
    let root = ensure_space_root(&layout, &room()).unwrap();
    assert_eq!(ensure_space_root(&layout, &room()).unwrap(), root);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o711);
    assert_eq!(mode(&layout.data().join("repos")), 0o700);
    assert_eq!(mode(&layout.trash()), 0o700);
    let mut other = room();
    other.space = id("other");
    let theirs = layout.space(other.workspace, other.space);
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("file"), "x").unwrap();
    assert!(ensure_space_root(&layout, &other).is_err());
    fs::remove_file(theirs.join("file")).unwrap();
    ensure_space_root(&layout, &other).unwrap();
}
