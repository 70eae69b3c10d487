//! Rows as the API and the command line show them.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use super::close::Pricing;
use super::sql::{Columns, Text};
use super::{Store, StoreError, observe, run, status};
use crate::model::condition::StoredCondition;
use crate::model::id::{ConversationId, RunId, Uid, WakeId, WorktreeId};
use crate::model::kind::{Kind, ObjectRef, Origin, Revision};
use crate::model::observed::{ObjectState, WorktreeBackend};
use crate::model::process::ProcessIdentity;
use crate::model::run::{EndReason, ErrorFamily, Liveness, RunStatus, Usage};
use crate::model::spec::Mode;
use crate::model::tool::Verb;
use crate::model::wake::WakeReason;

/// Runs that a listing shows when it names no limit.
const RUNS_DEFAULT: u32 = 100;

/// An object with its document and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectView {
    /// Which.
    pub reference: ObjectRef,
    /// What is remembered of it.
    pub state: ObjectState,
    /// The canonical document; none while it is being removed.
    pub json: Option<String>,
    /// Where the document was written.
    pub origin: Option<Origin>,
    /// Its status.
    pub conditions: Vec<StoredCondition>,
}

/// Which runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFilter {
    /// Of this agent.
    pub agent: Option<Uid>,
    /// In this space.
    pub space: Option<Uid>,
    /// In this conversation.
    pub conversation: Option<ConversationId>,
    /// About this ticket.
    pub ticket: Option<Uid>,
    /// In this status.
    pub status: Option<RunStatus>,
    /// At most so many, the latest.
    pub limit: u32,
}

impl Default for RunFilter {
    fn default() -> Self {
        Self {
            agent: None,
            space: None,
            conversation: None,
            ticket: None,
            status: None,
            limit: RUNS_DEFAULT,
        }
    }
}

/// One worktree of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTreeView {
    /// Which.
    pub worktree: WorktreeId,
    /// The repo.
    pub repo: Uid,
    /// The repo's name then.
    pub repo_name: String,
    /// Absolute path.
    pub path: String,
    /// The branch it was on.
    pub branch: String,
    /// The commit that the branch started from.
    pub base: String,
    /// The commit after the run; none: not looked at.
    pub head: Option<String>,
    /// Whether it had uncommitted changes after the run; none: not looked at.
    pub is_dirty: Option<bool>,
}

