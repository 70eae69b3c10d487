//! Messages and wakes: durable before they are acknowledged.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use super::message::{NewMessage, Saved, save_message};
use super::sql::{At, Columns, Json, Text, exists};
use super::{Effect, Store, StoreError};
use crate::model::id::{ConversationId, MessageId, RunId, Uid, WakeId};
use crate::model::kind::Revision;
use crate::model::wake::{Delay, QueuedWake, Wake, WakeState};

/// What came of a request to post or to wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Posted {
    /// The message, if there is one.
    pub message: Option<MessageId>,
    /// The wake, if there is one.
    pub wake: Option<WakeId>,
    /// Whether this was stored before under the same idempotency key or id; the ids are the first
    /// request's.
    pub was_duplicate: bool,
}

/// A wake and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeRecord {
    /// Rises with every wake.
    pub sequence: i64,
    /// How far it has come.
    pub state: WakeState,
    /// The wake.
    pub wake: Wake,
    /// When it was finished or cancelled.
    pub ended_at: Option<Timestamp>,
    /// Why it was cancelled.
    pub because: Option<String>,
    /// The run that serves it.
    pub run: Option<RunId>,
}

impl Store {
    /// Saves a message, and the wake that it causes, in one transaction; publishes
    /// `MessageReceived` unless the text is blank. A repeated idempotency key saves nothing and
    /// answers what the first request did.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn post_message(
        &self,
        message: NewMessage,
        wake: Option<Wake>,
        idempotency_key: Option<String>,
    ) -> Result<Posted, StoreError> {
        self.connections
            .write("message", move |conn| {
                if let Some(posted) = earlier(conn, idempotency_key.as_deref())? {
                    return Ok(posted);
                }
                let saved = Saved {
                    run: None,
                    message: &message,
                };
                let is_new = save_message(conn, &saved)?;
                if let Some(wake) = &wake {
                    insert_wake(conn, wake)?;
                }
                let posted = Posted {
                    message: Some(message.id),
                    wake: wake.map(|wake| wake.id),
                    was_duplicate: !is_new,
                };
                remember(
                    conn,
                    idempotency_key.as_deref(),
                    &posted,
                    message.created_at,
                )?;
                Ok(posted)
            })
            .await
    }

    /// Records a wake that no message caused (`dispatch`, `retry`).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_wake(
        &self,
        wake: Wake,
        idempotency_key: Option<String>,
    ) -> Result<Posted, StoreError> {
        self.connections
            .write("wake", move |conn| {
                if let Some(posted) = earlier(conn, idempotency_key.as_deref())? {
                    return Ok(posted);
                }
                let posted = Posted {
                    message: None,
                    wake: Some(wake.id),
                    was_duplicate: !insert_wake(conn, &wake)?,
                };
                remember(conn, idempotency_key.as_deref(), &posted, wake.created_at)?;
                Ok(posted)
            })
            .await
    }

    /// Records that a live run is told of a waiting wake. Stale when the wake does not wait any more
    /// or the run is ending.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn tell_wake(&self, wake: WakeId, run: RunId) -> Result<Effect, StoreError> {
        self.connections
            .write("message to a run", move |conn| {
                let goes_on = exists(
                    conn,
                    "SELECT 1 FROM runs WHERE id = ?1 AND status IN ('pending', 'running')
                       AND stop_requested IS NULL",
                    [Text(run)],
                )?;
                if !goes_on {
                    return Ok(Effect::stale(format!("run {run} is ending")));
                }
                let told = conn
                    .prepare_cached(
                        "UPDATE wakes SET state = ?3, told_to = ?2
                         WHERE id = ?1 AND state = 'pending'",
                    )?
                    .execute(params![Text(wake), Text(run), Text(WakeState::Claimed)])?;
                if told == 0 {
                    return Ok(Effect::stale(format!("wake {wake} does not wait")));
                }
                Ok(Effect::Applied)
            })
            .await
    }

    /// Takes back that a run was told of a wake, which did not reach its agent: it waits again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn untell_wake(&self, wake: WakeId, run: RunId) -> Result<Effect, StoreError> {
        self.connections
            .write("message to a run", move |conn| {
                let waits = conn
                    .prepare_cached(
                        "UPDATE wakes SET state = 'pending', told_to = NULL
                         WHERE id = ?1 AND told_to = ?2 AND state = 'claimed'",
                    )?
                    .execute(params![Text(wake), Text(run)])?;
                Ok(Effect::applied_if(waits > 0))
            })
            .await
    }

    /// One wake.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn wake(&self, id: WakeId) -> Result<Option<WakeRecord>, StoreError> {
        self.connections
            .read("wake", move |conn| {
                conn.prepare_cached(&format!("{WAKE_RECORDS} WHERE wakes.id = ?1"))?
                    .query_row([Text(id)], wake_record)
                    .optional()
            })
            .await
    }

    /// Wakes in one state, in the order of recording; the latest `limit`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn wakes(&self, state: WakeState, limit: u32) -> Result<Vec<WakeRecord>, StoreError> {
        self.connections
            .read("wakes", move |conn| {
                let sql = format!(
                    "{WAKE_RECORDS} WHERE wakes.state = ?1 ORDER BY wakes.seq DESC LIMIT ?2"
                );
                let mut wakes: Vec<WakeRecord> = conn
                    .prepare_cached(&sql)?
                    .query_map(params![Text(state), limit], wake_record)?
                    .collect::<rusqlite::Result<_>>()?;
                wakes.reverse();
                Ok(wakes)
            })
            .await
    }
}

