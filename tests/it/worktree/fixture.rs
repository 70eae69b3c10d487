//! File systems, sources and fingerprints.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use homeostat::git::command::Git;
use homeostat::model::id::Uid;
use homeostat::model::observed::WorktreeBackend;
use homeostat::model::worktree::UserIds;
use homeostat::worktree::layout::Layout;
use homeostat::worktree::provision::{Provisioned, TreeRequest, provision};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

pub(super) use crate::support::disk::Disk;

/// Who owns trees in these tests: somebody else where we are root.
pub(super) fn user() -> UserIds {
    if is_root() {
        UserIds {
            uid: 70_007,
            gid: 70_007,
        }
    } else {
        UserIds {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(super) fn now() -> Timestamp {
    "2026-03-04T05:06:07.089Z".parse().unwrap()
}

pub(super) fn id(name: &str) -> Uid {
    Uid::derived(&[name])
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests set hosts and repositories up by the tools that people use"
)]
pub(super) fn tool(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

impl Disk {
    /// A data directory, as the daemon would make it.
    pub(super) fn layout(&self) -> Layout {
        let layout = Layout::new(self.path().join("data"));
        layout.ensure().unwrap();
        layout
    }
}

/// Runs git as a person would, in `directory`.
pub(super) fn git(directory: &Path, arguments: &[&str]) -> String {
    let run = person(Git::new(directory, arguments[0]))
        .args(&arguments[1..])
        .run();
    String::from_utf8_lossy(&run.unwrap().stdout).into_owned()
}

fn person(git: Git) -> Git {
    git.env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .env("GIT_OPTIONAL_LOCKS", "1")
}

/// Runs git as the agent would, in its worktree.
pub(super) fn agent_git(tree: &Path, arguments: &[&str]) -> String {
    let run = person(Git::new(tree, arguments[0]))
        .user(user())
        .args(&arguments[1..])
        .run();
    String::from_utf8_lossy(&run.unwrap().stdout).into_owned()
}

/// Writes a file as the agent.
pub(super) fn agent_write(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    give(path);
}

/// Gives what a test made to the agent.
pub(super) fn give(path: &Path) {
    let user = user();
    std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid)).unwrap();
}

/// A source with everything that a name or a mode can do to a program.
pub(super) fn source(at: &Path) -> PathBuf {
    let root = at.join("source");
    fs::create_dir_all(root.join("dir/inner")).unwrap();
    git(&root, &["init", "-q", "-b", "trunk"]);
    let names: [&[u8]; 12] = [
        b"plain",
        b"new\nline",
        b"tab\there",
        b"caf\xe9",
        b"-dash",
        b" lead",
        b"trail ",
        b"star*?[x]",
        b"quote'\"\\",
        b"dir/file",
        b"dir/inner/file",
        b"dir.sibling",
    ];
    for name in names {
        fs::write(root.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    fs::write(root.join("x".repeat(255)), "long").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("large"), "0123456789abcdef\n".repeat(20_000)).unwrap();
    fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run.sh"), Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join(".gitattributes"), "*.crlf text eol=crlf\n").unwrap();
    fs::write(root.join(".gitignore"), "ignored\n").unwrap();
    fs::write(root.join("lines.crlf"), "a\nb\n").unwrap();
    for (name, target) in [
        ("abs", "/etc/passwd"),
        ("up", "../../outside"),
        ("to-dir", "dir"),
        ("dangling", "nowhere"),
    ] {
        symlink(target, root.join(name)).unwrap();
    }
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-qm", "everything"]);
    git(&root, &["tag", "-a", "v1", "-m", "one"]);
    git(&root, &["branch", "other"]);
    fs::write(root.join("ignored"), "private").unwrap();
    fs::write(root.join("untracked"), "private").unwrap();
    fs::write(root.join("plain"), "uncommitted").unwrap();
    root
}

/// The request that most tests start from.
pub(super) fn request(source: &Path, backend: WorktreeBackend) -> TreeRequest {
    TreeRequest {
        workspace: id("workspace"),
        space: id("space"),
        repo: id("repo"),
        repo_name: "app".parse().unwrap(),
        source: source.to_owned(),
        base_branch: None,
        branch: "homeostat/room".parse().unwrap(),
        user: user(),
        backend,
        now: now(),
    }
}

/// A worktree to play the agent in.
pub(super) fn worktree(layout: &Layout, source: &Path, backend: WorktreeBackend) -> Provisioned {
    provision(layout, &request(source, backend)).unwrap()
}

/// Makes of a worktree what a hostile agent would: whatever obeys its configuration runs `program`.
/// The tree itself, a repository nested in it, and one that the tree tracks as a submodule at `url`.
pub(super) fn make_hostile(tree: &Path, url: &str, program: &Path) {
    for nested in ["nested", "tracked"] {
        agent_git(tree, &["init", "-q", nested]);
        let nested = tree.join(nested);
        agent_write(&nested.join("file"), "x");
        agent_git(&nested, &["add", "file"]);
        agent_git(&nested, &["commit", "-qm", "x"]);
        poison(&nested.join(".git"), program);
    }
    agent_git(tree, &["add", "tracked"]);
    let submodule =
        "[submodule \"tracked\"]\n\tpath = tracked\n\tignore = none\n\tupdate = !touch x\n";
    agent_write(
        &tree.join(".gitmodules"),
        &format!("{submodule}\turl = {url}\n"),
    );
    agent_write(
        &tree.join(".gitattributes"),
        "* filter=evil diff=evil merge=evil\n",
    );
    poison(&tree.join(".git"), program);
    fs::write(tree.join(".git/info/attributes"), "* filter=evil\n").unwrap();
    agent_write(&tree.join("plain"), "changed");
}

/// All that can be seen of each name, but the time of its last reading.
pub(super) type Fingerprint = BTreeMap<Vec<u8>, String>;

/// The fingerprint of everything at and below `root`.
pub(super) fn fingerprint(root: &Path) -> Fingerprint {
    let mut seen = BTreeMap::new();
    visit(root, &mut |path, metadata| {
        let content = if metadata.is_symlink() {
            fs::read_link(path)
                .unwrap()
                .into_os_string()
                .as_bytes()
                .to_vec()
        } else if metadata.is_file() {
            Sha256::digest(fs::read(path).unwrap()).to_vec()
        } else {
            Vec::new()
        };
        let facts = format!(
            "{:o} {}:{} {} bytes, mtime {}.{} ctime {}.{} inode {} links {} {content:02x?}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.ino(),
            metadata.nlink(),
        );
        seen.insert(path.as_os_str().as_bytes().to_vec(), facts);
    });
    seen
}

/// Every name at and below `root`.
pub(super) fn names(root: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    visit(root, &mut |path, _| names.push(path.to_owned()));
    names.sort();
    names
}

fn visit(path: &Path, see: &mut impl FnMut(&Path, &fs::Metadata)) {
    let metadata = fs::symlink_metadata(path).unwrap();
    see(path, &metadata);
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            visit(&entry.unwrap().path(), see);
        }
    }
}

