//! Status: conditions, holds, and failures that wait. Writing what is stored already writes nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use strum::{Display, EnumIter, EnumString};

use super::sql::{At, Columns, Text};
use super::{Store, StoreError};
use crate::model::action::{Hold, HoldReason, HoldSubject};
use crate::model::condition::{Condition, ConditionType, StoredCondition};
use crate::model::id::Uid;
use crate::model::observed::Backoff;

/// A hold as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredHold {
    /// What waits.
    pub subject: HoldSubject,
    /// Why.
    pub reason: HoldReason,
    /// In words.
    pub message: String,
    /// When the reason was last entered.
    pub since: Timestamp,
    /// How often it was entered while the subject waited.
    pub count: u32,
}

/// The stored kind of a hold's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, EnumIter)]
#[strum(serialize_all = "camelCase")]
pub(super) enum SubjectKind {
    Wake,
    Object,
}

impl Store {
    /// Makes the conditions of each object exactly these; objects that are not named keep theirs.
    /// `since` moves only when the status flips. How many objects changed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn write_conditions(
        &self,
        statuses: Vec<(Uid, Vec<Condition>)>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        self.connections
            .write("conditions", move |conn| {
                let mut changed = 0;
                for (uid, conditions) in &statuses {
                    if write_conditions_of(conn, *uid, conditions, now)? {
                        changed += 1;
                    }
                }
                Ok(changed)
            })
            .await
    }

    /// Conditions of one object, in the order of their types.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn conditions(&self, uid: Uid) -> Result<Vec<StoredCondition>, StoreError> {
        self.connections
            .read("conditions", move |conn| conditions_of(conn, uid))
            .await
    }

    /// Makes the current holds exactly these, one a subject (of two, the last). A subject with the same reason keeps
    /// `since`; a reason that it enters again counts on. Whether anything changed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replace_holds(
        &self,
        holds: Vec<Hold>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.connections
            .write("holds", move |conn| replace_holds(conn, &holds, now))
            .await
    }

    /// The current holds, in subject order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn holds(&self) -> Result<Vec<StoredHold>, StoreError> {
        self.connections
            .read("holds", |conn| {
                Ok(current_holds(conn)?.into_values().collect())
            })
            .await
    }

    /// Records that an action failed: its next try waits.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_failure(&self, key: String, backoff: Backoff) -> Result<(), StoreError> {
        self.connections
            .write("failure", move |conn| {
                conn.prepare_cached(
                    "INSERT OR REPLACE INTO backoffs
                       (key, failures, not_before, generation, code, message)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    key,
                    backoff.failures,
                    backoff.not_before.map(At),
                    backoff.generation,
                    backoff.code,
                    backoff.message
                ])?;
                Ok(())
            })
            .await
    }

    /// Forgets all failures: everything is tried at once again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_failures(&self) -> Result<(), StoreError> {
        self.connections
            .write("failures", |conn| {
                conn.execute("DELETE FROM backoffs", []).map(drop)
            })
            .await
    }

    /// Forgets an action's failures. Whether there were any.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn clear_failure(&self, key: String) -> Result<bool, StoreError> {
        self.connections
            .write("success", move |conn| {
                conn.prepare_cached("DELETE FROM backoffs WHERE key = ?1")?
                    .execute([key])
                    .map(|removed| removed > 0)
            })
            .await
    }
}

fn write_conditions_of(
    conn: &Connection,
    uid: Uid,
    conditions: &[Condition],
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let mut stored: BTreeMap<ConditionType, StoredCondition> = conditions_of(conn, uid)?
        .into_iter()
        .map(|stored| (stored.condition.kind, stored))
        .collect();
    let mut is_changed = false;
    for condition in conditions {
        let before = stored.remove(&condition.kind);
        if before.as_ref().map(|it| &it.condition) == Some(condition) {
            continue;
        }
        is_changed = true;
        let since = before
            .filter(|before| before.condition.status == condition.status)
            .map_or(now, |before| before.since);
        conn.prepare_cached(
            "INSERT OR REPLACE INTO conditions
               (uid, type, status, reason, message, observed_generation, since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            Text(uid),
            Text(condition.kind),
            Text(condition.status),
            Text(condition.reason),
            condition.message,
            condition.observed_generation,
            At(since)
        ])?;
    }
    for kind in stored.keys() {
        is_changed = true;
        conn.prepare_cached("DELETE FROM conditions WHERE uid = ?1 AND type = ?2")?
            .execute(params![Text(uid), Text(kind)])?;
    }
    Ok(is_changed)
}

