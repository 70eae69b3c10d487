//! Actions on disk: roots, worktrees, their reclaim.

use std::path::{Path, PathBuf};

use super::{ExecuteError, Shared, applied};
use crate::model::action::TreeOrder;
use crate::model::chain::chain;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::{Uid, WorktreeId};
use crate::model::observed::{TreePhase, Worktree};
use crate::model::remote::RemoteUrl;
use crate::model::units::Name;
use crate::store::{Effect, Salvage};
use crate::task::blocking;
use crate::worktree::provision::{ProvisionError, TreeRequest, provision};
use crate::worktree::reason::ReasonCode;
use crate::worktree::space::{SpaceError, SpaceRequest, ensure_overlay, ensure_space_root};
use crate::worktree::trash::{ReclaimRequest, reclaim, reclaim_space_root};

impl Shared {
    /// Makes a space's root and an overlay directory for each agent.
    pub(super) async fn ensure_space_root(
        &self,
        workspace: Uid,
        space: Uid,
        agents: Vec<Uid>,
    ) -> Result<Effect, ExecuteError> {
        let layout = self.settings.layout.clone();
        let path = text(&layout.space(workspace, space));
        applied(
            self.store
                .record_root(workspace, space, path, self.clock.now())
                .await?,
        )?;
        let request = SpaceRequest {
            workspace,
            space,
            user: self.settings.user,
            now: self.clock.now(),
        };
        let make = move || {
            ensure_space_root(&layout, &request)?;
            agents
                .into_iter()
                .map(|agent| Ok((agent, text(&ensure_overlay(&layout, &request, agent)?))))
                .collect::<Result<_, SpaceError>>()
        };
        let overlays = blocking("make space root", make).await?;
        let overlays = overlays.map_err(|error| refused(&error.into()))?;
        Ok(self.store.root_ready(space, overlays).await?)
    }

    /// Makes one worktree, its row first.
    pub(super) async fn provision_worktree(
        &self,
        order: TreeOrder,
    ) -> Result<Effect, ExecuteError> {
        let repo_name: Name = order
            .repo_name
            .parse()
            .map_err(|error| worktree_error("repoName", &error, "rename the Repo", false))?;
        let layout = self.settings.layout.clone();
        let path = layout.tree(order.workspace, order.space, &repo_name);
        let row = Worktree {
            id: order.worktree,
            workspace: order.workspace,
            space: order.space,
            repo: order.repo,
            repo_name: order.repo_name.clone(),
            path: text(&path),
            branch: order.branch.to_string(),
            base: None,
            backend: self.settings.backend,
            phase: TreePhase::Provisioning,
        };
        applied(self.store.record_worktree(row, self.clock.now()).await?)?;
        crash_point(CrashPoint::WorktreeRecorded);
        let request = TreeRequest {
            workspace: order.workspace,
            space: order.space,
            repo: order.repo,
            repo_name,
            source: self.source_path(&order.source)?,
            base_branch: order.base_branch,
            branch: order.branch,
            user: self.settings.user,
            backend: self.settings.backend,
            now: self.clock.now(),
        };
        let _permit = self.trees.acquire().await;
        applied(self.still_wanted(order.worktree).await?)?;
        let made = blocking("provision worktree", move || provision(&layout, &request)).await?;
        let made = made.map_err(|error| refused(&error))?;
        crash_point(CrashPoint::WorktreeMade);
        let base = made.base.to_string();
        Ok(self
            .store
            .worktree_ready(order.worktree, base, self.clock.now())
            .await?)
    }

    /// Whether the worktree is still to be made: waiting for its turn may have taken long, and a tree
    /// that is made without a row is one that nothing reclaims.
    async fn still_wanted(&self, worktree: WorktreeId) -> Result<Effect, ExecuteError> {
        let row = self.store.worktree(worktree).await?;
        Ok(match row.map(|row| row.phase) {
            Some(TreePhase::Provisioning | TreePhase::Ready) => Effect::Unchanged,
            Some(TreePhase::Reclaiming) => {
                Effect::Stale(format!("worktree {worktree} is being reclaimed"))
            }
            None => Effect::Stale(format!("worktree {worktree} is not recorded")),
        })
    }

    /// Saves what the worktree holds, moves it to the trash, and forgets it.
    pub(super) async fn reclaim_worktree(
        &self,
        worktree: WorktreeId,
    ) -> Result<Effect, ExecuteError> {
        let now = self.clock.now();
        applied(self.store.worktree_reclaiming(worktree).await?)?;
        let Some(row) = self.store.worktree(worktree).await? else {
            return Ok(Effect::Unchanged);
        };
        let request = ReclaimRequest {
            tree: PathBuf::from(&row.path),
            space: row.space,
            repo: row.repo,
            now,
        };
        let layout = self.settings.layout.clone();
        let _permit = self.trees.acquire().await;
        let salvaged = blocking("reclaim worktree", move || reclaim(&layout, &request)).await?;
        let salvaged = salvaged.map_err(|error| {
            let remedy = "look at the tree; it is kept until this passes";
            worktree_error("reclaim", &error, remedy, true)
        })?;
        crash_point(CrashPoint::TreeTrashed);
        let salvaged = salvaged.map(|salvage| Salvage {
            reference: salvage.name,
            commit: salvage.commit.to_string(),
        });
        Ok(self
            .store
            .remove_worktree(worktree, salvaged, self.clock.now())
            .await?)
    }

    /// Moves an empty space's root to the trash and forgets it.
    pub(super) async fn reclaim_space_root(
        &self,
        workspace: Uid,
        space: Uid,
    ) -> Result<Effect, ExecuteError> {
        applied(self.store.root_reclaiming(space).await?)?;
        let layout = self.settings.layout.clone();
        let moved = move || reclaim_space_root(&layout, workspace, space);
        blocking("reclaim space root", moved)
            .await?
            .map_err(|error| {
                let remedy = "look at the directory; it is kept until this passes";
                worktree_error("reclaim", &error, remedy, true)
            })?;
        Ok(self.store.remove_root(space, self.clock.now()).await?)
    }

    /// A repo's source, relative to where the manifests lie.
    fn source_path(&self, source: &str) -> Result<PathBuf, ExecuteError> {
        match &self.settings.source_base {
            Some(base) => Ok(base.join(source)),
            None if Path::new(source).is_absolute() || RemoteUrl::is_meant(source) => {
                Ok(PathBuf::from(source))
            }
            None => Err(ExecuteError::Worktree {
                code: ReasonCode::SourceMissing.to_string(),
                message: format!(
                    "find the source {source:?}: the manifests lie on another host, and a relative \
                     path starts nowhere on this one"
                ),
                remedy: "write the repo's source as an absolute path".to_owned(),
                is_transient: false,
            }),
        }
    }
}

/// A directory or worktree that could not be made, by its reason code.
fn refused(error: &ProvisionError) -> ExecuteError {
    let reason = error.reason();
    worktree_error(
        &reason.to_string(),
        error,
        reason.remedy(),
        reason.is_transient(),
    )
}

fn worktree_error(
    code: &str,
    error: &dyn std::error::Error,
    remedy: &str,
    is_transient: bool,
) -> ExecuteError {
    ExecuteError::Worktree {
        code: code.to_owned(),
        message: chain(error),
        remedy: remedy.to_owned(),
        is_transient,
    }
}

/// A path of ours: built from a data directory that was checked to be Unicode, uids and names.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
