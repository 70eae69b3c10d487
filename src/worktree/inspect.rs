//! What an agent has done to its tree: asked without running or writing anything of the tree's.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::engine::index::Index;
use super::layout::Layout;
use crate::git::beneath;
use crate::git::command::GitError;
use crate::git::confined::{Confined, ConfinedError};
use crate::git::refs::Head;
use crate::model::worktree::{ObjectId, UserIds};

/// The most changed paths that are named.
pub const CHANGED_MAX: usize = 100;
/// Longest index that is read from a tree.
const INDEX_BYTES_MAX: u64 = 512 << 20;

/// Why a tree's state is unknown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The tree could not be looked at.
    #[error("look at the worktree")]
    Open(#[from] ConfinedError),
    /// Its index could not be handed to git.
    #[error("copy the index of {}", tree.display())]
    Index {
        /// The tree.
        tree: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What is not committed could not be looked at.
    #[error("look at what changed in {}", tree.display())]
    Changes {
        /// The tree.
        tree: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Git could not answer.
    #[error("compare {} with its base", tree.display())]
    Git {
        /// The tree.
        tree: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
}

/// The state of a worktree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFacts {
    /// The commit that `HEAD` stands for.
    pub head: Option<ObjectId>,
    /// The branch that `HEAD` is on, without `refs/heads/`; none when detached.
    pub branch: Option<String>,
    /// Commits that `HEAD` has and the base has not; none when git can't tell.
    pub ahead_of_base: Option<u64>,
    /// Tracked paths whose content in the tree differs from the index.
    pub modified: usize,
    /// Paths whose content in the index differs from `HEAD`.
    pub staged: usize,
    /// Untracked files that no ignore rule covers.
    pub untracked: usize,
    /// Repositories inside the tree.
    pub nested: usize,
    /// Stash entries.
    pub stashes: usize,
    /// What is not committed, and the stashes, as a fingerprint: another one, another state. A
    /// file counts by its mode, size and time, not its content. None when there is nothing of it.
    pub dirt: Option<String>,
    /// The first [`CHANGED_MAX`] of the paths that differ from `HEAD`, as text, in their order.
    pub changed: Vec<String>,
}

impl TreeFacts {
    /// Whether something is not committed.
    pub const fn is_dirty(&self) -> bool {
        self.modified + self.staged + self.untracked + self.nested > 0
    }

    /// Whether the tree is not as it was made from `base`.
    pub fn is_changed_since(&self, base: &ObjectId) -> bool {
        self.is_dirty() || self.stashes > 0 || self.head.as_ref() != Some(base)
    }
}

/// Looks at the worktree `tree`, which was made from `base` for `user`.
///
/// # Errors
/// [`InspectError`]: the state is unknown, which is not the same as clean.
pub fn inspect(
    layout: &Layout,
    tree: &Path,
    base: &ObjectId,
    user: UserIds,
) -> Result<TreeFacts, InspectError> {
    let view = open(layout, tree, user, Trust::Stat)?;
    let changes = Changes::read(&view)?;
    let head = view.refs().and_then(|refs| refs.head_id()).cloned();
    let git_error = |source| git_error(&view, source);
    let (mut staged, mut ahead_of_base) = (Vec::new(), None);
    if let Some(head) = &head {
        let cached = view.git("diff-index").args(["--cached", "--raw", "-z"]);
        let cached = cached.args(["--no-abbrev", "--no-renames", "--ignore-submodules=none"]);
        let cached = cached.args(["--no-ext-diff", head.as_str()]);
        staged = staged_of(&cached.run().map_err(git_error)?.stdout);
        let range = format!("{base}..{head}");
        let count = view
            .git("rev-list")
            .args(["--count", &range, "--"])
            .output();
        let count = count.map_err(git_error)?;
        ahead_of_base = count.line().ok().and_then(|count| count.parse().ok());
    }
    let branch = view.refs().and_then(|refs| match &refs.head {
        Head::Branch(name) => name.strip_prefix("refs/heads/").map(str::to_owned),
        Head::Detached(_) => None,
    });
    let stashes = view.refs().map_or(&[][..], |refs| &refs.stashes);
    let dirt = dirt(tree, &changes, &staged, stashes);
    let dirt = dirt.map_err(|source| InspectError::Changes {
        tree: tree.to_owned(),
        source,
    })?;
    Ok(TreeFacts {
        head,
        branch,
        ahead_of_base,
        modified: changes.modified.len(),
        staged: staged.len(),
        untracked: changes.untracked.len(),
        nested: changes.nested.len(),
        stashes: stashes.len(),
        dirt,
        changed: changes.named(&staged),
    })
}

/// A path whose content in the index differs from `HEAD`, and how.
#[derive(Debug)]
struct Staged {
    /// Modes, ids and status, as git prints them.
    how: Vec<u8>,
    path: Vec<u8>,
}

/// Reads what `diff-index --raw -z --no-renames` printed: each path follows how it differs.
fn staged_of(raw: &[u8]) -> Vec<Staged> {
    let mut fields = raw.split(|&byte| byte == 0);
    let mut staged = Vec::new();
    while let (Some(how), Some(path)) = (fields.next(), fields.next()) {
        staged.push(Staged {
            how: how.to_vec(),
            path: path.to_vec(),
        });
    }
    staged
}

/// The fingerprint of what is not committed; none when there is nothing.
fn dirt(
    tree: &Path,
    changes: &Changes,
    staged: &[Staged],
    stashes: &[ObjectId],
) -> io::Result<Option<String>> {
    let mut hash = Sha256::new();
    let mut is_empty = true;
    // Each part ends with a byte that is in no path.
    let mut add = |kind: &str, path: &[u8], facts: &[u8]| {
        is_empty = false;
        for part in [kind.as_bytes(), path, facts] {
            hash.update(part);
            hash.update([0]);
        }
    };
    let root = beneath::open_root(tree)?;
    let groups = [
        ("modified", &changes.modified),
        ("untracked", &changes.untracked),
        ("nested", &changes.nested),
    ];
    for (kind, paths) in groups {
        for path in paths {
            add(kind, path, state_of(&root, path)?.as_bytes());
        }
    }
    for Staged { how, path } in staged {
        add("staged", path, how);
    }
    for stash in stashes {
        add("stash", b"", stash.as_str().as_bytes());
    }
    if is_empty {
        return Ok(None);
    }
    let mut hex = String::with_capacity(64);
    for byte in hash.finalize() {
        // A write to a string can't fail.
        let _written = write!(hex, "{byte:02x}");
    }
    Ok(Some(hex))
}

/// What tells one state of a file from another without reading it; empty when it can't be
/// seen.
fn state_of(root: &OwnedFd, path: &[u8]) -> io::Result<String> {
    let named = match beneath::open(root, path, OFlags::PATH) {
        Ok(named) => named,
        // Gone, beneath what is a directory no more, or hidden by its owner.
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {
                    Ok(String::new())
                }
                _ => Err(error),
            };
        }
    };
    let stat = fstat(&named)?;
    Ok(format!(
        "{:o} {} {}.{:09}",
        stat.st_mode, stat.st_size, stat.st_mtime, stat.st_mtime_nsec
    ))
}