/// An executable that leaves a mark when it runs, and the mark.
pub(super) fn canary(at: &Path) -> (PathBuf, PathBuf) {
    let (program, mark) = (at.join("canary"), at.join("executed"));
    let text = format!("#!/bin/sh\ntouch '{}'\ncat\n", mark.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(at, Permissions::from_mode(0o777)).unwrap();
    (program, mark)
}

/// Makes a repository call `program` in every way that its configuration offers.
pub(super) fn poison(git_directory: &Path, program: &Path) {
    let program = program.display();
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n\tsshCommand = {program}\n\tpager = {program}\n\teditor = {program}\n\taskPass = {program}\n\tgitProxy = {program}\n\talternateRefsCommand = {program}\n\
         [filter \"evil\"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n\
         [diff]\n\texternal = {program}\n[diff \"evil\"]\n\tcommand = {program}\n\ttextconv = {program}\n\
         [credential]\n\thelper = {program}\n[alias]\n\tls-files = !{program}\n\
         [uploadpack]\n\tpackObjectsHook = {program}\n[gpg]\n\tprogram = {program}\n[commit]\n\tgpgSign = true\n\
         [remote \"origin\"]\n\turl = https://user:s3cret@example.invalid/r.git\n\tuploadpack = {program}\n",
        hooks = git_directory.join("evil-hooks").display(),
    );
    fs::write(git_directory.join("config"), config).unwrap();
    for hooks in ["hooks", "evil-hooks"] {
        fs::create_dir_all(git_directory.join(hooks)).unwrap();
        for hook in [
            "post-checkout",
            "reference-transaction",
            "post-index-change",
            "pre-commit",
            "fsmonitor-watchman",
            "post-receive",
            "pre-auto-gc",
        ] {
            let path = git_directory.join(hooks).join(hook);
            fs::copy(program.to_string(), path).unwrap();
        }
    }
}
