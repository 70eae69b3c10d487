//! What can't work is refused with its reason, and leaves nothing behind.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use homeostat::model::observed::WorktreeBackend;
use homeostat::worktree::layout::Layout;
use homeostat::worktree::probe::probe;
use homeostat::worktree::provision::{TreeRequest, provision};
use homeostat::worktree::reason::ReasonCode;

use super::fixture::{Disk, fingerprint, git, is_root, names, request, source};

fn refused(layout: &Layout, request: &TreeRequest, reason: ReasonCode) {
    let (data, origin) = (names(layout.data()), request.source.exists());
    let before = origin.then(|| fingerprint(&request.source));
    let error = provision(layout, request).unwrap_err();
    assert_eq!(error.reason(), reason, "{error:?}");
    assert_eq!(names(layout.data()), data, "residue after {reason}");
    if let Some(before) = before {
        assert_eq!(fingerprint(&request.source), before, "{reason}");
    }
}

#[test]
fn a_volume_that_cannot_reflink_is_refused() {
    let test = "a_volume_that_cannot_reflink_is_refused";
    for disk in [Disk::ext4(test), Disk::tmpfs(test)].into_iter().flatten() {
        let (layout, source) = (disk.layout(), source(&disk.path()));
        let refusal = probe(layout.data()).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::ReflinkUnsupported);
        let wanted = request(&source, WorktreeBackend::Reflink);
        refused(&layout, &wanted, ReasonCode::ReflinkUnsupported);
    }
    if let Some(disk) = Disk::xfs(test) {
        probe(&disk.path()).unwrap();
        assert_eq!(names(&disk.path()), [disk.path()]);
    }
}

#[test]
fn a_source_that_cannot_be_used_is_refused() {
    let disk = Disk::plain();
    let (layout, at) = (disk.layout(), disk.path());
    let good = source(&at);
    let init = |name: &str, format: &str| {
        let path = at.join(name);
        fs::create_dir(&path).unwrap();
        git(&path, &["init", "-q", format]);
        path
    };
    let unborn = init("unborn", "--object-format=sha1");
    let sha256 = init("sha256", "--object-format=sha256");
    git(&sha256, &["commit", "-q", "--allow-empty", "-m", "x"]);
    let folder = good.join("dir");
    let modules = at.join("modules");
    git(
        &at,
        &[
            "clone",
            "-q",
            "--no-local",
            good.to_str().unwrap(),
            "modules",
        ],
    );
    let head = git(&modules, &["rev-parse", "HEAD"]);
    let link = format!("160000,{},sub", head.trim());
    git(&modules, &["update-index", "--add", "--cacheinfo", &link]);
    git(&modules, &["commit", "-qm", "submodule"]);
    for (path, reason) in [
        (
            Path::new("https://example.com/r.git"),
            ReasonCode::UrlUnsupported,
        ),
        (
            Path::new("git@example.com:r.git"),
            ReasonCode::UrlUnsupported,
        ),
        (&at.join("absent"), ReasonCode::SourceMissing),
        (&folder, ReasonCode::NotARepository),
        (&unborn, ReasonCode::UnbornHead),
        (&sha256, ReasonCode::ObjectFormatUnsupported),
        (&modules, ReasonCode::SubmodulesUnsupported),
    ] {
        refused(&layout, &request(path, WorktreeBackend::Git), reason);
    }
    let mut wanted = request(&good, WorktreeBackend::Git);
    wanted.base_branch = Some("no-such-branch".parse().unwrap());
    refused(&layout, &wanted, ReasonCode::BaseBranchMissing);
}

#[test]
fn a_partial_clone_that_lacks_objects_is_refused() {
    let disk = Disk::plain();
    let (layout, at) = (disk.layout(), disk.path());
    let good = source(&at);
    git(&good, &["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", good.display());
    git(
        &at,
        &[
            "clone",
            "-q",
            "--no-checkout",
            "--filter=blob:none",
            &url,
            "partial",
        ],
    );
    let wanted = request(&at.join("partial"), WorktreeBackend::Git);
    refused(&layout, &wanted, ReasonCode::PartialClone);
}

#[test]
fn what_is_not_ours_is_not_used() {
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    let wanted = request(&source, WorktreeBackend::Git);
    let tree = layout.tree(wanted.workspace, wanted.space, &wanted.repo_name);
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("theirs"), "x").unwrap();
    refused(&layout, &wanted, ReasonCode::ForeignDirectory);
    fs::remove_dir_all(layout.space(wanted.workspace, wanted.space)).unwrap();
    provision(&layout, &wanted).unwrap();
    let mut other = wanted.clone();
    other.repo = super::fixture::id("another repo");
    refused(&layout, &other, ReasonCode::MarkerMismatch);
    let mut other = wanted;
    other.user.uid += 1;
    refused(&layout, &other, ReasonCode::MarkerMismatch);
}

#[test]
fn a_data_directory_that_agents_cannot_reach_is_refused() {
    if !is_root() {
        eprintln!("SKIP a_data_directory_that_agents_cannot_reach_is_refused: needs root");
        return;
    }
    let disk = Disk::plain();
    let (layout, source) = (disk.layout(), source(&disk.path()));
    fs::set_permissions(disk.path(), Permissions::from_mode(0o700)).unwrap();
    let wanted = request(&source, WorktreeBackend::Git);
    let error = provision(&layout, &wanted).unwrap_err();
    assert_eq!(error.reason(), ReasonCode::DataUnreachable, "{error:?}");
}
