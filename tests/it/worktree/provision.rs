//! A worktree is whole, clean, its own, and the source never knows.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use homeostat::model::observed::WorktreeBackend;
use homeostat::worktree::layout::Layout;
use homeostat::worktree::provision::{Provisioned, TreeRequest, provision};
use homeostat::worktree::reason::ReasonCode;

use super::fixture::{
    Disk, agent_git, canary, fingerprint, git, id, is_root, names, poison, request, source, user,
    worktree,
};

/// What must hold of every fresh worktree, whatever made it.
fn check_fresh(tree: &Provisioned, source: &Path) {
    let path = &tree.path;
    let head = git(source, &["rev-parse", "HEAD"]);
    assert_eq!(tree.base.as_str(), head.trim());
    assert_eq!(agent_git(path, &["rev-parse", "HEAD"]), head);
    let branch = agent_git(path, &["symbolic-ref", "HEAD"]);
    assert_eq!(branch.trim(), format!("refs/heads/{}", tree.branch));
    let index = fs::read(path.join(".git/index")).unwrap();
    assert_eq!(agent_git(path, &["diff-files", "--raw"]), "");
    assert_eq!(agent_git(path, &["status", "--porcelain", "--ignored"]), "");
    assert_eq!(
        fs::read(path.join(".git/index")).unwrap(),
        index,
        "the first status had to correct the index"
    );
    agent_git(path, &["fsck", "--strict"]);
    assert!(!path.join(".git/objects/info/alternates").exists());
    assert!(path.join(".git").is_dir());
    let config = fs::read_to_string(path.join(".git/config")).unwrap();
    assert!(
        !config.contains("remote") && !config.contains("s3cret"),
        "{config}"
    );
    for name in names(path) {
        let metadata = fs::symlink_metadata(&name).unwrap();
        assert_eq!(
            (metadata.uid(), metadata.gid()),
            (user().uid, user().gid),
            "{name:?}"
        );
        if metadata.is_file() {
            assert_eq!(metadata.nlink(), 1, "{name:?} is shared with another tree");
        }
    }
}

