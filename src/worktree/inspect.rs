//! What an agent has done to its tree: asked without running or writing anything of the tree's.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::engine::index::Index;
use super::layout::Layout;
use crate::git::beneath;
use crate::git::command::GitError;
use crate::git::confined::{Confined, ConfinedError};
use crate::git::refs::Head;
use crate::model::worktree::{ObjectId, UserIds};

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
    let (mut staged, mut ahead_of_base) = (0, None);
    if let Some(head) = &head {
        let cached = view
            .git("diff-index")
            .args(["--cached", "--name-only", "-z"]);
        let cached = cached.args(["--ignore-submodules=none", "--no-ext-diff", head.as_str()]);
        let cached = cached.run().map_err(git_error)?;
        staged = cached
            .stdout
            .split(|&byte| byte == 0)
            .filter(|path| !path.is_empty())
            .count();
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
    Ok(TreeFacts {
        head,
        branch,
        ahead_of_base,
        modified: changes.modified.len(),
        staged,
        untracked: changes.untracked.len(),
        nested: changes.nested.len(),
        stashes: view.refs().map_or(0, |refs| refs.stashes.len()),
    })
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
