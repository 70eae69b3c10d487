//! Messages of conversations.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::json;
use strum::{Display, EnumIter, EnumString};

use super::sql::{At, Columns, Text, exists};
use super::wake::ensure_conversation;
use super::{Store, StoreError, outbox};
use crate::model::event::DomainEventType;
use crate::model::id::{ConversationId, MessageId, RunId, Uid};

/// Characters of a message that its event carries.
const PREVIEW_MAX: usize = 120;

/// Who wrote a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Author {
    /// A person.
    Human {
        /// Name or address.
        name: String,
    },
    /// An agent.
    Agent {
        /// Its uid.
        uid: Uid,
        /// What it was called then.
        name: String,
    },
    /// The daemon.
    System,
}

impl Author {
    /// What people call it.
    pub fn name(&self) -> &str {
        match self {
            Self::Human { name } | Self::Agent { name, .. } => name,
            Self::System => "homeostat",
        }
    }
}

/// The stored kind of an author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, EnumIter)]
#[strum(serialize_all = "camelCase")]
pub(super) enum AuthorKind {
    Human,
    Agent,
    System,
}

/// A message to save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Its id.
    pub id: MessageId,
    /// The workspace of the space.
    pub workspace: Uid,
    /// The space.
    pub space: Uid,
    /// The thread.
    pub conversation: ConversationId,
    /// Who wrote it.
    pub author: Author,
    /// The words.
    pub text: String,
    /// The person on whose behalf.
    pub requested_by: Option<String>,
    /// When.
    pub created_at: Timestamp,
}

/// A saved message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// Rises with every message.
    pub seq: i64,
    /// Its id.
    pub id: MessageId,
    /// The space.
    pub space: Uid,
    /// The thread.
    pub conversation: ConversationId,
    /// Who wrote it.
    pub author: Author,
    /// The words.
    pub text: String,
    /// The run whose reply it is.
    pub run: Option<RunId>,
    /// The person on whose behalf.
    pub requested_by: Option<String>,
    /// When.
    pub created_at: Timestamp,
}

impl Store {
    /// The latest `limit` messages of a conversation, before `before` if it is given; oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn messages(
        &self,
        conversation: ConversationId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<MessageView>, StoreError> {
        self.connections
            .read("messages", move |conn| {
                let mut messages: Vec<MessageView> = conn
                    .prepare_cached(
                        "SELECT * FROM messages WHERE conversation = ?1 AND seq < ?2
                         ORDER BY seq DESC LIMIT ?3",
                    )?
                    .query_map(
                        params![Text(conversation), before.unwrap_or(i64::MAX), limit],
                        message_view,
                    )?
                    .collect::<rusqlite::Result<_>>()?;
                messages.reverse();
                Ok(messages)
            })
            .await
    }

    /// One message.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn message(&self, id: MessageId) -> Result<Option<MessageView>, StoreError> {
        self.connections
            .read("message", move |conn| {
                conn.prepare_cached("SELECT * FROM messages WHERE id = ?1")?
                    .query_row([Text(id)], message_view)
                    .optional()
            })
            .await
    }
}

/// A message and the run whose reply it is.
pub(super) struct Saved<'a> {
    pub(super) run: Option<RunId>,
    pub(super) message: &'a NewMessage,
}

/// Saves a message and publishes it. False when its id is stored already.
pub(super) fn save_message(conn: &Connection, saved: &Saved<'_>) -> rusqlite::Result<bool> {
    let message = saved.message;
    if exists(
        conn,
        "SELECT 1 FROM messages WHERE id = ?1",
        [Text(message.id)],
    )? {
        return Ok(false);
    }
    ensure_conversation(
        conn,
        message.conversation,
        message.space,
        message.created_at,
    )?;
    let author = message.author.name();
    let (kind, agent) = match &message.author {
        Author::Human { .. } => (AuthorKind::Human, None),
        Author::Agent { uid, .. } => (AuthorKind::Agent, Some(*uid)),
        Author::System => (AuthorKind::System, None),
    };
    conn.prepare_cached(
        "INSERT INTO messages (id, conversation, space, author_kind, author, agent, text, run,
               requested_by, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        Text(message.id),
        Text(message.conversation),
        Text(message.space),
        Text(kind),
        author,
        agent.map(Text),
        message.text,
        saved.run.map(Text),
        message.requested_by,
        At(message.created_at)
    ])?;
    if !message.text.trim().is_empty() {
        let payload = json!({
            "messageId": message.id,
            "space": message.space,
            "conversation": message.conversation,
            "senderName": author,
            "isAgentMessage": agent.is_some(),
            "contentPreview": message.text.chars().take(PREVIEW_MAX).collect::<String>(),
            "requestedBy": message.requested_by,
            "runId": saved.run,
        });
        outbox::publish(
            conn,
            DomainEventType::MessageReceived,
            Some(message.workspace),
            &message.id.to_string(),
            &payload,
            message.created_at,
        )?;
    }
    Ok(true)
}

/// A row of `messages`.
pub(super) fn message_view(row: &Row<'_>) -> rusqlite::Result<MessageView> {
    let name: String = row.get("author")?;
    let author = match row.text("author_kind")? {
        AuthorKind::Human => Author::Human { name },
        AuthorKind::Agent => Author::Agent {
            uid: row.text("agent")?,
            name,
        },
        AuthorKind::System => Author::System,
    };
    Ok(MessageView {
        seq: row.get("seq")?,
        id: row.text("id")?,
        space: row.text("space")?,
        conversation: row.text("conversation")?,
        author,
        text: row.get("text")?,
        run: row.text_opt("run")?,
        requested_by: row.get("requested_by")?,
        created_at: row.at("created_at")?,
    })
}
