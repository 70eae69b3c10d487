//! Closing a run: row, wake, money, reply, leases and events in one transaction, once.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::json;
use strum::{Display, EnumIter, EnumString};

use super::message::{Author, NewMessage, Saved, save_message};
use super::sql::{At, Columns, Text, int};
use super::{Store, StoreError, outbox};
use crate::model::budget::Reservation;
use crate::model::event::DomainEventType;
use crate::model::id::{ConversationId, MessageId, RunId, Uid, WakeId, WorktreeId};
use crate::model::run::{EndReason, ErrorFamily, Liveness, RunStatus, Usage};
use crate::model::units::{Money, Tokens};
use crate::model::wake::WakeState;

/// Whether a run's cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumString, EnumIter)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Pricing {
    /// It is.
    Priced,
    /// It is not; it is not zero either.
    Unpriced,
}

/// A worktree as the run left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeResult {
    /// Which.
    pub worktree: WorktreeId,
    /// The commit that it is on, hex; none: it could not be looked at.
    pub head: Option<String>,
    /// Whether it has uncommitted changes; none: it could not be looked at.
    pub is_dirty: Option<bool>,
    /// What the uncommitted changes are, as a fingerprint; none: there are none, or it could not
    /// be looked at.
    pub dirt: Option<String>,
}

/// Everything that closing a run records.
#[derive(Clone, Debug, PartialEq)]
pub struct RunClose {
    /// Which.
    pub run: RunId,
    /// `completed` or `error`.
    pub status: RunStatus,
    /// How it did.
    pub liveness: Liveness,
    /// The group of its failure.
    pub family: Option<ErrorFamily>,
    /// Who ended it.
    pub end_reason: EndReason,
    /// The adapter's own code.
    pub error_code: Option<String>,
    /// Whether trying again could help.
    pub is_retryable: bool,
    /// The process's exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// A line about it.
    pub summary: Option<String>,
    /// Tokens and cost.
    pub usage: Usage,
    /// The model that served.
    pub model: Option<String>,
    /// Which prices held.
    pub price_table: Option<String>,
    /// The reply for the conversation; none or blank: no message is saved.
    pub reply: Option<String>,
    /// The folded transcript.
    pub transcript_json: Option<String>,
    /// The worktrees as it left them.
    pub trees: Vec<TreeResult>,
    /// What a next attempt is told.
    pub continuation: Option<String>,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// What closing a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Closed {
    /// It is closed now.
    Closed,
    /// It was closed before, or was never known; nothing changed.
    AlreadyClosed,
}

/// What the row of the run to close says.
struct Open {
    workspace: Uid,
    agent: Uid,
    agent_name: String,
    space: Uid,
    conversation: ConversationId,
    ticket: Option<Uid>,
    wake: WakeId,
    requested_by: Option<String>,
    has_process: bool,
    reservation: Reservation,
}

impl Store {
    /// Closes a live run, in one transaction: its row becomes final, its wake finished, and those that
    /// it was told of too, unless trying again could help: then they wait again; its cost
    /// goes to the ledger (once, priced or not), its reply is saved under the run's id, its leases
    /// end, and `MessageReceived`, then `AgentRunCompleted`, are published. It is not settled yet.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn close_run(&self, close: RunClose) -> Result<Closed, StoreError> {
        self.connections
            .write("close of a run", move |conn| {
                let open = conn
                    .prepare_cached("SELECT * FROM runs WHERE id = ?1 AND ended_at IS NULL")?
                    .query_row([Text(close.run)], open_run)
                    .optional()?;
                let Some(open) = open else {
                    return Ok(Closed::AlreadyClosed);
                };
                // A run without a process did nothing: its cost is known to be zero.
                let cost = match close.usage.cost_micros {
                    None if !open.has_process => Some(0),
                    cost => cost,
                };
                finish_row(conn, &close, cost)?;
                finish_wakes(conn, &close, open.wake)?;
                enter_in_ledger(conn, &close, &open, cost)?;
                finish_trees(conn, &close)?;
                if let Some(transcript) = &close.transcript_json {
                    conn.prepare_cached(
                        "INSERT OR REPLACE INTO transcripts (run, json) VALUES (?1, ?2)",
                    )?
                    .execute(params![Text(close.run), transcript])?;
                }
                save_reply(conn, &close, &open)?;
                publish_completion(conn, &close, &open, cost)?;
                Ok(Closed::Closed)
            })
            .await
    }
}

fn open_run(row: &Row<'_>) -> rusqlite::Result<Open> {
    Ok(Open {
        workspace: row.text("workspace")?,
        agent: row.text("agent")?,
        agent_name: row.get("agent_name")?,
        space: row.text("space")?,
        conversation: row.text("conversation")?,
        ticket: row.text_opt("ticket")?,
        wake: row.text("wake")?,
        requested_by: row.get("requested_by")?,
        has_process: row.get::<_, Option<i64>>("pid")?.is_some(),
        reservation: Reservation {
            money: row
                .get::<_, Option<i64>>("reservation_micros")?
                .map(Money::from_micros),
            tokens: row
                .get::<_, Option<i64>>("reservation_tokens")?
                .map(Tokens::new),
        },
    })
}

const fn pricing(cost: Option<i64>) -> Pricing {
    match cost {
        Some(_) => Pricing::Priced,
        None => Pricing::Unpriced,
    }
}

