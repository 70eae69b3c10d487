//! The wire format. Names are camelCase; times are RFC 3339 in UTC; money is micro-dollars; what
//! is not known is absent, and an absent cost is not zero.

mod act;
mod trace;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::Display;

pub use self::act::{
    Accepted, DispatchRequest, Empty, HandedBack, MessageAccepted, MessageRequest, PauseRequest,
    Paused, Resumed, SteerAccepted, SteerOutcome, SteerRequest, TakenOver, TakeoverRequest,
    WaitStatus, Waited,
};
pub use self::trace::{Trace, TracedObject, TracedRevision};
pub use crate::dispatch::transcript::{Segment, ToolState};
use crate::model::action::HoldReason;
use crate::model::budget::{IncidentKind, Meter};
use crate::model::condition::{ConditionReason, ConditionStatus, ConditionType};
use crate::model::event::{AgentEvent, DomainEventType};
use crate::model::id::{ConversationId, RunId, Uid, WakeId};
use crate::model::kind::{Kind, Origin, Revision};
use crate::model::observed::WorktreeBackend;
use crate::model::process::ProcessIdentity;
use crate::model::run::{EndReason, ErrorFamily, Liveness, RunStatus, Usage};
use crate::model::spec::{Enforcement, GitIdentity};
use crate::model::ticket::TicketStatus;
use crate::model::wake::{WakeReason, WakeState};

/// Why a request is not answered as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProblemCode {
    /// It is not there.
    NotFound,
    /// The request makes no sense.
    BadRequest,
    /// Several things answer to what was asked for.
    Ambiguous,
    /// The peer may not.
    Forbidden,
    /// State or policy forbids it.
    Refused,
    /// Not now.
    Unavailable,
    /// A bug, or a broken database.
    Internal,
}

/// An answer of failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Which kind.
    pub code: ProblemCode,
    /// What is wrong, for people.
    pub message: String,
    /// What to know or to try, for people.
    pub details: Vec<String>,
}

/// One statement about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is said.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// Why.
    pub reason: ConditionReason,
    /// In words.
    pub message: String,
    /// The generation that it speaks about.
    pub observed_generation: i64,
    /// When the status last changed.
    pub since: Timestamp,
}

/// Why something that should happen does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The reason's name.
    pub reason: HoldReason,
    /// In words.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// How often it came to this.
    pub count: u32,
}

/// One object with its status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: Uid,
    /// Rises with every change of its spec.
    pub generation: i64,
    /// The revision that brought that generation.
    pub revision: Revision,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When a revision stopped declaring it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_requested_at: Option<Timestamp>,
    /// Where it is written; absent while it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Where a Ticket is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<TicketStatus>,
    /// What is said about it.
    pub conditions: Vec<Condition>,
    /// What holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The object as declared, defaults filled in; absent while it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Value>,
}

impl Object {
    /// `Kind/name`, or `Kind/workspace/name`.
    pub fn reference(&self) -> String {
        match &self.workspace {
            Some(workspace) => format!("{}/{workspace}/{}", self.kind, self.name),
            None => format!("{}/{}", self.kind, self.name),
        }
    }

    /// What is said about `kind`, if anything is.
    pub fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.kind == kind)
    }
}

/// Objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectList {
    /// The revision that serves; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// What is wrong with the source or its latest revision, as far as a daemon says; absent while
    /// all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_fault: Option<String>,
    /// In the order of their references.
    pub objects: Vec<Object>,
}

/// One worktree of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTree {
    /// The repo's name.
    pub repo: String,
    /// Absolute path.
    pub path: String,
    /// The branch.
    pub branch: String,
    /// The commit that the branch started from.
    pub base: String,
    /// The commit at the end of the run; absent when nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Whether something was not committed at the end; absent when nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_dirty: Option<bool>,
}