/// The content must be that of the commit: what an ordinary checkout of it gives.
fn check_content(tree: &Path, source: &Path, at: &Path) {
    let reference = at.join("reference");
    let clone = [
        "clone",
        "-q",
        "--no-local",
        source.to_str().unwrap(),
        reference.to_str().unwrap(),
    ];
    git(at, &clone);
    let seen = |root: &Path| {
        let paths = names(root).into_iter().filter_map(|path| {
            let name = path
                .strip_prefix(root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .as_bytes()
                    .to_vec()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            (!name.starts_with(b".git/")).then(|| (name, metadata.mode(), content))
        });
        paths.collect::<Vec<_>>()
    };
    assert_eq!(seen(tree), seen(&reference));
}

fn whole_life(layout: &Layout, at: &Path, backend: WorktreeBackend) {
    let source = source(at);
    let before = fingerprint(&source);
    let tree = worktree(layout, &source, backend);
    assert_eq!(fingerprint(&source), before, "the source was touched");
    assert_eq!(tree.backend, backend);
    check_fresh(&tree, &source);
    check_content(&tree.path, &source, at);
    let refs = agent_git(&tree.path, &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(
        refs.lines().collect::<Vec<_>>(),
        [
            "refs/heads/homeostat/room",
            "refs/remotes/origin/other",
            "refs/remotes/origin/trunk",
            "refs/tags/v1"
        ]
    );
    let again = provision(layout, &request(&source, backend)).unwrap();
    assert_eq!(again, tree);
    // The tree stands on its own.
    fs::remove_dir_all(&source).unwrap();
    fs::remove_dir_all(layout.repo(id("repo"))).unwrap();
    agent_git(&tree.path, &["fsck", "--strict"]);
    agent_git(&tree.path, &["gc", "-q", "--prune=now"]);
    assert_eq!(agent_git(&tree.path, &["status", "--porcelain"]), "");
}

#[test]
fn a_cloned_worktree_is_whole_clean_and_its_own() {
    let Some(disk) = Disk::xfs("a_cloned_worktree_is_whole_clean_and_its_own") else {
        return;
    };
    whole_life(&disk.layout(), &disk.path(), WorktreeBackend::Reflink);
}

#[test]
fn a_checked_out_worktree_is_whole_clean_and_its_own() {
    let disk = Disk::plain();
    whole_life(&disk.layout(), &disk.path(), WorktreeBackend::Git);
    let Some(disk) = Disk::tmpfs("a_checked_out_worktree_is_whole_clean_and_its_own") else {
        return;
    };
    whole_life(&disk.layout(), &disk.path(), WorktreeBackend::Git);
}

#[test]
fn a_large_tree_is_cloned_by_several_threads_and_shares_its_blocks() {
    let test = "a_large_tree_is_cloned_by_several_threads_and_shares_its_blocks";
    let Some(disk) = Disk::xfs(test) else {
        return;
    };
    let source = source(&disk.path());
    for number in 0..1000 {
        let folder = source.join(format!("many/{}/{}", number % 7, number % 31));
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join(format!("file-{number}")),
            vec![b'x'; number * 5],
        )
        .unwrap();
    }
    git(&source, &["add", "many"]);
    git(&source, &["commit", "-qm", "many"]);
    let before = fingerprint(&source);
    let layout = disk.layout();
    let first = worktree(&layout, &source, WorktreeBackend::Reflink);
    check_fresh(&first, &source);
    let mut second = request(&source, WorktreeBackend::Reflink);
    second.space = id("second");
    let second = provision(&layout, &second).unwrap();
    check_fresh(&second, &source);
    assert_eq!(fingerprint(&source), before);
    // What one agent writes, the other does not see.
    let large = |tree: &Provisioned| tree.path.join("large");
    fs::write(large(&first), "short").unwrap();
    assert_eq!(agent_git(&second.path, &["status", "--porcelain"]), "");
    assert_ne!(fs::read(large(&second)).unwrap(), b"short");
}

#[test]
fn a_source_of_any_shape_is_read() {
    let disk = Disk::plain();
    let (layout, at) = (disk.layout(), disk.path());
    let main = source(&at);
    let linked = at.join("linked");
    git(
        &main,
        &[
            "worktree",
            "add",
            "-q",
            linked.to_str().unwrap(),
            "-b",
            "linked",
        ],
    );
    let bare = at.join("bare.git");
    git(
        &at,
        &[
            "clone",
            "-q",
            "--bare",
            "--no-local",
            main.to_str().unwrap(),
            bare.to_str().unwrap(),
        ],
    );
    let detached = at.join("detached");
    git(
        &at,
        &[
            "clone",
            "-q",
            "--no-local",
            main.to_str().unwrap(),
            detached.to_str().unwrap(),
        ],
    );
    git(&detached, &["checkout", "-q", "--detach"]);
    let shallow = at.join("shallow");
    git(&main, &["commit", "-q", "--allow-empty", "-m", "second"]);
    let url = format!("file://{}", main.display());
    git(
        &at,
        &[
            "clone",
            "-q",
            "--depth",
            "1",
            &url,
            shallow.to_str().unwrap(),
        ],
    );
    let borrowing = at.join("borrowing");
    git(
        &at,
        &[
            "clone",
            "-q",
            "--shared",
            main.to_str().unwrap(),
            borrowing.to_str().unwrap(),
        ],
    );
    for (number, source) in [linked, bare, detached, shallow, borrowing]
        .iter()
        .enumerate()
    {
        let before = fingerprint(source);
        let mut request = request(source, WorktreeBackend::Git);
        request.repo = id(&format!("repo {number}"));
        request.space = id(&format!("space {number}"));
        let tree = provision(&layout, &request).unwrap();
        assert_eq!(fingerprint(source), before, "{source:?}");
        check_fresh(&tree, source);
    }
}

#[test]
fn a_source_of_another_user_is_read() {
    if !is_root() {
        eprintln!("SKIP a_source_of_another_user_is_read: needs root");
        return;
    }
    let disk = Disk::plain();
    let source = source(&disk.path());
    for name in names(&source) {
        std::os::unix::fs::lchown(&name, Some(12_345), Some(12_345)).unwrap();
    }
    let tree = worktree(&disk.layout(), &source, WorktreeBackend::Git);
    check_fresh(&tree, &source);
}

#[test]
fn a_base_branch_is_followed_and_later_commits_are_fetched() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let old = worktree(&layout, &source, WorktreeBackend::Git);
    git(&source, &["checkout", "-q", "-f", "other"]);
    git(
        &source,
        &["commit", "-q", "--allow-empty", "-m", "on other"],
    );
    git(&source, &["checkout", "-q", "trunk"]);
    let tip = git(&source, &["rev-parse", "other"]);
    let mut request = request(&source, WorktreeBackend::Git);
    request.space = id("another");
    request.base_branch = Some("other".parse().unwrap());
    let new = provision(&layout, &request).unwrap();
    assert_eq!(new.base.as_str(), tip.trim());
    assert_ne!(new.base, old.base);
    // A force-push and a removed branch are followed as well.
    git(&source, &["branch", "-qf", "other", "trunk"]);
    request.space = id("third");
    assert_eq!(provision(&layout, &request).unwrap().base, old.base);
    git(&source, &["branch", "-qD", "other"]);
    request.space = id("fourth");
    let error = provision(&layout, &request).unwrap_err();
    assert_eq!(error.reason(), ReasonCode::BaseBranchMissing);
}

