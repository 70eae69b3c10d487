//! Sessions: which of its own memories an agent's program resumes in a conversation.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::sql::{At, Columns, Text};
use super::{Effect, Store, StoreError};
use crate::model::id::{ConversationId, MessageId, RunId, SessionId, Uid};
use crate::model::spec::AdapterType;

/// A session that a program can resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// In which thread.
    pub conversation: ConversationId,
    /// Whose.
    pub agent: Uid,
    /// What kind of program keeps it.
    pub adapter: AdapterType,
    /// What the program calls it.
    pub id: SessionId,
    /// The number of the conversation's last message that it was told of; 0 for none.
    pub told: i64,
}

impl Store {
    /// The session of an agent in a conversation, if its program has one there.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn session(
        &self,
        conversation: ConversationId,
        agent: Uid,
    ) -> Result<Option<StoredSession>, StoreError> {
        self.connections
            .read("session", move |conn| {
                conn.prepare_cached(
                    "SELECT adapter, id, told FROM sessions WHERE conversation = ?1 AND agent = ?2",
                )?
                .query_row(params![Text(conversation), Text(agent)], |row| {
                    Ok(StoredSession {
                        conversation,
                        agent,
                        adapter: row.text("adapter")?,
                        id: row.text("id")?,
                        told: row.get("told")?,
                    })
                })
                .optional()
            })
            .await
    }

    /// The messages behind number `after` of a conversation that an agent was told while it worked, by
    /// runs that came to a good end: its session has them. What a run that was cut off was told may
    /// be missing from it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn heard(
        &self,
        conversation: ConversationId,
        agent: Uid,
        after: i64,
    ) -> Result<BTreeSet<MessageId>, StoreError> {
        self.connections
            .read("messages to a run", move |conn| {
                conn.prepare_cached(
                    "SELECT m.id FROM runs r
                       CROSS JOIN wakes w ON w.told_to = r.id
                       CROSS JOIN messages m ON m.id = w.message
                     WHERE r.agent = ?2 AND r.status = 'completed'
                       AND m.conversation = ?1 AND m.seq > ?3",
                )?
                .query_map(params![Text(conversation), Text(agent), after], |row| {
                    row.text("id")
                })?
                .collect()
            })
            .await
    }

    /// Keeps what a program has begun or gone on with, in place of what was there.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_session(
        &self,
        session: StoredSession,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("session", move |conn| {
                conn.prepare_cached(
                    "INSERT INTO sessions (conversation, agent, adapter, id, told, changed_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT (conversation, agent) DO UPDATE SET
                       adapter = excluded.adapter, id = excluded.id, told = excluded.told,
                       changed_at = excluded.changed_at",
                )?
                .execute(params![
                    Text(session.conversation),
                    Text(session.agent),
                    Text(session.adapter),
                    Text(session.id),
                    session.told,
                    At(now)
                ])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Forgets the session that a run was to resume: its program does not know it any more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_session_of(&self, run: RunId) -> Result<Effect, StoreError> {
        self.connections
            .write("session", move |conn| {
                let gone = conn
                    .prepare_cached(
                        "DELETE FROM sessions WHERE (conversation, agent) IN
                           (SELECT conversation, agent FROM runs WHERE id = ?1)",
                    )?
                    .execute([Text(run)])?;
                Ok(Effect::applied_if(gone > 0))
            })
            .await
    }
}