/// One run (AgentRunLog).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The wake that it serves.
    pub wake: WakeId,
    /// Why.
    pub reason: WakeReason,
    /// Uid of the agent.
    pub agent: Uid,
    /// The agent's name at the time.
    pub agent_name: String,
    /// Uid of the space.
    pub space: Uid,
    /// The space's name at the time.
    pub space_name: String,
    /// The thread.
    pub conversation: ConversationId,
    /// Uid of the ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Uid>,
    /// Ordinal in the lineage, from 0.
    pub attempt: u32,
    /// The previous attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// The person who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Where it is. It never proves success: see `liveness`.
    pub status: RunStatus,
    /// How it does, or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,
    /// The group of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_family: Option<ErrorFamily>,
    /// The adapter's code for the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Who ended it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
    /// A stop that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_requested: Option<EndReason>,
    /// What it handed in, as its contract asks: `{"plan": …}`. Only where one run is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What it did, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Name of the Adapter object.
    pub adapter: String,
    /// The model that served, as the agent reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Which sandbox backend wraps it.
    pub sandbox: String,
    /// Where the model's credential came from, never its value.
    pub credential_source: String,
    /// How its worktrees were made.
    pub worktree_backend: WorktreeBackend,
    /// Its working directory.
    pub cwd: String,
    /// Author and committer of its commits.
    pub git_identity: GitIdentity,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    /// The process's exit code. It decides nothing by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// Tokens and cost.
    pub usage: Usage,
    /// Its worktrees, in the order of the repos' names.
    pub trees: Vec<RunTree>,
    /// Its log.
    pub log_path: String,
    /// The revision that it was planned against.
    pub revision: Revision,
    /// The agent's generation that it was planned against.
    pub generation: i64,
    /// When its row was written.
    pub started_at: Timestamp,
    /// When its agent was let go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Timestamp>,
    /// When it closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl Run {
    /// Whether the run did what it was for: it ended, and delivered or answered.
    pub fn is_ok(&self) -> bool {
        let is_delivered = matches!(
            self.liveness,
            Some(Liveness::Productive | Liveness::Completed)
        );
        self.ended_at.is_some() && is_delivered
    }
}

/// Runs, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The runs.
    pub runs: Vec<Run>,
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Its place.
    pub seq: u64,
    /// When it was stored.
    pub at: Timestamp,
    /// What happened.
    pub event: AgentEvent,
}

/// Events of a run behind a cursor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvents {
    /// In order.
    pub events: Vec<RunEvent>,
    /// The cursor behind the last of them; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Whether nothing follows: the run is closed and this is its end.
    pub is_over: bool,
}

/// What a run said and did, folded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    /// The run.
    pub run: RunId,
    /// Its segments.
    pub segments: Vec<Segment>,
}

/// Exactly what a run was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    /// The run.
    pub run: RunId,
    /// The text.
    pub prompt: String,
    /// Hex SHA-256 of the text.
    pub sha256: String,
}

/// A wake and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    /// Its id.
    pub id: WakeId,
    /// Why.
    pub reason: WakeReason,
    /// How far it has come.
    pub state: WakeState,
    /// Whole reference of the agent, or its uid when it is gone.
    pub agent: String,
    /// Whole reference of the space, or its uid when it is gone.
    pub space: String,
    /// The run that serves it, or will.
    pub run_id: RunId,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// What holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// What was asked about.
    pub subject: String,
    /// The answer in a sentence.
    pub answer: String,
    /// The object, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Object>,
    /// The run, when it is one or has become one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<Run>>,
    /// The wakes that it waits for or that wait for it.
    pub wakes: Vec<Wake>,
}

/// One crossing of a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// What was crossed.
    pub kind: IncidentKind,
    /// In which month.
    pub window: String,
    /// What the ceiling is counted in.
    pub meter: Meter,
    /// Month to date at that time, in micro-dollars or tokens.
    pub spent: i64,
    /// The ceiling at that time, in micro-dollars or tokens.
    pub ceiling: i64,
    /// When.
    pub at: Timestamp,
}

/// How a budget stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum BudgetState {
    /// Below its warning threshold, or unlimited.
    Ok,
    /// The warning threshold was reached.
    Soft,
    /// A ceiling was reached.
    Exhausted,
    /// Its scope is paused.
    Paused,
}

