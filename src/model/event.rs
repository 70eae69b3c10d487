//! What agents emit and what the daemon publishes.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::run::Usage;

/// Version of [`AgentEvent`]'s JSON form, in every run log's first line.
pub const EVENT_VERSION: u32 = 1;

/// What a run emits: exactly nine types (fixed). This is also the line format of the `command`
/// adapter, so it derives serde here; a change to a field is a change of [`EVENT_VERSION`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum AgentEvent {
    /// Reasoning.
    Thinking {
        /// The words.
        text: String,
    },
    /// Visible text.
    Text {
        /// The words.
        text: String,
    },
    /// A tool is called.
    ToolCall {
        /// Pairs it with its result.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments.
        #[serde(default)]
        args: serde_json::Value,
    },
    /// A tool answered.
    ToolResult {
        /// The call's id.
        id: String,
        /// What it said.
        #[serde(default)]
        output: String,
        /// Whether it failed.
        #[serde(default)]
        is_error: bool,
        /// Whether more follows.
        #[serde(default)]
        is_partial: bool,
    },
    /// Tokens and cost of one metering window.
    Usage {
        /// The model that served.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The figures.
        #[serde(flatten)]
        usage: UsageReport,
    },
    /// Something failed.
    Error {
        /// What.
        message: String,
        /// The adapter's code for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// The operating system denied something.
    SandboxViolation {
        /// What was attempted.
        operation: String,
        /// Who noticed: `landlock`, `seccomp`, `gateway` …
        source: String,
    },
    /// Launch markers, guard decisions, nudges, standard error.
    Debug {
        /// What.
        message: String,
    },
    /// The run is over.
    Done {},
}

/// The figures of a `usage` event. Absent figures are zero, an absent cost is unpriced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageReport {
    /// Tokens in.
    pub input_tokens: u64,
    /// Tokens out.
    pub output_tokens: u64,
    /// Tokens of reasoning.
    pub thought_tokens: u64,
    /// Tokens read from a prompt cache.
    pub cached_read_tokens: u64,
    /// Tokens written to a prompt cache.
    pub cached_write_tokens: u64,
    /// Micro-dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u32>,
}

impl From<UsageReport> for Usage {
    fn from(report: UsageReport) -> Self {
        Self {
            input_tokens: report.input_tokens,
            output_tokens: report.output_tokens,
            thought_tokens: report.thought_tokens,
            cached_read_tokens: report.cached_read_tokens,
            cached_write_tokens: report.cached_write_tokens,
            cost_micros: report.cost_micros.map(i64::from),
        }
    }
}

impl AgentEvent {
    /// The type's name on the wire.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Thinking { .. } => "thinking",
            Self::Text { .. } => "text",
            Self::ToolCall { .. } => "toolCall",
            Self::ToolResult { .. } => "toolResult",
            Self::Usage { .. } => "usage",
            Self::Error { .. } => "error",
            Self::SandboxViolation { .. } => "sandboxViolation",
            Self::Debug { .. } => "debug",
            Self::Done {} => "done",
        }
    }
}

/// What the daemon publishes through the outbox.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
pub enum DomainEventType {
    /// A revision became the desired state.
    RevisionAccepted,
    /// A revision was refused; the last good one serves on.
    RevisionRejected,
    /// A revision waits for a person.
    RevisionHeld,
    /// A run's process was released.
    AgentRunStarted,
    /// A run closed, well or not.
    AgentRunCompleted,
    /// A message was saved.
    MessageReceived,
    /// A ticket got an assignee.
    TicketAssigned,
    /// A ticket's status changed.
    TicketStatusChanged,
    /// A scope crossed a threshold of its budget.
    BudgetThresholdCrossed,
    /// A budget pause was lifted.
    BudgetPauseLifted,
    /// A space's worktrees are ready.
    SpaceProvisioned,
    /// A space's worktrees went to the trash.
    SpaceReclaimed,
}