/// One run, with everything but its prompt, output, events and transcript.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// Rises with every run.
    pub seq: i64,
    /// Its id.
    pub id: RunId,
    /// The wake that it serves.
    pub wake: WakeId,
    /// The workspace.
    pub workspace: Uid,
    /// The agent.
    pub agent: Uid,
    /// The agent's name then.
    pub agent_name: String,
    /// The agent's title then.
    pub agent_title: String,
    /// The space.
    pub space: Uid,
    /// The space's name then.
    pub space_name: String,
    /// The thread.
    pub conversation: ConversationId,
    /// The ticket.
    pub ticket: Option<Uid>,
    /// Why.
    pub wake_reason: WakeReason,
    /// The ids that it was told.
    pub wake_context: serde_json::Value,
    /// The revision that it was planned against.
    pub revision: Revision,
    /// The agent's generation.
    pub generation: i64,
    /// The previous attempt.
    pub retry_of: Option<RunId>,
    /// Ordinal in the lineage, from 0.
    pub attempt: u32,
    /// The person who asked.
    pub requested_by: Option<String>,
    /// Name of the Adapter.
    pub adapter: String,
    /// The model that served.
    pub model: Option<String>,
    /// Where the model's credential came from.
    pub credential_source: String,
    /// Which sandbox backend wrapped it.
    pub sandbox_state: String,
    /// How its worktrees were made.
    pub worktree_backend: WorktreeBackend,
    /// Its working directory.
    pub cwd: String,
    /// Author and committer: the name.
    pub git_name: String,
    /// Author and committer: the address.
    pub git_email: String,
    /// Seconds that it may say nothing.
    pub silence_seconds: u64,
    /// Absolute path of its log.
    pub log_path: String,
    /// Hex SHA-256 of its prompt.
    pub prompt_sha256: Option<String>,
    /// What was done in its space.
    pub mode: Mode,
    /// The verb that hands in what it owes; none where nothing in particular is owed.
    pub contract: Option<Verb>,
    /// The life of the daemon that started it.
    pub incarnation: String,
    /// Its process.
    pub identity: Option<ProcessIdentity>,
    /// Its control group.
    pub cgroup: Option<String>,
    /// The stop that was asked for.
    pub stop_requested: Option<EndReason>,
    /// Who asked.
    pub stop_requested_by: Option<String>,
    /// Where it is, coarsely.
    pub status: RunStatus,
    /// How it is doing, or did.
    pub liveness: Option<Liveness>,
    /// The group of its failure.
    pub error_family: Option<ErrorFamily>,
    /// The adapter's own code.
    pub error_code: Option<String>,
    /// Who ended it.
    pub end_reason: Option<EndReason>,
    /// Exit code of its process.
    pub exit_code: Option<i32>,
    /// Signal that ended its process.
    pub exit_signal: Option<i32>,
    /// A line about it.
    pub summary: Option<String>,
    /// What a next attempt is told.
    pub continuation: Option<String>,
    /// Tokens and cost.
    pub usage: Usage,
    /// Whether the cost is known; none while it is live.
    pub pricing: Option<Pricing>,
    /// When its row was written.
    pub started_at: Timestamp,
    /// When its process was released.
    pub released_at: Option<Timestamp>,
    /// When it first said something.
    pub first_output_at: Option<Timestamp>,
    /// When it last said something.
    pub last_output_at: Option<Timestamp>,
    /// When it closed.
    pub ended_at: Option<Timestamp>,
    /// Whether its consequences are drawn.
    pub is_settled: bool,
    /// Its worktrees, in repo-name order.
    pub trees: Vec<RunTreeView>,
}

/// The exact prompt of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptView {
    /// The words.
    pub prompt: String,
    /// Hex SHA-256 of them.
    pub sha256: String,
}

/// The runs whose id begins so, and those that were told of a wake whose own run would have had
/// such an id; two at most.
const RUNS_BY_PREFIX: &str = "SELECT * FROM runs WHERE id >= ?1 AND id < ?1 || 'g'
     UNION SELECT runs.* FROM wakes JOIN runs ON runs.id = wakes.told_to
       WHERE wakes.run_id >= ?1 AND wakes.run_id < ?1 || 'g'
     LIMIT 2";

