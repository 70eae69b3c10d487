//! Worktrees, and what was saved of those that went.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::json;

use super::recovery::run_tree;
use super::sql::{At, Columns, Text, exists};
use super::{Effect, Store, StoreError, outbox};
use crate::model::event::DomainEventType;
use crate::model::id::{Uid, WorktreeId};
use crate::model::observed::{TreePhase, Worktree};
use crate::model::run::RunTree;

/// A commit that keeps what a worktree had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    /// The ref in the repo's cache.
    pub reference: String,
    /// The commit, hex.
    pub commit: String,
}

/// A worktree as the last run left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLeft {
    /// Which.
    pub tree: RunTree,
    /// Its commit then, hex; none when no run was looked at after it.
    pub head: Option<String>,
    /// What was not committed then, as a fingerprint; none: nothing.
    pub dirt: Option<String>,
}

/// A salvage as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SalvageView {
    /// The worktree that it was taken of.
    pub worktree: WorktreeId,
    /// Its workspace.
    pub workspace: Uid,
    /// Its space.
    pub space: Uid,
    /// Its repo.
    pub repo: Uid,
    /// The repo's name then.
    pub repo_name: String,
    /// The branch it was on.
    pub branch: String,
    /// The ref in the repo's cache.
    pub reference: String,
    /// The commit, hex.
    pub commit: String,
    /// When.
    pub at: Timestamp,
}

