//! A live run's row: its process, its prompt, what it emits, and the stop that is asked for.

use std::fmt::Write as _;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::sql::{At, Columns, Json, Text, int};
use super::{Effect, Store, StoreError, outbox};
use crate::model::event::{AgentEvent, DomainEventType};
use crate::model::id::{RunId, Uid};
use crate::model::process::ProcessIdentity;
use crate::model::run::{EndReason, Liveness, RunStatus};

/// What is known of a run's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunProcess {
    /// The run.
    pub run: RunId,
    /// Where its row is.
    pub status: RunStatus,
    /// The agent.
    pub agent: Uid,
    /// The life of the daemon that started it.
    pub incarnation: String,
    /// The process; none: it was never released, and nothing of it ran.
    pub identity: Option<ProcessIdentity>,
    /// Its control group.
    pub cgroup: Option<String>,
    /// Absolute path of its log.
    pub log_path: String,
    /// The stop that was asked for.
    pub stop_requested: Option<EndReason>,
}

/// One stored event of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Its place in the run, from the run's own counter.
    pub seq: u64,
    /// When it was read.
    pub at: Timestamp,
    /// What was emitted.
    pub event: AgentEvent,
}

/// A stop that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// Why.
    pub reason: EndReason,
    /// Who asked.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

impl Store {
    /// Records which process a run is, before it is released. Stale when the run is closed, or is
    /// another process already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn store_identity(
        &self,
        run: RunId,
        identity: ProcessIdentity,
        cgroup: Option<String>,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("process identity", move |conn| {
                let Some(process) = process(conn, run)? else {
                    return Ok(not_known(run));
                };
                if !process.status.is_live() {
                    return Ok(is_closed(run));
                }
                if let Some(stored) = process.identity {
                    if stored == identity && process.cgroup == cgroup {
                        return Ok(Effect::Unchanged);
                    }
                    return Ok(Effect::stale(format!("run {run} is {stored}")));
                }
                conn.prepare_cached(
                    "UPDATE runs SET pid = ?2, process_start_time = ?3, boot_id = ?4, cgroup = ?5
                     WHERE id = ?1",
                )?
                .execute(params![
                    Text(run),
                    identity.pid,
                    int(identity.start_time),
                    identity.boot_id,
                    cgroup
                ])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records the prompt exactly as it is sent, with its SHA-256. Written once.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn store_prompt(&self, run: RunId, prompt: String) -> Result<Effect, StoreError> {
        self.connections
            .write("prompt", move |conn| {
                let stored: Option<Option<String>> = conn
                    .prepare_cached("SELECT prompt FROM runs WHERE id = ?1")?
                    .query_row([Text(run)], |row| row.get(0))
                    .optional()?;
                match stored {
                    None => return Ok(not_known(run)),
                    Some(Some(stored)) if stored == prompt => return Ok(Effect::Unchanged),
                    Some(Some(_)) => {
                        return Ok(Effect::stale(format!("run {run} has another prompt")));
                    }
                    Some(None) => {}
                }
                conn.prepare_cached(
                    "UPDATE runs SET prompt = ?2, prompt_sha256 = ?3 WHERE id = ?1",
                )?
                .execute(params![Text(run), prompt, sha256(&prompt)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records that a run's process was released; publishes `AgentRunStarted`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark_running(&self, run: RunId, now: Timestamp) -> Result<Effect, StoreError> {
        self.connections
            .write("start of a run", move |conn| {
                let row: Option<(RunStatus, Uid, Uid, Uid)> = conn
                    .prepare_cached(
                        "SELECT status, workspace, agent, space FROM runs WHERE id = ?1",
                    )?
                    .query_row([Text(run)], |row| {
                        Ok((
                            row.text("status")?,
                            row.text("workspace")?,
                            row.text("agent")?,
                            row.text("space")?,
                        ))
                    })
                    .optional()?;
                let (workspace, agent, space) = match row {
                    None => return Ok(not_known(run)),
                    Some((RunStatus::Running, ..)) => return Ok(Effect::Unchanged),
                    Some((RunStatus::Completed | RunStatus::Error, ..)) => {
                        return Ok(is_closed(run));
                    }
                    Some((RunStatus::Pending, workspace, agent, space)) => {
                        (workspace, agent, space)
                    }
                };
                conn.prepare_cached("UPDATE runs SET status = ?2, released_at = ?3 WHERE id = ?1")?
                    .execute(params![Text(run), Text(RunStatus::Running), At(now)])?;
                outbox::publish(
                    conn,
                    DomainEventType::AgentRunStarted,
                    Some(workspace),
                    &run.to_string(),
                    &json!({ "runId": run, "agent": agent, "space": space }),
                    now,
                )?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Stores events of a run. One whose number is stored already is left as it is. How many were
    /// new.
    ///
    /// # Errors
    /// When the database fails, or the run is not known.
    pub async fn append_events(
        &self,
        run: RunId,
        events: Vec<RunEvent>,
    ) -> Result<usize, StoreError> {
        self.connections
            .write("events of a run", move |conn| {
                let mut new = 0;
                let mut insert = conn.prepare_cached(
                    "INSERT INTO run_events (run, seq, at, type, json) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (run, seq) DO NOTHING",
                )?;
                for event in &events {
                    new += insert.execute(params![
                        Text(run),
                        int(event.seq),
                        At(event.at),
                        event.event.type_name(),
                        Json(&event.event)
                    ])?;
                }
                if new > 0 {
                    note_output(conn, run, &events)?;
                }
                Ok(new)
            })
            .await
    }

    /// Records how a live run is doing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_liveness(&self, run: RunId, liveness: Liveness) -> Result<Effect, StoreError> {
        self.connections
            .write("liveness", move |conn| {
                let changed = conn
                    .prepare_cached(
                        "UPDATE runs SET liveness = ?2
                         WHERE id = ?1 AND ended_at IS NULL AND liveness IS NOT ?2",
                    )?
                    .execute(params![Text(run), Text(liveness)])?;
                Ok(Effect::applied_if(changed == 1))
            })
            .await
    }

    /// Asks a live run to end. The first request stands.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn request_stop(
        &self,
        run: RunId,
        reason: EndReason,
        by: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("stop of a run", move |conn| {
                let Some(process) = process(conn, run)? else {
                    return Ok(not_known(run));
                };
                if !process.status.is_live() {
                    return Ok(is_closed(run));
                }
                if process.stop_requested.is_some() {
                    return Ok(Effect::Unchanged);
                }
                conn.prepare_cached(
                    "UPDATE runs SET stop_requested = ?2, stop_requested_by = ?3,
                       stop_requested_at = ?4 WHERE id = ?1",
                )?
                .execute(params![Text(run), Text(reason), by, At(now)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// The stop that a run was asked for.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn stop_requested(&self, run: RunId) -> Result<Option<StopRequest>, StoreError> {
        self.connections
            .read("stop of a run", move |conn| {
                conn.prepare_cached(
                    "SELECT stop_requested, stop_requested_by, stop_requested_at FROM runs
                     WHERE id = ?1 AND stop_requested IS NOT NULL",
                )?
                .query_row([Text(run)], |row| {
                    Ok(StopRequest {
                        reason: row.text("stop_requested")?,
                        by: row.get("stop_requested_by")?,
                        at: row.at("stop_requested_at")?,
                    })
                })
                .optional()
            })
            .await
    }

    /// What is known of a run's process.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn process_of(&self, run: RunId) -> Result<Option<RunProcess>, StoreError> {
        self.connections
            .read("process of a run", move |conn| process(conn, run))
            .await
    }

    /// Processes of every live run, in the order of starting: what recovery and an emergency stop
    /// without a daemon look for.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn live_processes(&self) -> Result<Vec<RunProcess>, StoreError> {
        self.connections
            .read("live processes", |conn| {
                conn.prepare_cached(
                    "SELECT * FROM runs WHERE status IN ('pending', 'running') ORDER BY seq",
                )?
                .query_map([], run_process)?
                .collect()
            })
            .await
    }

    /// Every stored event of a run, in order: what recovery folds into usage and a reply.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn run_events(&self, run: RunId) -> Result<Vec<RunEvent>, StoreError> {
        self.events_after(run, None, u32::MAX).await
    }

    /// Events of a run after number `after`, from the first one if it is none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn events_after(
        &self,
        run: RunId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<RunEvent>, StoreError> {
        self.connections
            .read("events of a run", move |conn| {
                conn.prepare_cached(
                    "SELECT seq, at, json FROM run_events WHERE run = ?1 AND seq > ?2
                     ORDER BY seq LIMIT ?3",
                )?
                .query_map(params![Text(run), after.map_or(-1, int), limit], |row| {
                    Ok(RunEvent {
                        seq: row.count("seq")?,
                        at: row.at("at")?,
                        event: row.json("json")?,
                    })
                })?
                .collect()
            })
            .await
    }
}

fn not_known(run: RunId) -> Effect {
    Effect::stale(format!("run {run} is not known"))
}

fn is_closed(run: RunId) -> Effect {
    Effect::stale(format!("run {run} is closed"))
}

/// Moves a live run's output times on.
fn note_output(conn: &Connection, run: RunId, events: &[RunEvent]) -> rusqlite::Result<()> {
    let (Some(first), Some(last)) = (
        events.iter().map(|event| event.at).min(),
        events.iter().map(|event| event.at).max(),
    ) else {
        return Ok(());
    };
    conn.prepare_cached(
        "UPDATE runs SET first_output_at = coalesce(first_output_at, ?2),
           last_output_at = max(coalesce(last_output_at, ?3), ?3)
         WHERE id = ?1 AND ended_at IS NULL",
    )?
    .execute(params![Text(run), At(first), At(last)])?;
    Ok(())
}

fn process(conn: &Connection, run: RunId) -> rusqlite::Result<Option<RunProcess>> {
    conn.prepare_cached("SELECT * FROM runs WHERE id = ?1")?
        .query_row([Text(run)], run_process)
        .optional()
}

fn run_process(row: &Row<'_>) -> rusqlite::Result<RunProcess> {
    Ok(RunProcess {
        run: row.text("id")?,
        status: row.text("status")?,
        agent: row.text("agent")?,
        incarnation: row.get("incarnation")?,
        identity: identity(row)?,
        cgroup: row.get("cgroup")?,
        log_path: row.get("log_path")?,
        stop_requested: row.text_opt("stop_requested")?,
    })
}

/// The process columns of a run.
pub(super) fn identity(row: &Row<'_>) -> rusqlite::Result<Option<ProcessIdentity>> {
    let pid: Option<u32> = row.get("pid")?;
    let boot_id: Option<String> = row.get("boot_id")?;
    let (Some(pid), Some(boot_id)) = (pid, boot_id) else {
        return Ok(None);
    };
    Ok(Some(ProcessIdentity {
        pid,
        start_time: row.count("process_start_time")?,
        boot_id,
    }))
}

/// Hex SHA-256 of a text.
fn sha256(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a string cannot fail.
        let _infallible = write!(hex, "{byte:02x}");
    }
    hex
}