impl Store {
    /// Objects that exist or are being removed, in reference order; of one kind if it is given.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn objects(&self, kind: Option<Kind>) -> Result<Vec<ObjectView>, StoreError> {
        self.connections
            .read("objects", move |conn| {
                let mut objects: Vec<ObjectView> = conn
                    .prepare_cached(&format!("{OBJECTS} AND (?1 IS NULL OR o.kind = ?1)"))?
                    .query_map([kind.map(Text)], object_view)?
                    .collect::<rusqlite::Result<_>>()?;
                for object in &mut objects {
                    object.conditions = status::conditions_of(conn, object.state.uid)?;
                }
                objects.sort_by(|a, b| a.reference.cmp(&b.reference));
                Ok(objects)
            })
            .await
    }

    /// One object.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn object(&self, reference: ObjectRef) -> Result<Option<ObjectView>, StoreError> {
        self.connections
            .read("object", move |conn| {
                let object = conn
                    .prepare_cached(&format!("{OBJECTS} AND o.reference = ?1"))?
                    .query_row([Text(&reference)], object_view)
                    .optional()?;
                let Some(mut object) = object else {
                    return Ok(None);
                };
                object.conditions = status::conditions_of(conn, object.state.uid)?;
                Ok(Some(object))
            })
            .await
    }

    /// What a uid is, or was called last.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reference_of(&self, uid: Uid) -> Result<Option<ObjectRef>, StoreError> {
        self.connections
            .read("object", move |conn| {
                conn.prepare_cached("SELECT reference FROM objects WHERE uid = ?1")?
                    .query_row([Text(uid)], |row| row.reference("reference"))
                    .optional()
            })
            .await
    }

    /// The latest runs that the filter lets through, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<RunView>, StoreError> {
        self.connections
            .read("runs", move |conn| {
                conn.prepare_cached(
                    "SELECT * FROM runs
                     WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR space = ?2)
                       AND (?3 IS NULL OR conversation = ?3) AND (?4 IS NULL OR ticket = ?4)
                       AND (?5 IS NULL OR status = ?5)
                     ORDER BY seq DESC LIMIT ?6",
                )?
                .query_map(
                    params![
                        filter.agent.map(Text),
                        filter.space.map(Text),
                        filter.conversation.map(Text),
                        filter.ticket.map(Text),
                        filter.status.map(Text),
                        filter.limit
                    ],
                    run_view,
                )?
                .map(|run| run.and_then(|run| with_trees(conn, run)))
                .collect()
            })
            .await
    }

    /// One run, by its id or the digits that it alone starts with. The run that was told of a wake
    /// goes by the id of that wake's own run as well.
    ///
    /// # Errors
    /// [`StoreError::Ambiguous`] when several ids start so.
    pub async fn run(&self, prefix: &str) -> Result<Option<RunView>, StoreError> {
        let prefix = prefix.to_ascii_lowercase();
        let is_legal = !prefix.is_empty() && prefix.bytes().all(is_id_digit);
        if !is_legal {
            return Ok(None);
        }
        let text = prefix.clone();
        let mut runs = self
            .connections
            .read("run", move |conn| {
                conn.prepare_cached(RUNS_BY_PREFIX)?
                    .query_map([text], run_view)?
                    .map(|run| run.and_then(|run| with_trees(conn, run)))
                    .collect::<rusqlite::Result<Vec<_>>>()
            })
            .await?;
        if runs.len() > 1 {
            return Err(StoreError::Ambiguous { prefix });
        }
        Ok(runs.pop())
    }

    /// Every attempt of the lineage that a run belongs to, first attempt first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn lineage(&self, run: RunId) -> Result<Vec<RunView>, StoreError> {
        self.connections
            .read("lineage", move |conn| {
                conn.prepare_cached(
                    "WITH RECURSIVE
                       up (id, retry_of) AS (
                         SELECT id, retry_of FROM runs WHERE id = ?1
                         UNION SELECT r.id, r.retry_of FROM runs r JOIN up ON r.id = up.retry_of),
                       down (id) AS (
                         SELECT id FROM up
                         UNION SELECT r.id FROM runs r JOIN down ON r.retry_of = down.id)
                     SELECT * FROM runs WHERE id IN (SELECT id FROM down) ORDER BY seq",
                )?
                .query_map([Text(run)], run_view)?
                .map(|run| run.and_then(|run| with_trees(conn, run)))
                .collect()
            })
            .await
    }

    /// The exact prompt that a run got; none before it was made.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn run_prompt(&self, run: RunId) -> Result<Option<PromptView>, StoreError> {
        self.connections
            .read("prompt", move |conn| {
                conn.prepare_cached(
                    "SELECT prompt, prompt_sha256 FROM runs WHERE id = ?1 AND prompt IS NOT NULL",
                )?
                .query_row([Text(run)], |row| {
                    Ok(PromptView {
                        prompt: row.get("prompt")?,
                        sha256: row.get("prompt_sha256")?,
                    })
                })
                .optional()
            })
            .await
    }

    /// The folded transcript of a run, as JSON; none before it closed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn transcript(&self, run: RunId) -> Result<Option<String>, StoreError> {
        self.connections
            .read("transcript", move |conn| {
                conn.prepare_cached("SELECT json FROM transcripts WHERE run = ?1")?
                    .query_row([Text(run)], |row| row.get(0))
                    .optional()
            })
            .await
    }
}

/// Objects with their documents.
const OBJECTS: &str = "SELECT o.*, d.json AS json, d.path AS path, d.line AS line
     FROM objects o LEFT JOIN documents d ON d.reference = o.reference
     WHERE o.deleted_at IS NULL";