/// Conditions of one object, in the order of their types.
pub(super) fn conditions_of(conn: &Connection, uid: Uid) -> rusqlite::Result<Vec<StoredCondition>> {
    let mut conditions: Vec<StoredCondition> = conn
        .prepare_cached("SELECT * FROM conditions WHERE uid = ?1")?
        .query_map([Text(uid)], condition)?
        .collect::<rusqlite::Result<_>>()?;
    conditions.sort_by_key(|stored| stored.condition.kind);
    Ok(conditions)
}

fn condition(row: &Row<'_>) -> rusqlite::Result<StoredCondition> {
    Ok(StoredCondition {
        condition: Condition {
            kind: row.text("type")?,
            status: row.text("status")?,
            reason: row.text("reason")?,
            message: row.get("message")?,
            observed_generation: row.get("observed_generation")?,
        },
        since: row.at("since")?,
    })
}

fn replace_holds(conn: &Connection, holds: &[Hold], now: Timestamp) -> rusqlite::Result<bool> {
    let current = current_holds(conn)?;
    let holds: BTreeMap<&HoldSubject, &Hold> =
        holds.iter().map(|hold| (&hold.subject, hold)).collect();
    let mut is_changed = false;
    for subject in current.keys().filter(|it| !holds.contains_key(it)) {
        is_changed = true;
        let (kind, text) = subject_columns(subject);
        conn.prepare_cached("DELETE FROM holds WHERE subject_kind = ?1 AND subject = ?2")?
            .execute(params![Text(kind), text])?;
    }
    for hold in holds.into_values() {
        let before = current.get(&hold.subject);
        let is_same_reason = before.is_some_and(|before| before.reason == hold.reason);
        if is_same_reason && before.is_some_and(|before| before.message == hold.message) {
            continue;
        }
        is_changed = true;
        let (kind, text) = subject_columns(&hold.subject);
        if is_same_reason {
            conn.prepare_cached(
                "UPDATE holds SET message = ?4
                 WHERE subject_kind = ?1 AND subject = ?2 AND reason = ?3",
            )?
            .execute(params![Text(kind), text, Text(hold.reason), hold.message])?;
            continue;
        }
        conn.prepare_cached(
            "UPDATE holds SET is_current = 0 WHERE subject_kind = ?1 AND subject = ?2",
        )?
        .execute(params![Text(kind), text])?;
        conn.prepare_cached(
            "INSERT INTO holds (subject_kind, subject, reason, message, since, count, is_current)
             VALUES (?1, ?2, ?3, ?4, ?5, 1, 1)
             ON CONFLICT (subject_kind, subject, reason) DO UPDATE SET
               message = excluded.message, since = excluded.since, count = count + 1,
               is_current = 1",
        )?
        .execute(params![
            Text(kind),
            text,
            Text(hold.reason),
            hold.message,
            At(now)
        ])?;
    }
    Ok(is_changed)
}

fn subject_columns(subject: &HoldSubject) -> (SubjectKind, String) {
    match subject {
        HoldSubject::Wake(id) => (SubjectKind::Wake, id.to_string()),
        HoldSubject::Object(reference) => (SubjectKind::Object, reference.to_string()),
    }
}

fn current_holds(conn: &Connection) -> rusqlite::Result<BTreeMap<HoldSubject, StoredHold>> {
    conn.prepare_cached("SELECT * FROM holds WHERE is_current = 1")?
        .query_map([], |row| {
            stored_hold(row).map(|hold| (hold.subject.clone(), hold))
        })?
        .collect()
}

fn stored_hold(row: &Row<'_>) -> rusqlite::Result<StoredHold> {
    let subject = match row.text("subject_kind")? {
        SubjectKind::Wake => HoldSubject::Wake(row.text("subject")?),
        SubjectKind::Object => HoldSubject::Object(row.reference("subject")?),
    };
    Ok(StoredHold {
        subject,
        reason: row.text("reason")?,
        message: row.get("message")?,
        since: row.at("since")?,
        count: row.count32("count")?,
    })
}

/// Every failure that waits, by action key.
pub(super) fn backoffs(conn: &Connection) -> rusqlite::Result<BTreeMap<String, Backoff>> {
    conn.prepare_cached("SELECT * FROM backoffs")?
        .query_map([], |row| {
            let backoff = Backoff {
                failures: row.count32("failures")?,
                not_before: row.at_opt("not_before")?,
                generation: row.get("generation")?,
                code: row.get("code")?,
                message: row.get("message")?,
            };
            Ok((row.get("key")?, backoff))
        })?
        .collect()
}