fn earlier(conn: &Connection, key: Option<&str>) -> rusqlite::Result<Option<Posted>> {
    let Some(key) = key else { return Ok(None) };
    conn.prepare_cached("SELECT message, wake FROM idempotency_keys WHERE key = ?1")?
        .query_row([key], |row| {
            Ok(Posted {
                message: row.text_opt("message")?,
                wake: row.text_opt("wake")?,
                was_duplicate: true,
            })
        })
        .optional()
}

fn remember(
    conn: &Connection,
    key: Option<&str>,
    posted: &Posted,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let Some(key) = key else { return Ok(()) };
    conn.prepare_cached(
        "INSERT INTO idempotency_keys (key, message, wake, created_at) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![
        key,
        posted.message.map(Text),
        posted.wake.map(Text),
        At(at)
    ])?;
    Ok(())
}

pub(super) fn ensure_conversation(
    conn: &Connection,
    id: ConversationId,
    space: Uid,
    now: Timestamp,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO conversations (id, space, created_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (id) DO NOTHING",
    )?
    .execute(params![Text(id), Text(space), At(now)])?;
    Ok(())
}

/// Records a wake. False when its id is stored already, in whatever state.
pub(super) fn insert_wake(conn: &Connection, wake: &Wake) -> rusqlite::Result<bool> {
    if exists(conn, "SELECT 1 FROM wakes WHERE id = ?1", [Text(wake.id)])? {
        return Ok(false);
    }
    ensure_conversation(conn, wake.conversation, wake.space, wake.created_at)?;
    conn.prepare_cached(
        "INSERT INTO wakes (id, state, reason, workspace, agent, space, conversation, ticket,
               message, cause, previous_run, attempt, continuation, prompt, requested_by, env_json,
               git_identity_json, priority, revision, created_at, not_before, not_before_reason,
               delivery, run_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
               ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
    )?
    .execute(params![
        Text(wake.id),
        Text(WakeState::Pending),
        Text(wake.reason),
        Text(wake.workspace),
        Text(wake.agent),
        Text(wake.space),
        Text(wake.conversation),
        wake.ticket.map(Text),
        wake.message.map(Text),
        wake.cause.map(Text),
        wake.previous_run.map(Text),
        wake.attempt,
        wake.continuation,
        wake.prompt,
        wake.requested_by,
        Json(&wake.env),
        wake.git_identity.as_ref().map(Json),
        Text(wake.priority),
        wake.revision.as_ref().map(Text),
        At(wake.created_at),
        wake.delay.as_ref().map(|delay| At(delay.until)),
        wake.delay.as_ref().map(|delay| &delay.because),
        Text(wake.delivery),
        Text(RunId::of(wake.id))
    ])?;
    Ok(true)
}

/// Wakes with the run that serves each, or was told of it.
const WAKE_RECORDS: &str = "SELECT wakes.*, coalesce(runs.id, wakes.told_to) AS run
     FROM wakes LEFT JOIN runs ON runs.wake = wakes.id";

fn wake_record(row: &Row<'_>) -> rusqlite::Result<WakeRecord> {
    let QueuedWake { sequence, wake } = queued_wake(row)?;
    Ok(WakeRecord {
        sequence,
        state: row.text("state")?,
        wake,
        ended_at: row.at_opt("ended_at")?,
        because: row.get("because")?,
        run: row.text_opt("run")?,
    })
}

/// A row of `wakes`.
pub(super) fn queued_wake(row: &Row<'_>) -> rusqlite::Result<QueuedWake> {
    Ok(QueuedWake {
        sequence: row.get("seq")?,
        wake: Wake {
            id: row.text("id")?,
            reason: row.text("reason")?,
            workspace: row.text("workspace")?,
            agent: row.text("agent")?,
            space: row.text("space")?,
            conversation: row.text("conversation")?,
            ticket: row.text_opt("ticket")?,
            message: row.text_opt("message")?,
            cause: row.text_opt("cause")?,
            previous_run: row.text_opt("previous_run")?,
            attempt: row.count32("attempt")?,
            continuation: row.get("continuation")?,
            delay: delay(row)?,
            prompt: row.get("prompt")?,
            requested_by: row.get("requested_by")?,
            env: row.json("env_json")?,
            git_identity: row.json_opt("git_identity_json")?,
            delivery: row.text("delivery")?,
            priority: row.text("priority")?,
            revision: row.get::<_, Option<String>>("revision")?.map(Revision::new),
            created_at: row.at("created_at")?,
        },
    })
}

/// What a wake waits for; its two columns are set together.
fn delay(row: &Row<'_>) -> rusqlite::Result<Option<Delay>> {
    let until = row.at_opt("not_before")?;
    let because: Option<String> = row.get("not_before_reason")?;
    Ok(until
        .zip(because)
        .map(|(until, because)| Delay { until, because }))
}
