//! Revisions: refusing one, holding it, approving it, and what the last good one was.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::json;
use strum::{Display, EnumIter, EnumString};

use super::sql::{At, Columns, Text};
use super::{Effect, Store, StoreError, outbox};
use crate::model::desired::Document;
use crate::model::event::DomainEventType;
use crate::model::kind::{Origin, Revision};

/// The latest verdict on a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumString, EnumIter)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum RevisionState {
    /// It was, or is, the desired state.
    Accepted,
    /// It has faults.
    Rejected,
    /// It waits for a person.
    Held,
}

/// One revision that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionView {
    /// Which.
    pub revision: Revision,
    /// The verdict.
    pub state: RevisionState,
    /// Whether it is the one that serves.
    pub is_current: bool,
    /// Author of the commit.
    pub author: Option<String>,
    /// When it was committed.
    pub committed_at: Option<Timestamp>,
    /// When the verdict was reached.
    pub decided_at: Timestamp,
    /// Why it is held.
    pub message: Option<String>,
    /// Why it was rejected: a JSON list of diagnostics.
    pub diagnostics_json: Option<String>,
    /// Who approved it.
    pub approved_by: Option<String>,
}

impl Store {
    /// Records that a revision has faults; the last good one serves on.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reject(
        &self,
        revision: Revision,
        diagnostics_json: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.verdict(
            revision,
            RevisionState::Rejected,
            None,
            Some(diagnostics_json),
            now,
        )
        .await
    }

    /// Records that a revision waits for a person.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn hold_revision(
        &self,
        revision: Revision,
        message: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.verdict(revision, RevisionState::Held, Some(message), None, now)
            .await
    }

    async fn verdict(
        &self,
        revision: Revision,
        state: RevisionState,
        message: Option<String>,
        diagnostics_json: Option<String>,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("revision verdict", move |conn| {
                let known: Option<(String, Option<String>, Option<String>)> = conn
                    .prepare_cached(
                        "SELECT state, message, diagnostics_json FROM revisions WHERE revision = ?1",
                    )?
                    .query_row([revision.as_str()], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .optional()?;
                if known == Some((state.to_string(), message.clone(), diagnostics_json.clone())) {
                    return Ok(Effect::Unchanged);
                }
                conn.prepare_cached(
                    "INSERT INTO revisions (revision, state, seq, decided_at, message, diagnostics_json)
                     VALUES (?1, ?2, (SELECT coalesce(max(seq), 0) + 1 FROM revisions), ?3, ?4, ?5)
                     ON CONFLICT (revision) DO UPDATE SET
                       state = excluded.state, seq = excluded.seq, decided_at = excluded.decided_at,
                       message = excluded.message, diagnostics_json = excluded.diagnostics_json",
                )?
                .execute(params![
                    revision.as_str(),
                    Text(state),
                    At(now),
                    message,
                    diagnostics_json
                ])?;
                let event = if state == RevisionState::Held {
                    DomainEventType::RevisionHeld
                } else {
                    DomainEventType::RevisionRejected
                };
                let payload = json!({ "revision": revision.as_str(), "message": message });
                outbox::publish(conn, event, None, revision.as_str(), &payload, now)?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Lets a held revision pass. Stale when no such revision is held.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn approve_revision(
        &self,
        revision: Revision,
        by: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("approval of a revision", move |conn| {
                let row: Option<(String, bool)> = conn
                    .prepare_cached(
                        "SELECT state, approved_at IS NOT NULL FROM revisions WHERE revision = ?1",
                    )?
                    .query_row([revision.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                match row {
                    None => return Ok(Effect::stale(format!("revision {revision} is not known"))),
                    Some((_, true)) => return Ok(Effect::Unchanged),
                    Some((state, _)) if state != RevisionState::Held.to_string() => {
                        return Ok(Effect::stale(format!("revision {revision} is {state}")));
                    }
                    Some(_) => {}
                }
                conn.prepare_cached(
                    "UPDATE revisions SET approved_by = ?2, approved_at = ?3 WHERE revision = ?1",
                )?
                .execute(params![revision.as_str(), by, At(now)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Whether a person let the revision pass.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn is_approved(&self, revision: Revision) -> Result<bool, StoreError> {
        self.connections
            .read("approval of a revision", move |conn| {
                conn.prepare_cached(
                    "SELECT 1 FROM revisions WHERE revision = ?1 AND approved_at IS NOT NULL",
                )?
                .exists([revision.as_str()])
            })
            .await
    }

    /// The revision that serves, with its documents in reference order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn last_good(&self) -> Result<Option<(Revision, Vec<Document>)>, StoreError> {
        self.connections
            .read("last good revision", |conn| {
                let Some(revision) = current(conn)? else {
                    return Ok(None);
                };
                let mut documents: Vec<Document> = conn
                    .prepare_cached("SELECT * FROM documents")?
                    .query_map([], document)?
                    .collect::<rusqlite::Result<_>>()?;
                documents.sort_by(|a, b| a.reference.cmp(&b.reference));
                Ok(Some((revision, documents)))
            })
            .await
    }

    /// One revision with its verdict.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn revision(&self, revision: Revision) -> Result<Option<RevisionView>, StoreError> {
        self.connections
            .read("revision", move |conn| {
                let current = current(conn)?;
                conn.prepare_cached("SELECT * FROM revisions WHERE revision = ?1")?
                    .query_row([Text(&revision)], |row| {
                        revision_view(row, current.as_ref())
                    })
                    .optional()
            })
            .await
    }

    /// Revisions with their verdicts, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn revisions(&self, limit: u32) -> Result<Vec<RevisionView>, StoreError> {
        self.connections
            .read("revisions", move |conn| {
                let current = current(conn)?;
                conn.prepare_cached("SELECT * FROM revisions ORDER BY seq DESC LIMIT ?1")?
                    .query_map([limit], |row| revision_view(row, current.as_ref()))?
                    .collect()
            })
            .await
    }
}

fn revision_view(row: &Row<'_>, current: Option<&Revision>) -> rusqlite::Result<RevisionView> {
    let revision = row.revision("revision")?;
    Ok(RevisionView {
        state: row.text("state")?,
        is_current: current == Some(&revision),
        author: row.get("author")?,
        committed_at: row.at_opt("committed_at")?,
        decided_at: row.at("decided_at")?,
        message: row.get("message")?,
        diagnostics_json: row.get("diagnostics_json")?,
        approved_by: row.get("approved_by")?,
        revision,
    })
}

/// The revision that serves.
pub(super) fn current(conn: &Connection) -> rusqlite::Result<Option<Revision>> {
    conn.prepare_cached(
        "SELECT revision FROM revisions WHERE accepted_seq IS NOT NULL
         ORDER BY accepted_seq DESC LIMIT 1",
    )?
    .query_row([], |row| row.revision("revision"))
    .optional()
}

/// A row of `documents`.
pub(super) fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        reference: row.reference("reference")?,
        json: row.get("json")?,
        spec_hash: row.get("spec_hash")?,
        origin: Origin {
            path: row.get("path")?,
            line: row.count32("line")?,
        },
    })
}