/// What is believed of an index that an agent may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Its stat data, as git itself would.
    Stat,
    /// Nothing: every file is read.
    Nothing,
}

/// Prepares to look at `tree`, with a copy of its index from which nothing is hidden.
pub(super) fn open(
    layout: &Layout,
    tree: &Path,
    user: UserIds,
    trust: Trust,
) -> Result<Confined, InspectError> {
    let view = Confined::open(tree, &layout.build(), user)?;
    let found = beneath::open_root(tree)
        .and_then(|root| beneath::read_dated(root, b".git/index", INDEX_BYTES_MAX));
    let found = found.ok().flatten();
    let index = found.and_then(|(bytes, written)| Some((Index::parse(bytes).ok()?, written)));
    let head = view.refs().and_then(|refs| refs.head_id()).cloned();
    match (index, head) {
        (Some((mut index, written)), _) => {
            let written = match trust {
                Trust::Stat => written,
                // No entry is older, so none is believed. (Zero would say "time unknown".)
                Trust::Nothing => SystemTime::UNIX_EPOCH + Duration::from_secs(1),
            };
            index.unhide();
            view.write_index(&index.seal(), written)
                .map_err(|source| InspectError::Index {
                    tree: tree.to_owned(),
                    source,
                })?;
        }
        // Absent, damaged, split or sparse: compare with what is committed instead.
        (None, Some(head)) => {
            let read = view.git("read-tree").arg(head.as_str()).run();
            read.map_err(|source| git_error(&view, source))?;
        }
        (None, None) => {}
    }
    Ok(view)
}

pub(super) fn git_error(view: &Confined, source: GitError) -> InspectError {
    InspectError::Git {
        tree: view.tree().to_owned(),
        source,
    }
}

/// Paths that differ from the index, relative to the tree.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Tracked: changed, gone, or in conflict.
    pub(super) modified: Vec<Vec<u8>>,
    /// Not tracked, not ignored.
    pub(super) untracked: Vec<Vec<u8>>,
    /// Directories with a repository of their own, without the slash.
    pub(super) nested: Vec<Vec<u8>>,
}

impl Changes {
    /// The first [`CHANGED_MAX`] paths of these and of `staged`, as text.
    fn named(&self, staged: &[Staged]) -> Vec<String> {
        let paths = [&self.modified, &self.untracked, &self.nested].into_iter();
        let paths = paths.flatten().chain(staged.iter().map(|it| &it.path));
        let paths: BTreeSet<&Vec<u8>> = paths.collect();
        let first = paths.into_iter().take(CHANGED_MAX);
        first
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    /// Asks git for them. Ignore rules are those of the tree's own `.gitignore` files.
    pub(super) fn read(view: &Confined) -> Result<Self, InspectError> {
        Self::parse(view, |subcommand| view.git(subcommand))
    }

    /// The same with another way to run git over (a part of) the tree.
    pub(super) fn parse(
        view: &Confined,
        git: impl Fn(&str) -> crate::git::command::Git,
    ) -> Result<Self, InspectError> {
        let list = |arguments: &[&str]| {
            let output = git("ls-files").arg("-z").args(arguments).run();
            let output = output.map_err(|source| git_error(view, source))?;
            let paths = output.stdout.split(|&byte| byte == 0);
            let paths = paths.filter(|path| !path.is_empty()).map(<[u8]>::to_vec);
            Ok::<Vec<Vec<u8>>, InspectError>(paths.collect())
        };
        let mut modified = list(&["--modified", "--deleted"])?;
        for line in list(&["--unmerged"])? {
            let tab = line.iter().position(|&byte| byte == b'\t');
            modified.extend(tab.map(|tab| line[tab + 1..].to_vec()));
        }
        modified.sort();
        modified.dedup();
        let mut changes = Self {
            modified,
            ..Self::default()
        };
        for mut path in list(&["--others", "--exclude-standard"])? {
            if path.last() == Some(&b'/') {
                path.pop();
                changes.nested.push(path);
            } else {
                changes.untracked.push(path);
            }
        }
        Ok(changes)
    }
}
