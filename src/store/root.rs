//! Working roots of spaces, with their agents' overlay directories.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::sql::{At, Columns, Text};
use super::tree::not_usable;
use super::{Effect, Store, StoreError, outbox};
use crate::model::event::DomainEventType;
use crate::model::id::Uid;
use crate::model::observed::{SpaceRoot, TreePhase};

impl Store {
    /// Records that a space's root is about to be made. One that is recorded stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_root(
        &self,
        workspace: Uid,
        space: Uid,
        path: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("working root", move |conn| {
                if let Some(stale) = not_usable(root_phase(conn, space)?, "the working root") {
                    return Ok(stale);
                }
                let inserted = conn
                    .prepare_cached(
                        "INSERT INTO roots (space, workspace, path, phase, created_at)
                         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (space) DO NOTHING",
                    )?
                    .execute(params![
                        Text(space),
                        Text(workspace),
                        path,
                        Text(TreePhase::Provisioning),
                        At(now)
                    ])?;
                Ok(Effect::applied_if(inserted == 1))
            })
            .await
    }

    /// Records that a space's root is complete, with exactly these overlay directories by agent.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn root_ready(
        &self,
        space: Uid,
        overlays: BTreeMap<Uid, String>,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("working root", move |conn| {
                let phase = root_phase(conn, space)?;
                if phase.is_none() {
                    return Ok(Effect::stale(format!("space {space} has no working root")));
                }
                if let Some(stale) = not_usable(phase, "the working root") {
                    return Ok(stale);
                }
                if phase == Some(TreePhase::Ready) && overlays_of(conn, space)? == overlays {
                    return Ok(Effect::Unchanged);
                }
                conn.prepare_cached("DELETE FROM overlays WHERE space = ?1")?
                    .execute([Text(space)])?;
                for (agent, path) in &overlays {
                    conn.prepare_cached(
                        "INSERT INTO overlays (space, agent, path) VALUES (?1, ?2, ?3)",
                    )?
                    .execute(params![Text(space), Text(agent), path])?;
                }
                conn.prepare_cached("UPDATE roots SET phase = ?2 WHERE space = ?1")?
                    .execute(params![Text(space), Text(TreePhase::Ready)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records that a space's root is on its way to the trash. Stale while worktrees are in it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn root_reclaiming(&self, space: Uid) -> Result<Effect, StoreError> {
        self.connections
            .write("working root", move |conn| {
                match root_phase(conn, space)? {
                    None => return Ok(Effect::stale(format!("space {space} has no working root"))),
                    Some(TreePhase::Reclaiming) => return Ok(Effect::Unchanged),
                    Some(TreePhase::Provisioning | TreePhase::Ready) => {}
                }
                if has_worktrees(conn, space)? {
                    return Ok(Effect::stale("worktrees are still in the root".to_owned()));
                }
                conn.prepare_cached("UPDATE roots SET phase = ?2 WHERE space = ?1")?
                    .execute(params![Text(space), Text(TreePhase::Reclaiming)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Forgets a space's root, after it went; publishes `SpaceReclaimed`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn remove_root(&self, space: Uid, now: Timestamp) -> Result<Effect, StoreError> {
        self.connections
            .write("working root", move |conn| {
                if has_worktrees(conn, space)? {
                    return Ok(Effect::stale("worktrees are still in the root".to_owned()));
                }
                let workspace: Option<Uid> = conn
                    .prepare_cached("DELETE FROM roots WHERE space = ?1 RETURNING workspace")?
                    .query_row([Text(space)], |row| row.text("workspace"))
                    .optional()?;
                let Some(workspace) = workspace else {
                    return Ok(Effect::Unchanged);
                };
                outbox::publish(
                    conn,
                    DomainEventType::SpaceReclaimed,
                    Some(workspace),
                    &space.to_string(),
                    &json!({ "space": space }),
                    now,
                )?;
                Ok(Effect::Applied)
            })
            .await
    }
}

fn root_phase(conn: &Connection, space: Uid) -> rusqlite::Result<Option<TreePhase>> {
    conn.prepare_cached("SELECT phase FROM roots WHERE space = ?1")?
        .query_row([Text(space)], |row| row.text("phase"))
        .optional()
}

fn has_worktrees(conn: &Connection, space: Uid) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM worktrees WHERE space = ?1")?
        .exists([Text(space)])
}

fn overlays_of(conn: &Connection, space: Uid) -> rusqlite::Result<BTreeMap<Uid, String>> {
    conn.prepare_cached("SELECT agent, path FROM overlays WHERE space = ?1")?
        .query_map([Text(space)], |row| {
            Ok((row.text("agent")?, row.get("path")?))
        })?
        .collect()
}

/// Every root with its overlays.
pub(super) fn roots(conn: &Connection) -> rusqlite::Result<BTreeMap<Uid, SpaceRoot>> {
    let mut roots: BTreeMap<Uid, SpaceRoot> = conn
        .prepare_cached("SELECT space, workspace, path, phase FROM roots")?
        .query_map([], |row| {
            let root = SpaceRoot {
                workspace: row.text("workspace")?,
                path: row.get("path")?,
                phase: row.text("phase")?,
                overlays: BTreeMap::new(),
            };
            Ok((row.text("space")?, root))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = conn.prepare_cached("SELECT space, agent, path FROM overlays")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let space: Uid = row.text("space")?;
        if let Some(root) = roots.get_mut(&space) {
            root.overlays.insert(row.text("agent")?, row.get("path")?);
        }
    }
    Ok(roots)
}