#[test]
fn hostile_configuration_of_the_source_is_neither_run_nor_carried() {
    let disk = Disk::plain();
    let at = disk.path();
    let source = source(&at);
    let (program, mark) = canary(&at);
    poison(&source.join(".git"), &program);
    fs::write(
        source.join(".git/info/attributes"),
        "* filter=evil diff=evil\n",
    )
    .unwrap();
    let before = fingerprint(&source);
    let tree = worktree(&disk.layout(), &source, WorktreeBackend::Git);
    assert!(!mark.exists(), "something of the source's was executed");
    assert_eq!(fingerprint(&source), before);
    let config = fs::read_to_string(tree.path.join(".git/config")).unwrap();
    for carried in ["evil", "s3cret", "fsmonitor", "hooksPath", "canary"] {
        assert!(!config.contains(carried), "{config}");
    }
    assert!(!tree.path.join(".git/hooks").exists());
}

#[test]
fn filters_that_attributes_name_leave_files_as_they_are_stored() {
    let disk = Disk::plain();
    let source = source(&disk.path());
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    fs::write(source.join("big.bin"), pointer).unwrap();
    fs::write(source.join(".gitattributes"), "*.bin filter=lfs -text\n").unwrap();
    git(&source, &["add", "big.bin", ".gitattributes"]);
    git(&source, &["commit", "-qm", "pointer"]);
    let tree = worktree(&disk.layout(), &source, WorktreeBackend::Git);
    check_fresh(&tree, &source);
    assert_eq!(
        fs::read_to_string(tree.path.join("big.bin")).unwrap(),
        pointer
    );
}

