//! What operators say at the command line: pauses, takeovers, and the audit of who did what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde_json::{Value, json};
use strum::{Display, EnumIter, EnumString};

use super::message::{NewMessage, Saved, save_message};
use super::sql::{At, Columns, Json, Text, exists};
use super::{Effect, Store, StoreError};
use crate::model::id::Uid;
use crate::model::observed::{OperatorPause, Takeover};

/// Kinds of override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, EnumIter)]
#[strum(serialize_all = "camelCase")]
pub(super) enum OverrideKind {
    Pause,
    Takeover,
}

/// One entry of the audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Rises with every entry.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// Did what.
    pub action: String,
    /// To what.
    pub subject: String,
    /// Particulars; metadata only.
    pub detail: Value,
}

impl Store {
    /// Pauses an agent on an operator's word. A pause with the same id changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn pause(&self, pause: OperatorPause) -> Result<Effect, StoreError> {
        self.connections
            .write("pause", move |conn| {
                if exists(
                    conn,
                    "SELECT 1 FROM overrides WHERE id = ?1",
                    [Text(pause.id)],
                )? {
                    return Ok(Effect::Unchanged);
                }
                conn.prepare_cached(
                    "INSERT INTO overrides (id, kind, target, by, reason, since, until)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute(params![
                    Text(pause.id),
                    Text(OverrideKind::Pause),
                    Text(pause.target),
                    pause.by,
                    pause.reason,
                    At(pause.since),
                    pause.until.map(At)
                ])?;
                let detail = json!({ "reason": pause.reason, "until": pause.until });
                let target = pause.target.to_string();
                insert_audit(conn, pause.since, &pause.by, "pause", &target, &detail)?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Removes every operator's pause of `target`, and nothing else. How many there were.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn resume(&self, target: Uid, by: String, now: Timestamp) -> Result<u32, StoreError> {
        self.connections
            .write("resume", move |conn| {
                let removed = conn
                    .prepare_cached(
                        "UPDATE overrides SET removed_at = ?2, removed_by = ?3
                         WHERE kind = 'pause' AND target = ?1 AND removed_at IS NULL
                           AND (until IS NULL OR until > ?2)",
                    )?
                    .execute(params![Text(target), At(now), by])?;
                if removed > 0 {
                    let detail = json!({ "removed": removed });
                    insert_audit(conn, now, &by, "resume", &target.to_string(), &detail)?;
                }
                Ok(u32::try_from(removed).unwrap_or(u32::MAX))
            })
            .await
    }

    /// Records that a person takes a space over. Stale when somebody has it already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_over(&self, takeover: Takeover) -> Result<Effect, StoreError> {
        self.connections
            .write("takeover", move |conn| {
                if let Some(earlier) = takeovers(conn)?.get(&takeover.space) {
                    let (by, since) = (&earlier.by, earlier.since);
                    return Ok(Effect::stale(format!("{by} has it since {since}")));
                }
                conn.prepare_cached(
                    "INSERT INTO overrides (id, kind, target, by, reason, since)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    Text(takeover.id),
                    Text(OverrideKind::Takeover),
                    Text(takeover.space),
                    takeover.by,
                    takeover.reason,
                    At(takeover.since)
                ])?;
                let detail = json!({ "reason": takeover.reason });
                let space = takeover.space.to_string();
                insert_audit(
                    conn,
                    takeover.since,
                    &takeover.by,
                    "takeover",
                    &space,
                    &detail,
                )?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Ends a takeover and says so in the space's conversation, in one transaction. Stale when nobody
    /// has the space.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn hand_back(&self, message: NewMessage, by: String) -> Result<Effect, StoreError> {
        self.connections
            .write("hand-back", move |conn| {
                let (space, now) = (message.space, message.created_at);
                let ended = conn
                    .prepare_cached(
                        "UPDATE overrides SET removed_at = ?2, removed_by = ?3
                         WHERE kind = 'takeover' AND target = ?1 AND removed_at IS NULL",
                    )?
                    .execute(params![Text(space), At(now), by])?;
                if ended == 0 {
                    return Ok(Effect::stale("nobody has taken it over".to_owned()));
                }
                let saved = Saved {
                    run: None,
                    message: &message,
                };
                save_message(conn, &saved)?;
                insert_audit(conn, now, &by, "handback", &space.to_string(), &json!({}))?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records that `actor` did `action` to `subject`. Metadata only: no prompts, no secrets.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn audit(
        &self,
        actor: String,
        action: String,
        subject: String,
        detail: Value,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.connections
            .write("audit entry", move |conn| {
                insert_audit(conn, now, &actor, &action, &subject, &detail)
            })
            .await
    }

    /// The latest entries of the audit, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn audit_log(&self, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        self.connections
            .read("audit", move |conn| {
                conn.prepare_cached("SELECT * FROM audit ORDER BY seq DESC LIMIT ?1")?
                    .query_map([limit], |row| {
                        Ok(AuditEntry {
                            seq: row.get("seq")?,
                            at: row.at("at")?,
                            actor: row.get("actor")?,
                            action: row.get("action")?,
                            subject: row.get("subject")?,
                            detail: row.json("detail_json")?,
                        })
                    })?
                    .collect()
            })
            .await
    }
}

fn insert_audit(
    conn: &Connection,
    at: Timestamp,
    actor: &str,
    action: &str,
    subject: &str,
    detail: &Value,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO audit (at, actor, action, subject, detail_json) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![At(at), actor, action, subject, Json(detail)])?;
    Ok(())
}

/// The spaces that people have taken over.
pub(super) fn takeovers(conn: &Connection) -> rusqlite::Result<BTreeMap<Uid, Takeover>> {
    conn.prepare_cached("SELECT * FROM overrides WHERE kind = 'takeover' AND removed_at IS NULL")?
        .query_map([], |row| {
            let takeover = Takeover {
                id: row.text("id")?,
                space: row.text("target")?,
                by: row.get("by")?,
                reason: row.get("reason")?,
                since: row.at("since")?,
            };
            Ok((takeover.space, takeover))
        })?
        .collect()
}

/// Pauses that hold at `now`, in the order of setting; of one target if it is given.
pub(super) fn pauses(
    conn: &Connection,
    target: Option<Uid>,
    now: Timestamp,
) -> rusqlite::Result<Vec<OperatorPause>> {
    conn.prepare_cached(
        "SELECT * FROM overrides
         WHERE kind = 'pause' AND removed_at IS NULL AND (until IS NULL OR until > ?2)
           AND (?1 IS NULL OR target = ?1)
         ORDER BY seq",
    )?
    .query_map(params![target.map(Text), At(now)], operator_pause)?
    .collect()
}

fn operator_pause(row: &Row<'_>) -> rusqlite::Result<OperatorPause> {
    Ok(OperatorPause {
        id: row.text("id")?,
        target: row.text("target")?,
        by: row.get("by")?,
        reason: row.get("reason")?,
        since: row.at("since")?,
        until: row.at_opt("until")?,
    })
}
