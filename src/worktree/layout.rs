//! Every path of the data directory that worktrees live in, and who may pass through it.
//!
//! ```text
//! <data>/                                             0711
//!   repos/                                            0700  nothing beneath is for agents
//!     <repo uid>/cache.git                                  bare, fetched from the source
//!     <repo uid>/salvage.git                                bare, work saved from worktrees
//!     <repo uid>/seeds/<tree id>/                           a frozen checkout, with its marker
//!   workspaces/<uid>/spaces/<uid>/                    0711  a space's root, with its marker
//!     repos/<repo name>, repos/<repo name>.homeostat        a worktree, its marker beside it
//!     repos/<repo name>.part                                one that is being made
//!     agents/<agent uid>, agents/<agent uid>.homeostat      an overlay, its marker beside it
//!     sessions/<agent uid>/<conversation>/                  what its program keeps between runs
//!   kept/<space uid>/<agent uid>                      0700  an overlay with an agent's work in
//!                                                         it, kept when its space went
//!   build/                                            0711  scratch: emptied at every start
//!   trash/                                            0700  what waits to be deleted
//!   runs/                                             0700  logs of runs
//! ```
//!
//! The run user owns worktrees and overlays and nothing above them. It can reach a tree whose ids
//! it knows, and list nothing on the way.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::model::id::Uid;
use crate::model::units::Name;
use crate::model::worktree::ObjectId;

/// May be passed through, not listed.
pub(super) const PASSAGE: u32 = 0o711;
/// Ours alone.
pub(super) const PRIVATE: u32 = 0o700;
/// May be listed: a space's own two folders.
pub(super) const LISTED: u32 = 0o755;

/// The paths beneath one data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    data: PathBuf,
}

impl Layout {
    /// The layout of `data`, an absolute path.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self { data: data.into() }
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A workspace's directory.
    pub fn workspace(&self, workspace: Uid) -> PathBuf {
        self.data.join("workspaces").join(workspace.to_string())
    }

    /// A space's root.
    pub fn space(&self, workspace: Uid, space: Uid) -> PathBuf {
        let spaces = self.workspace(workspace).join("spaces");
        spaces.join(space.to_string())
    }

    /// The worktree of a repo in a space.
    pub fn tree(&self, workspace: Uid, space: Uid, repo: &Name) -> PathBuf {
        self.space(workspace, space)
            .join("repos")
            .join(repo.as_str())
    }

    /// The overlay directory of an agent in a space.
    pub fn overlay(&self, workspace: Uid, space: Uid, agent: Uid) -> PathBuf {
        let agents = self.space(workspace, space).join("agents");
        agents.join(agent.to_string())
    }

    /// Where overlays with work in them are kept when their space goes.
    pub fn kept(&self, space: Uid) -> PathBuf {
        self.data.join("kept").join(space.to_string())
    }

    /// What we keep of a repo.
    pub fn repo(&self, repo: Uid) -> PathBuf {
        self.data.join("repos").join(repo.to_string())
    }

    /// The cache of a repo.
    pub fn cache(&self, repo: Uid) -> PathBuf {
        self.repo(repo).join("cache.git")
    }

    /// The repository of work that was saved from a repo's worktrees.
    pub fn salvage(&self, repo: Uid) -> PathBuf {
        self.repo(repo).join("salvage.git")
    }

    /// The seeds of a repo.
    pub fn seeds(&self, repo: Uid) -> PathBuf {
        self.repo(repo).join("seeds")
    }

    /// The seed of one tree of a repo.
    pub fn seed(&self, repo: Uid, tree: &ObjectId) -> PathBuf {
        self.seeds(repo).join(tree.as_str())
    }

    /// Scratch that nothing outlives a start in.
    pub fn build(&self) -> PathBuf {
        self.data.join("build")
    }

    /// What waits to be deleted.
    pub fn trash(&self) -> PathBuf {
        self.data.join("trash")
    }

    /// Logs of runs.
    pub fn runs(&self) -> PathBuf {
        self.data.join("runs")
    }

    /// Makes the data directory and its first level, and holds their modes.
    ///
    /// # Errors
    /// What the system said.
    pub fn ensure(&self) -> io::Result<()> {
        ensure_directory(&self.data, PASSAGE)?;
        ensure_directory(&self.data.join("repos"), PRIVATE)?;
        ensure_directory(&self.data.join("workspaces"), PASSAGE)?;
        ensure_directory(&self.data.join("kept"), PRIVATE)?;
        ensure_directory(&self.build(), PASSAGE)?;
        ensure_directory(&self.trash(), PRIVATE)?;
        ensure_directory(&self.runs(), PRIVATE)
    }
}

/// Makes a directory of ours, and its parents, whatever the umask says.
pub(super) fn ensure_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}