#[test]
fn what_a_dead_attempt_left_is_replaced() {
    let test = "what_a_dead_attempt_left_is_replaced";
    let Some(disk) = Disk::xfs(test) else {
        return;
    };
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let wanted = request(&source, WorktreeBackend::Reflink);
    // One space is complete, so that cache and seed can be spoilt one at a time.
    let mut first = wanted.clone();
    first.space = id("first");
    let first = provision(&layout, &first).unwrap();
    let tree = layout.tree(wanted.workspace, wanted.space, &wanted.repo_name);
    let litter = |path: &Path| {
        fs::create_dir_all(path.join("half/made")).unwrap();
        fs::write(path.join("half/made/file"), "x").unwrap();
    };
    litter(&tree.with_extension("part"));
    litter(&layout.cache(id("repo")).with_extension("part"));
    let seeds: Vec<_> = names(&layout.seeds(id("repo")));
    let seed = seeds
        .iter()
        .find(|path| path.join("tree").is_dir())
        .unwrap();
    litter(&layout.build().join(format!(
        "seed-{}-{}",
        id("repo"),
        seed.file_name().unwrap().to_str().unwrap()
    )));
    fs::remove_dir_all(seed).unwrap();
    let made = provision(&layout, &wanted);
    assert!(
        made.is_err(),
        "a root that we did not mark must not be used"
    );
    fs::remove_dir_all(layout.space(wanted.workspace, wanted.space)).unwrap();
    let made = provision(&layout, &wanted).unwrap();
    check_fresh(&made, &source);
    litter(&tree.with_extension("part"));
    fs::remove_dir_all(&tree).unwrap();
    let again = provision(&layout, &wanted).unwrap();
    check_fresh(&again, &source);
    assert!(!tree.with_extension("part").exists());
    assert_eq!(again.base, first.base);
}

#[test]
fn at_once_in_one_space_one_tree_is_made() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let wanted = request(&source, WorktreeBackend::Git);
    let made: Vec<Provisioned> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| provision(&layout, &wanted).unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]));
    check_fresh(&made[0], &source);
}

#[test]
fn at_once_in_many_spaces_every_tree_is_whole() {
    let Some(disk) = Disk::xfs("at_once_in_many_spaces_every_tree_is_whole") else {
        return;
    };
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let requests: Vec<TreeRequest> = (0..4)
        .map(|number| {
            let mut request = request(&source, WorktreeBackend::Reflink);
            request.space = id(&format!("space {number}"));
            request
        })
        .collect();
    std::thread::scope(|scope| {
        for request in &requests {
            scope.spawn(|| check_fresh(&provision(&layout, request).unwrap(), &source));
        }
    });
}

#[test]
fn a_file_that_comes_to_light_in_a_seed_is_not_carried() {
    let test = "a_file_that_comes_to_light_in_a_seed_is_not_carried";
    let Some(disk) = Disk::xfs(test) else {
        return;
    };
    let (layout, source) = (disk.layout(), source(&disk.path()));
    worktree(&layout, &source, WorktreeBackend::Reflink);
    let tree = git(&source, &["rev-parse", "HEAD^{tree}"])
        .trim()
        .parse()
        .unwrap();
    let seed = layout.seed(id("repo"), &tree).join("tree");
    fs::write(seed.join("stray"), "x").unwrap();
    fs::rename(seed.join("dir"), seed.join("moved")).unwrap();
    std::os::unix::fs::symlink("moved", seed.join("dir")).unwrap();
    let mut next = request(&source, WorktreeBackend::Reflink);
    next.space = id("next");
    // A link where a directory was: nothing beyond it is imported, and nothing is left.
    let error = provision(&layout, &next).unwrap_err();
    assert_eq!(error.reason(), ReasonCode::SystemError);
    let tree = layout.tree(next.workspace, next.space, &next.repo_name);
    assert!(!tree.exists() && !tree.with_extension("part").exists());
    fs::remove_file(seed.join("dir")).unwrap();
    fs::rename(seed.join("moved"), seed.join("dir")).unwrap();
    let made = provision(&layout, &next).unwrap();
    check_fresh(&made, &source);
}

#[test]
fn old_seeds_are_put_away() {
    let Some(disk) = Disk::xfs("old_seeds_are_put_away") else {
        return;
    };
    let (layout, source) = (disk.layout(), source(&disk.path()));
    for number in 0..6 {
        fs::write(source.join("dir/file"), number.to_string()).unwrap();
        git(&source, &["commit", "-q", "-m", "next", "dir/file"]);
        let mut request = request(&source, WorktreeBackend::Reflink);
        request.space = id(&format!("space {number}"));
        request.now = format!("2026-01-01T00:00:0{number}Z").parse().unwrap();
        provision(&layout, &request).unwrap();
    }
    let kept = fs::read_dir(layout.seeds(id("repo"))).unwrap().count();
    assert_eq!(kept, 4);
}
