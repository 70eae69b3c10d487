//! What a person did in a space's worktrees while they had it.

use super::close::look_at;
use super::registry::{DispatchError, Runs};
use crate::model::id::Uid;

/// One worktree that is not as the last run left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    /// The repo's name.
    pub repo: String,
    /// The commit that the last run left, or that the branch started from, hex.
    pub from: String,
    /// The commit now, hex; none when there is none, or it can't be seen.
    pub to: Option<String>,
    /// Paths that are not committed.
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
        let (trees, heads): (Vec<_>, Vec<_>) = left.into_iter().unzip();
        let looked = look_at(&self.shared, &trees).await?;
        let changes = trees.into_iter().zip(heads).zip(looked);
        let changes = changes.filter_map(|((tree, head), looked)| {
            let from = head.unwrap_or(tree.base);
            let to = looked.result.head;
            let has_moved = to.as_ref().is_some_and(|to| *to != from);
            (has_moved || !looked.changed.is_empty()).then_some(TreeChange {
                repo: tree.repo_name,
                from,
                to,
                changed: looked.changed,
            })
        });
        Ok(changes.collect())
    }
}
