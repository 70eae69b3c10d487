//! What a person did in a space's worktrees while they had it.

use super::close::look_at;
use super::registry::{DispatchError, Runs};
use super::transcript::one_line;
use crate::model::id::Uid;
use crate::store::TreeLeft;

/// One worktree that is not as the last run left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    /// The repo's name.
    pub repo: String,
    /// The commit that the last run left, or that the branch started from, hex.
    pub from: String,
    /// The commit now, hex; none when there is none, or it can't be seen.
    pub to: Option<String>,
    /// Paths that are not committed, each as one short line.
    pub changed: Vec<String>,
}

impl Runs {
    /// The worktrees of a space that differ from what the last run in them left.
    ///
    /// # Errors
    /// When the records can't be read. A tree that can't be looked at counts as not changed, and is
    /// in the log.
    pub async fn changes_in(&self, space: Uid) -> Result<Vec<TreeChange>, DispatchError> {
        let left = self.shared.store.trees_as_left(space).await?;
        let trees: Vec<_> = left.iter().map(|left| left.tree.clone()).collect();
        let looked = look_at(&self.shared, &trees).await?;
        let changes = left.into_iter().zip(looked).filter_map(|(left, looked)| {
            let TreeLeft { tree, head, dirt } = left;
            let from = head.unwrap_or(tree.base);
            let to = looked.result.head;
            let has_moved = to.as_ref().is_some_and(|to| *to != from);
            let has_other_dirt = looked.result.is_dirty.is_some() && looked.result.dirt != dirt;
            (has_moved || has_other_dirt).then_some(TreeChange {
                repo: tree.repo_name,
                from,
                to,
                changed: looked.changed.iter().map(|path| one_line(path)).collect(),
            })
        });
        Ok(changes.collect())
    }
}