fn object_view(row: &Row<'_>) -> rusqlite::Result<ObjectView> {
    let path: Option<String> = row.get("path")?;
    let line: Option<u32> = row.get("line")?;
    Ok(ObjectView {
        reference: row.reference("reference")?,
        state: observe::object_state(row)?,
        json: row.get("json")?,
        origin: path.zip(line).map(|(path, line)| Origin { path, line }),
        conditions: Vec::new(),
    })
}

const fn is_id_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')
}

fn with_trees(conn: &Connection, mut run: RunView) -> rusqlite::Result<RunView> {
    run.trees = conn
        .prepare_cached("SELECT * FROM run_trees WHERE run = ?1 ORDER BY repo_name, worktree")?
        .query_map([Text(run.id)], |row| {
            Ok(RunTreeView {
                worktree: row.text("worktree")?,
                repo: row.text("repo")?,
                repo_name: row.get("repo_name")?,
                path: row.get("path")?,
                branch: row.get("branch")?,
                base: row.get("base")?,
                head: row.get("head")?,
                is_dirty: row.get("is_dirty")?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(run)
}

fn run_view(row: &Row<'_>) -> rusqlite::Result<RunView> {
    Ok(RunView {
        seq: row.get("seq")?,
        id: row.text("id")?,
        wake: row.text("wake")?,
        workspace: row.text("workspace")?,
        agent: row.text("agent")?,
        agent_name: row.get("agent_name")?,
        agent_title: row.get("agent_title")?,
        space: row.text("space")?,
        space_name: row.get("space_name")?,
        conversation: row.text("conversation")?,
        ticket: row.text_opt("ticket")?,
        wake_reason: row.text("wake_reason")?,
        wake_context: row.json("wake_context_json")?,
        revision: row.revision("revision")?,
        generation: row.get("generation")?,
        retry_of: row.text_opt("retry_of")?,
        attempt: row.count32("attempt")?,
        requested_by: row.get("requested_by")?,
        adapter: row.get("adapter")?,
        model: row.get("model")?,
        credential_source: row.get("credential_source")?,
        sandbox_state: row.get("sandbox_state")?,
        worktree_backend: row.text("worktree_backend")?,
        cwd: row.get("cwd")?,
        git_name: row.get("git_name")?,
        git_email: row.get("git_email")?,
        silence_seconds: row.count("silence_seconds")?,
        log_path: row.get("log_path")?,
        prompt_sha256: row.get("prompt_sha256")?,
        mode: row.text("mode")?,
        contract: row.text_opt("contract")?,
        incarnation: row.get("incarnation")?,
        identity: run::identity(row)?,
        cgroup: row.get("cgroup")?,
        stop_requested: row.text_opt("stop_requested")?,
        stop_requested_by: row.get("stop_requested_by")?,
        status: row.text("status")?,
        liveness: row.text_opt("liveness")?,
        error_family: row.text_opt("error_family")?,
        error_code: row.get("error_code")?,
        end_reason: row.text_opt("end_reason")?,
        exit_code: row.get("exit_code")?,
        exit_signal: row.get("exit_signal")?,
        summary: row.get("summary")?,
        continuation: row.get("continuation")?,
        usage: usage(row)?,
        pricing: row.text_opt("pricing")?,
        started_at: row.at("started_at")?,
        released_at: row.at_opt("released_at")?,
        first_output_at: row.at_opt("first_output_at")?,
        last_output_at: row.at_opt("last_output_at")?,
        ended_at: row.at_opt("ended_at")?,
        is_settled: row.get("is_settled")?,
        trees: Vec::new(),
    })
}

fn usage(row: &Row<'_>) -> rusqlite::Result<Usage> {
    Ok(Usage {
        input_tokens: row.count("input_tokens")?,
        output_tokens: row.count("output_tokens")?,
        thought_tokens: row.count("thought_tokens")?,
        cached_read_tokens: row.count("cached_read_tokens")?,
        cached_write_tokens: row.count("cached_write_tokens")?,
        cost_micros: row.get("cost_micros")?,
    })
}