fn finish_row(conn: &Connection, close: &RunClose, cost: Option<i64>) -> rusqlite::Result<()> {
    let usage = &close.usage;
    conn.prepare_cached(
        "UPDATE runs SET status = ?2, liveness = ?3, error_family = ?4, end_reason = ?5,
           error_code = ?6, exit_code = ?7, exit_signal = ?8, summary = ?9, continuation = ?10,
           model = coalesce(?11, model), input_tokens = ?12, output_tokens = ?13,
           thought_tokens = ?14, cached_read_tokens = ?15, cached_write_tokens = ?16,
           cost_micros = ?17, pricing = ?18, ended_at = ?19, price_table = ?20, is_retryable = ?21,
           provider_until = iif(?2 = 'completed', NULL, provider_until)
         WHERE id = ?1",
    )?
    .execute(params![
        Text(close.run),
        Text(close.status),
        Text(close.liveness),
        close.family.map(Text),
        Text(close.end_reason),
        close.error_code,
        close.exit_code,
        close.signal,
        close.summary,
        close.continuation,
        close.model,
        int(usage.input_tokens),
        int(usage.output_tokens),
        int(usage.thought_tokens),
        int(usage.cached_read_tokens),
        int(usage.cached_write_tokens),
        cost,
        Text(pricing(cost)),
        At(close.ended_at),
        close.price_table,
        close.is_retryable
    ])?;
    Ok(())
}

fn finish_wakes(conn: &Connection, close: &RunClose, wake: WakeId) -> rusqlite::Result<()> {
    if close.is_retryable {
        // What it was told may be lost with it; the next attempt is told again.
        conn.prepare_cached(
            "UPDATE wakes SET state = 'pending', told_to = NULL WHERE told_to = ?1",
        )?
        .execute([Text(close.run)])?;
    }
    conn.prepare_cached(
        "UPDATE wakes SET state = ?3, ended_at = ?4 WHERE id = ?1 OR told_to = ?2",
    )?
    .execute(params![
        Text(wake),
        Text(close.run),
        Text(WakeState::Finished),
        At(close.ended_at)
    ])?;
    Ok(())
}

/// Enters the cost under the time at which it arose, so that a run that is closed late, after a
/// crash, counts in the month in which it spent.
fn enter_in_ledger(
    conn: &Connection,
    close: &RunClose,
    open: &Open,
    cost: Option<i64>,
) -> rusqlite::Result<()> {
    let at: Option<Timestamp> = conn
        .prepare_cached("SELECT max(at) AS at FROM run_events WHERE run = ?1 AND type = 'usage'")?
        .query_row([Text(close.run)], |row| row.at_opt("at"))?;
    // A run without a process used no tokens; any other that reports none is not known.
    let tokens = Some(close.usage.tokens())
        .filter(|tokens| *tokens > Tokens::ZERO || !open.has_process)
        .map(Tokens::count);
    // What is not known settles at what was set aside, and says so.
    let cost_estimate = open.reservation.money.filter(|_| cost.is_none());
    let tokens_estimate = open.reservation.tokens.filter(|_| tokens.is_none());
    conn.prepare_cached(
        "INSERT INTO ledger (run, agent, space, workspace, micros, is_estimated, tokens,
           are_tokens_estimated, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        Text(close.run),
        Text(open.agent),
        Text(open.space),
        Text(open.workspace),
        cost.or(cost_estimate.map(Money::micros)),
        cost_estimate.is_some(),
        tokens.or(tokens_estimate.map(Tokens::count)),
        tokens_estimate.is_some(),
        At(at.unwrap_or(close.ended_at))
    ])?;
    conn.prepare_cached(
        "INSERT INTO ledger_repos (entry, repo)
         SELECT DISTINCT l.seq, t.repo FROM ledger l JOIN run_trees t ON t.run = l.run
         WHERE l.run = ?1",
    )?
    .execute([Text(close.run)])?;
    Ok(())
}

fn finish_trees(conn: &Connection, close: &RunClose) -> rusqlite::Result<()> {
    for tree in &close.trees {
        conn.prepare_cached(
            "UPDATE run_trees SET head = ?3, is_dirty = ?4, dirt = ?5
             WHERE run = ?1 AND worktree = ?2",
        )?
        .execute(params![
            Text(close.run),
            Text(tree.worktree),
            tree.head,
            tree.is_dirty,
            tree.dirt
        ])?;
    }
    conn.prepare_cached("DELETE FROM leases WHERE run = ?1")?
        .execute([Text(close.run)])?;
    Ok(())
}

fn save_reply(conn: &Connection, close: &RunClose, open: &Open) -> rusqlite::Result<()> {
    let Some(text) = close.reply.as_ref().filter(|it| !it.trim().is_empty()) else {
        return Ok(());
    };
    let message = NewMessage {
        id: MessageId::reply_of(close.run),
        workspace: open.workspace,
        space: open.space,
        conversation: open.conversation,
        author: Author::Agent {
            uid: open.agent,
            name: open.agent_name.clone(),
        },
        text: text.clone(),
        requested_by: open.requested_by.clone(),
        created_at: close.ended_at,
    };
    let saved = Saved {
        run: Some(close.run),
        message: &message,
    };
    save_message(conn, &saved).map(drop)
}

fn publish_completion(
    conn: &Connection,
    close: &RunClose,
    open: &Open,
    cost: Option<i64>,
) -> rusqlite::Result<()> {
    let payload = json!({
        "runId": close.run,
        "agent": open.agent,
        "space": open.space,
        "conversation": open.conversation,
        "ticket": open.ticket,
        "status": close.status,
        "liveness": close.liveness,
        "errorFamily": close.family,
        "endReason": close.end_reason,
        "summary": close.summary,
        "costMicros": cost,
        "pricing": pricing(cost),
    });
    outbox::publish(
        conn,
        DomainEventType::AgentRunCompleted,
        Some(open.workspace),
        &close.run.to_string(),
        &payload,
        close.ended_at,
    )
}