/// What was spent of one ceiling, in micro-dollars or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetUse {
    /// What it is counted in.
    pub meter: Meter,
    /// The ceiling; zero is unlimited.
    pub ceiling: i64,
    /// Month to date, what is known of it.
    pub spent: i64,
    /// What is set aside for live runs, or used by them where that is more.
    pub reserved: i64,
    /// What is left for new runs; absent where it is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<i64>,
    /// What is spent by the window's end if it goes on at the month-to-date rate; absent in the
    /// window's first day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<i64>,
    /// Runs of the month of which it is not known what they used.
    pub unknown_runs: u32,
}

/// One budget with its spend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// The BudgetPolicy, or the Agent whose own figure it is.
    pub budget: String,
    /// What it is over: `Agent/shop/ada`, or `Fleet`.
    pub scope: String,
    /// The month.
    pub window: String,
    /// The zone whose month it is.
    pub zone: String,
    /// The month's first instant.
    pub window_start: Timestamp,
    /// The next month's first instant.
    pub window_end: Timestamp,
    /// How the ceiling acts on dispatch.
    pub enforcement: Enforcement,
    /// Whether exhaustion pauses the scope.
    pub hard_stop: bool,
    /// How it stands.
    pub state: BudgetState,
    /// Since when its scope is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Each ceiling with what was spent of it: money first.
    pub uses: Vec<BudgetUse>,
    /// Month to date, in micro-dollars, whatever the ceilings count.
    pub spent_micros: i64,
    /// Month to date, in tokens, whatever the ceilings count.
    pub spent_tokens: i64,
    /// Runs of the month whose cost is not known.
    pub unpriced_runs: u32,
    /// Its crossings of this month.
    pub incidents: Vec<Incident>,
}

/// Budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetList {
    /// In the order of their references.
    pub budgets: Vec<Budget>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainEvent {
    /// Its place.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(rename = "type")]
    pub kind: DomainEventType,
    /// Id of what it happened to.
    pub subject: String,
    /// The rest.
    pub payload: Value,
}

/// Events behind a cursor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainEvents {
    /// In order.
    pub events: Vec<DomainEvent>,
    /// The cursor behind the last of them.
    pub next: i64,
}

/// The source is going to be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconciling {
    /// The number of that reading, to wait for it.
    pub reading: u64,
}

/// What became of the source's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum SourceStatus {
    /// It is not read yet.
    Pending,
    /// It is the desired state.
    Accepted,
    /// It has faults; the last good revision serves on.
    Rejected,
    /// It waits for a person; the last good revision serves on.
    Held,
    /// There is none, since the source can't be read; the last good revision serves on.
    Unreadable,
}

/// What a reading of the source came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceRead {
    /// What became of its revision.
    pub status: SourceStatus,
    /// The revision; absent where none was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Why it is not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// In what the daemon looks for runs' programs and credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Surroundings {
    /// The directories of programs, joined by `:`.
    pub search_path: String,
    /// The variables of its environment that say something of a model's provider: names alone,
    /// since values may be secret.
    pub model_variables: Vec<String>,
    /// The user that runs have.
    pub run_uid: u32,
}

/// How the daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Whether everything below is as it should be.
    pub is_healthy: bool,
    /// The daemon's version.
    pub version: String,
    /// The revision that serves; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The database was read: `ok`, or what went wrong.
    pub store: String,
    /// The source: `ok`, or what is wrong with its latest revision.
    pub source: String,
    /// Since when an answer of the source is waited for; absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_waiting_since: Option<Timestamp>,
    /// Since when the source can't be read; absent while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_failing_since: Option<Timestamp>,
    /// How many seconds ago the reconcile loop last went round whole.
    pub last_pass_secs_ago: u64,
    /// The sandbox's state and reason.
    pub sandbox: String,
    /// How worktrees are made.
    pub worktree_backend: WorktreeBackend,
}
