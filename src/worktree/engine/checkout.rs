//! Fills a tree by letting git write it out, from the objects of the tree's own `.git`.

use std::path::Path;

use super::EngineError;
use crate::git::command::{Git, Limits};
use crate::model::worktree::UserIds;

/// Checks `HEAD` out into `tree`, which holds a fresh skeleton and nothing else, as `user`.
/// Filters that attributes name are not configured, so their files stay as they are stored.
pub(in crate::worktree) fn check_out(tree: &Path, user: UserIds) -> Result<(), EngineError> {
    let run = Git::new(tree, "read-tree")
        .args(["--reset", "-u", "HEAD"])
        .setting("checkout.workers=0")
        .user(user)
        .limits(Limits::WORK)
        .run();
    run.map(|_output| ())
        .map_err(|source| EngineError::Git { source })
}
