//! What a run's task, or its recovery, reads and keeps of its beginning.

use rusqlite::{OptionalExtension, Row, params};

use super::message::{MessageView, message_view};
use super::sql::{Columns, Text};
use super::{Effect, Store, StoreError, TreeResult};
use crate::model::id::{ConversationId, RunId};
use crate::model::run::{EndReason, RunTree};

/// The most of one message that a history has, in characters. A prompt's window is smaller, so
/// what is cut here is left out there.
const MESSAGE_CHARS_MAX: usize = 50_001;
/// The most of all messages: two windows, since the message that a run answers takes part here
/// and not there.
const HISTORY_CHARS_MAX: usize = 2 * MESSAGE_CHARS_MAX;

/// What is known of a run's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBeginning {
    /// Its worktrees.
    pub trees: Vec<RunTree>,
    /// What they held before it was launched; not looked at where nothing was stored.
    pub before: Vec<TreeResult>,
    /// The stop that was asked for, if one was.
    pub stop_requested: Option<EndReason>,
}

/// The end of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Its last messages, oldest first, no more than a prompt may quote of them.
    pub messages: Vec<MessageView>,
    /// How many there are before these.
    pub older: usize,
}

impl Store {
    /// Keeps what the run's worktrees hold before it is launched: what it changed is told from
    /// this, also by a later daemon. The first look stands.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn begin_trees(
        &self,
        run: RunId,
        before: Vec<TreeResult>,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("worktrees of a run", move |conn| {
                let mut kept = 0;
                for tree in &before {
                    kept += conn
                        .prepare_cached(
                            "UPDATE run_trees
                             SET start_head = ?3, start_is_dirty = ?4, start_dirt = ?5
                             WHERE run = ?1 AND worktree = ?2
                               AND start_head IS NULL AND start_is_dirty IS NULL",
                        )?
                        .execute(params![
                            Text(run),
                            Text(tree.worktree),
                            tree.head,
                            tree.is_dirty,
                            tree.dirt
                        ])?;
                }
                Ok(Effect::applied_if(kept > 0))
            })
            .await
    }

    /// Records where the credential of the run's model came from, never its value, and whether every
    /// run of the Adapter has the same.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn store_credential_source(
        &self,
        run: RunId,
        source: String,
        is_shared: bool,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("credential source", move |conn| {
                let changed = conn
                    .prepare_cached(
                        "UPDATE runs SET credential_source = ?2, provider_is_shared = ?3
                         WHERE id = ?1",
                    )?
                    .execute(params![Text(run), source, is_shared])?;
                Ok(Effect::applied_if(changed == 1))
            })
            .await
    }

    /// What is known of the run's beginning; none when there is no such run.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn beginning_of(&self, run: RunId) -> Result<Option<RunBeginning>, StoreError> {
        self.connections
            .read("beginning of a run", move |conn| {
                let stop_requested: Option<Option<EndReason>> = conn
                    .prepare_cached("SELECT stop_requested FROM runs WHERE id = ?1")?
                    .query_row([Text(run)], |row| row.text_opt("stop_requested"))
                    .optional()?;
                let Some(stop_requested) = stop_requested else {
                    return Ok(None);
                };
                let (trees, before) = conn
                    .prepare_cached("SELECT * FROM run_trees WHERE run = ?1 ORDER BY repo_name")?
                    .query_map([Text(run)], |row| Ok((run_tree(row)?, tree_before(row)?)))?
                    .collect::<rusqlite::Result<Vec<_>>>()?
                    .into_iter()
                    .unzip();
                Ok(Some(RunBeginning {
                    trees,
                    before,
                    stop_requested,
                }))
            })
            .await
    }

    /// The last messages of a conversation: at most `limit`, and none after they fill a prompt's
    /// window, however long each is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn history(
        &self,
        conversation: ConversationId,
        limit: u32,
    ) -> Result<History, StoreError> {
        self.connections
            .read("history", move |conn| {
                let mut latest = conn.prepare_cached(
                    "SELECT seq, id, space, conversation, author_kind, author, agent,
                       substr(text, 1, ?3) AS text, run, requested_by, created_at
                     FROM messages WHERE conversation = ?1 ORDER BY seq DESC LIMIT ?2",
                )?;
                let mut rows = latest.query(params![
                    Text(conversation),
                    limit,
                    i64::try_from(MESSAGE_CHARS_MAX).unwrap_or(i64::MAX)
                ])?;
                let (mut messages, mut chars) = (Vec::new(), 0);
                while chars < HISTORY_CHARS_MAX
                    && let Some(row) = rows.next()?
                {
                    let message = message_view(row)?;
                    chars += message.text.chars().count();
                    messages.push(message);
                }
                messages.reverse();
                let first = messages.first().map_or(i64::MAX, |message| message.seq);
                let older: i64 = conn
                    .prepare_cached(
                        "SELECT count(*) FROM messages WHERE conversation = ?1 AND seq < ?2",
                    )?
                    .query_row(params![Text(conversation), first], |row| row.get(0))?;
                Ok(History {
                    messages,
                    older: usize::try_from(older).unwrap_or(usize::MAX),
                })
            })
            .await
    }
}

/// A worktree as a run is told of it: a row with those columns of `run_trees`.
pub(super) fn run_tree(row: &Row<'_>) -> rusqlite::Result<RunTree> {
    Ok(RunTree {
        id: row.text("worktree")?,
        repo: row.text("repo")?,
        repo_name: row.get("repo_name")?,
        path: row.get("path")?,
        branch: row.get("branch")?,
        base: row.get("base")?,
    })
}

fn tree_before(row: &Row<'_>) -> rusqlite::Result<TreeResult> {
    Ok(TreeResult {
        worktree: row.text("worktree")?,
        head: row.get("start_head")?,
        is_dirty: row.get("start_is_dirty")?,
        dirt: row.get("start_dirt")?,
    })
}
