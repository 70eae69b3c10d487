//! Observed state: everything that rows can tell, of one instant.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::{Connection, Row};

use super::sql::{Columns, Text};
use super::{Store, StoreError, operator, provider, revision, root, status, tree, wake};
use crate::model::budget::{BudgetPause, IncidentKind, ScopeKey};
use crate::model::id::{RunId, Uid, WakeId, WorktreeId};
use crate::model::kind::ObjectRef;
use crate::model::observed::{ObjectState, Observed, TicketState, Worktree};
use crate::model::run::{EndedRun, LiveRun};
use crate::model::wake::QueuedWake;

impl Store {
    /// Everything that rows tell the planner, in one snapshot. What they cannot tell is left at its
    /// default: `spend`, `estop`, `is_draining`, `backend`, and what only its task
    /// knows of a run (`is_attached`, `is_listening`).
    /// Operators' pauses that expired by `now` are left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn observe(&self, now: Timestamp) -> Result<Observed, StoreError> {
        self.connections
            .read("observed state", move |conn| {
                Ok(Observed {
                    revision: revision::current(conn)?,
                    objects: objects(conn)?,
                    roots: root::roots(conn)?,
                    worktrees: worktrees(conn)?,
                    wakes: pending_wakes(conn)?,
                    live_runs: live_runs(conn)?,
                    ended_runs: ended_runs(conn)?,
                    tickets: tickets(conn)?,
                    schedule_slots: schedule_slots(conn)?,
                    operator_pauses: operator::pauses(conn, None, now)?,
                    provider_pauses: provider::pauses(conn, now)?,
                    takeovers: operator::takeovers(conn)?,
                    budget_pauses: budget_pauses(conn)?,
                    incidents: incidents(conn)?,
                    backoffs: status::backoffs(conn)?,
                    ..Observed::default()
                })
            })
            .await
    }
}

fn objects(conn: &Connection) -> rusqlite::Result<BTreeMap<ObjectRef, ObjectState>> {
    conn.prepare_cached("SELECT * FROM objects WHERE deleted_at IS NULL")?
        .query_map([], |row| {
            Ok((row.reference("reference")?, object_state(row)?))
        })?
        .collect()
}

/// A row of `objects`.
pub(super) fn object_state(row: &Row<'_>) -> rusqlite::Result<ObjectState> {
    Ok(ObjectState {
        uid: row.text("uid")?,
        generation: row.get("generation")?,
        generation_since: row.at("generation_since")?,
        spec_hash: row.get("spec_hash")?,
        revision: row.revision("revision")?,
        created_at: row.at("created_at")?,
        dispatched_generation: row.get("dispatched_generation")?,
        first_revision_generation: row.get("first_revision_generation")?,
        deletion_requested_at: row.at_opt("deletion_requested_at")?,
    })
}

fn worktrees(conn: &Connection) -> rusqlite::Result<BTreeMap<WorktreeId, Worktree>> {
    conn.prepare_cached("SELECT * FROM worktrees")?
        .query_map([], |row| tree::worktree(row).map(|it| (it.id, it)))?
        .collect()
}

fn pending_wakes(conn: &Connection) -> rusqlite::Result<Vec<QueuedWake>> {
    let mut wakes: Vec<QueuedWake> = conn
        .prepare_cached("SELECT * FROM wakes WHERE state = 'pending'")?
        .query_map([], wake::queued_wake)?
        .collect::<rusqlite::Result<_>>()?;
    wakes.sort_by_key(|queued| (queued.wake.priority, queued.sequence));
    Ok(wakes)
}

fn live_runs(conn: &Connection) -> rusqlite::Result<BTreeMap<RunId, LiveRun>> {
    let mut repos =
        conn.prepare_cached("SELECT repo FROM run_trees WHERE run = ?1 ORDER BY repo")?;
    let mut statement = conn.prepare_cached(
        "SELECT r.*, w.cause AS cause FROM runs r JOIN wakes w ON w.id = r.wake
         WHERE r.status IN ('pending', 'running')",
    )?;
    let mut rows = statement.query([])?;
    let mut runs = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let id: RunId = row.text("id")?;
        let run = LiveRun {
            id,
            wake: row.text("wake")?,
            status: row.text("status")?,
            workspace: row.text("workspace")?,
            agent: row.text("agent")?,
            space: row.text("space")?,
            conversation: row.text("conversation")?,
            ticket: row.text_opt("ticket")?,
            cause: row.text_opt("cause")?,
            repos: repos
                .query_map([Text(id)], |row| row.text("repo"))?
                .collect::<rusqlite::Result<_>>()?,
            stop_requested: row.text_opt("stop_requested")?,
            started_at: row.at("started_at")?,
            is_attached: false,
            is_listening: false,
        };
        runs.insert(id, run);
    }
    Ok(runs)
}

fn ended_runs(conn: &Connection) -> rusqlite::Result<Vec<EndedRun>> {
    let mut wakes = conn.prepare_cached("SELECT * FROM wakes WHERE id = ?1")?;
    let mut statement = conn.prepare_cached(
        "SELECT * FROM runs WHERE status IN ('completed', 'error') AND is_settled = 0 ORDER BY seq",
    )?;
    let mut rows = statement.query([])?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next()? {
        let id: WakeId = row.text("wake")?;
        runs.push(EndedRun {
            id: row.text("id")?,
            wake: wakes.query_row([Text(id)], wake::queued_wake)?.wake,
            status: row.text("status")?,
            liveness: row.text("liveness")?,
            family: row.text_opt("error_family")?,
            error_code: row.get("error_code")?,
            end_reason: row.text("end_reason")?,
            is_retryable: row.get("is_retryable")?,
            provider: provider::ask(row)?,
            continuation: row.get("continuation")?,
            ended_at: row.at("ended_at")?,
        });
    }
    Ok(runs)
}

fn tickets(conn: &Connection) -> rusqlite::Result<BTreeMap<Uid, TicketState>> {
    conn.prepare_cached(
        "SELECT t.* FROM tickets t JOIN objects o ON o.uid = t.uid WHERE o.deleted_at IS NULL",
    )?
    .query_map([], |row| {
        let state = TicketState {
            status: row.text("status")?,
            assignee: row.text_opt("assignee")?,
            assignments: row.count32("assignments")?,
        };
        Ok((row.text("uid")?, state))
    })?
    .collect()
}

fn schedule_slots(conn: &Connection) -> rusqlite::Result<BTreeMap<Uid, Timestamp>> {
    conn.prepare_cached("SELECT uid, last_slot FROM schedules")?
        .query_map([], |row| Ok((row.text("uid")?, row.at("last_slot")?)))?
        .collect()
}

fn budget_pauses(conn: &Connection) -> rusqlite::Result<BTreeMap<ScopeKey, BudgetPause>> {
    conn.prepare_cached("SELECT * FROM budget_pauses")?
        .query_map([], |row| {
            let scope = row.scope()?;
            let pause = BudgetPause {
                scope,
                window: row.get("window")?,
                spent: row.amount("spent")?,
                ceiling: row.amount("ceiling")?,
                since: row.at("since")?,
            };
            Ok((scope, pause))
        })?
        .collect()
}

fn incidents(conn: &Connection) -> rusqlite::Result<BTreeSet<(ScopeKey, String, IncidentKind)>> {
    conn.prepare_cached("SELECT scope_kind, scope_uid, window, kind FROM incidents")?
        .query_map([], |row| {
            Ok((row.scope()?, row.get("window")?, row.text("kind")?))
        })?
        .collect()
}