impl Store {
    /// The ready worktrees of a space, in the order of their repos' names, each as the last run in it
    /// that was looked at left it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn trees_as_left(&self, space: Uid) -> Result<Vec<TreeLeft>, StoreError> {
        self.connections
            .read("worktrees of a space", move |conn| {
                conn.prepare_cached(
                    "SELECT w.id AS worktree, w.repo, w.repo_name, w.path, w.branch, w.base, t.head, t.dirt
                     FROM worktrees w LEFT JOIN run_trees t ON t.worktree = w.id AND t.run =
                       (SELECT r.id FROM run_trees t JOIN runs r ON r.id = t.run
                        WHERE t.worktree = w.id AND t.head IS NOT NULL
                        ORDER BY r.seq DESC LIMIT 1)
                     WHERE w.space = ?1 AND w.phase = 'ready' AND w.base IS NOT NULL
                     ORDER BY w.repo_name",
                )?
                .query_map([Text(space)], |row| {
                    let tree = run_tree(row)?;
                    let (head, dirt) = (row.get("head")?, row.get("dirt")?);
                    Ok(TreeLeft { tree, head, dirt })
                })?
                .collect()
            })
            .await
    }

    /// Records that a worktree is about to be made; its phase is `provisioning` whatever the
    /// argument says. One that is recorded stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_worktree(
        &self,
        worktree: Worktree,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("worktree", move |conn| {
                let phase = worktree_phase(conn, worktree.id)?;
                if let Some(stale) = not_usable(phase, "the worktree") {
                    return Ok(stale);
                }
                let inserted = conn
                    .prepare_cached(
                        "INSERT INTO worktrees (id, workspace, space, repo, repo_name, path,
                           branch, base, backend, phase, created_at)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, ?8, ?9, ?10)
                         ON CONFLICT (id) DO NOTHING",
                    )?
                    .execute(params![
                        Text(worktree.id),
                        Text(worktree.workspace),
                        Text(worktree.space),
                        Text(worktree.repo),
                        worktree.repo_name,
                        worktree.path,
                        worktree.branch,
                        Text(worktree.backend),
                        Text(TreePhase::Provisioning),
                        At(now)
                    ])?;
                Ok(Effect::applied_if(inserted == 1))
            })
            .await
    }

    /// Records that a worktree is complete, from `base`; publishes `SpaceProvisioned` when no other
    /// worktree of the space is in the making.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn worktree_ready(
        &self,
        id: WorktreeId,
        base: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("worktree", move |conn| {
                match worktree_phase(conn, id)? {
                    None => return Ok(Effect::stale(format!("worktree {id} is not recorded"))),
                    Some(TreePhase::Ready) => return Ok(Effect::Unchanged),
                    Some(TreePhase::Reclaiming) => {
                        return Ok(Effect::stale(format!("worktree {id} is being reclaimed")));
                    }
                    Some(TreePhase::Provisioning) => {}
                }
                let (workspace, space): (Uid, Uid) = conn
                    .prepare_cached(
                        "UPDATE worktrees SET phase = ?2, base = ?3 WHERE id = ?1
                         RETURNING workspace, space",
                    )?
                    .query_row(params![Text(id), Text(TreePhase::Ready), base], |row| {
                        Ok((row.text("workspace")?, row.text("space")?))
                    })?;
                let is_unfinished = conn
                    .prepare_cached("SELECT 1 FROM worktrees WHERE space = ?1 AND phase = ?2")?
                    .exists(params![Text(space), Text(TreePhase::Provisioning)])?;
                if !is_unfinished {
                    outbox::publish(
                        conn,
                        DomainEventType::SpaceProvisioned,
                        Some(workspace),
                        &space.to_string(),
                        &json!({ "space": space }),
                        now,
                    )?;
                }
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records that a worktree is on its way to the trash. Stale while a run holds it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn worktree_reclaiming(&self, id: WorktreeId) -> Result<Effect, StoreError> {
        self.connections
            .write("worktree", move |conn| {
                match worktree_phase(conn, id)? {
                    None => return Ok(Effect::stale(format!("worktree {id} is not recorded"))),
                    Some(TreePhase::Reclaiming) => return Ok(Effect::Unchanged),
                    Some(TreePhase::Provisioning | TreePhase::Ready) => {}
                }
                let is_leased = conn
                    .prepare_cached("SELECT 1 FROM leases WHERE worktree = ?1")?
                    .exists([Text(id)])?;
                if is_leased {
                    return Ok(Effect::stale(format!("a live run holds worktree {id}")));
                }
                conn.prepare_cached("UPDATE worktrees SET phase = ?2 WHERE id = ?1")?
                    .execute(params![Text(id), Text(TreePhase::Reclaiming)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records what was saved of a worktree, before the tree goes.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_salvage(
        &self,
        id: WorktreeId,
        salvage: Salvage,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("salvage", move |conn| {
                insert_salvage(conn, id, &salvage, now)
            })
            .await
    }

    /// Forgets a worktree, after it went. A salvage that is given is recorded first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn remove_worktree(
        &self,
        id: WorktreeId,
        salvage: Option<Salvage>,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("removal of a worktree", move |conn| {
                match worktree_phase(conn, id)? {
                    None => return Ok(Effect::Unchanged),
                    Some(phase @ (TreePhase::Provisioning | TreePhase::Ready)) => {
                        return Ok(Effect::stale(format!("worktree {id} is {phase}")));
                    }
                    Some(TreePhase::Reclaiming) => {}
                }
                if let Some(salvage) = &salvage {
                    let _recorded_or_known = insert_salvage(conn, id, salvage, now)?;
                }
                conn.prepare_cached("DELETE FROM worktrees WHERE id = ?1")?
                    .execute([Text(id)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// The worktree's row, if it has one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn worktree(&self, id: WorktreeId) -> Result<Option<Worktree>, StoreError> {
        self.connections
            .read("worktree", move |conn| {
                conn.prepare_cached("SELECT * FROM worktrees WHERE id = ?1")?
                    .query_row([Text(id)], worktree)
                    .optional()
            })
            .await
    }

    /// Every worktree, in id order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn worktrees(&self) -> Result<Vec<Worktree>, StoreError> {
        self.connections
            .read("worktrees", |conn| {
                conn.prepare_cached("SELECT * FROM worktrees ORDER BY id")?
                    .query_map([], worktree)?
                    .collect()
            })
            .await
    }

    /// Salvages, the latest first; of one space if it is given.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn salvages(&self, space: Option<Uid>) -> Result<Vec<SalvageView>, StoreError> {
        self.connections
            .read("salvages", move |conn| {
                conn.prepare_cached(
                    "SELECT * FROM salvages WHERE ?1 IS NULL OR space = ?1 ORDER BY seq DESC",
                )?
                .query_map([space.map(Text)], salvage_view)?
                .collect()
            })
            .await
    }
}

pub(super) fn worktree_phase(
    conn: &Connection,
    id: WorktreeId,
) -> rusqlite::Result<Option<TreePhase>> {
    conn.prepare_cached("SELECT phase FROM worktrees WHERE id = ?1")?
        .query_row([Text(id)], |row| row.text("phase"))
        .optional()
}

/// Nothing is made anew of what is on its way out.
pub(super) fn not_usable(phase: Option<TreePhase>, what: &str) -> Option<Effect> {
    (phase == Some(TreePhase::Reclaiming))
        .then(|| Effect::stale(format!("{what} is being reclaimed")))
}

fn insert_salvage(
    conn: &Connection,
    id: WorktreeId,
    salvage: &Salvage,
    now: Timestamp,
) -> rusqlite::Result<Effect> {
    if worktree_phase(conn, id)?.is_none() {
        return Ok(Effect::stale(format!("worktree {id} is not recorded")));
    }
    let is_known = exists(
        conn,
        "SELECT 1 FROM salvages WHERE worktree = ?1 AND reference = ?2",
        params![Text(id), salvage.reference],
    )?;
    if is_known {
        return Ok(Effect::Unchanged);
    }
    conn.prepare_cached(
        "INSERT INTO salvages (worktree, workspace, space, repo, repo_name, branch, reference,
               commit_id, at)
             SELECT id, workspace, space, repo, repo_name, branch, ?2, ?3, ?4
             FROM worktrees WHERE id = ?1",
    )?
    .execute(params![
        Text(id),
        salvage.reference,
        salvage.commit,
        At(now)
    ])?;
    Ok(Effect::Applied)
}

/// A row of `worktrees`.
pub(super) fn worktree(row: &Row<'_>) -> rusqlite::Result<Worktree> {
    Ok(Worktree {
        id: row.text("id")?,
        workspace: row.text("workspace")?,
        space: row.text("space")?,
        repo: row.text("repo")?,
        repo_name: row.get("repo_name")?,
        path: row.get("path")?,
        branch: row.get("branch")?,
        base: row.get("base")?,
        backend: row.text("backend")?,
        phase: row.text("phase")?,
    })
}

fn salvage_view(row: &Row<'_>) -> rusqlite::Result<SalvageView> {
    Ok(SalvageView {
        worktree: row.text("worktree")?,
        workspace: row.text("workspace")?,
        space: row.text("space")?,
        repo: row.text("repo")?,
        repo_name: row.get("repo_name")?,
        branch: row.get("branch")?,
        reference: row.get("reference")?,
        commit: row.get("commit_id")?,
        at: row.at("at")?,
    })
}
