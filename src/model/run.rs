//! Runs (AgentRunLog): statuses, why they ended, and the views that the planner reads.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::budget::{BudgetGuard, Reservation};
use super::id::{ConversationId, RunId, Uid, WakeId, WorktreeId};
use super::kind::{ObjectRef, Revision};
use super::spec::{AdapterSpec, Effort, GitIdentity, Mode};
use super::units::{Money, Tokens};
use super::wake::{Wake, WakeReason};

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display,
            EnumString, EnumIter,
        )]
        #[serde(rename_all = "camelCase")]
        #[strum(serialize_all = "camelCase")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }
    };
}

wire_enum!(
    /// Where a run is, coarsely (fixed). It never proves success: see [`Liveness`].
    RunStatus {
        /// Its row is written; nothing was started.
        Pending,
        /// Its process was released.
        Running,
        /// It ended by itself.
        Completed,
        /// It was ended, failed or lost.
        Error,
    }
);

wire_enum!(
    /// How a run is doing, or did (fixed).
    Liveness {
        /// It says something.
        Alive,
        /// It delivered or changed a tree.
        Productive,
        /// It ended cleanly with words only.
        Completed,
        /// It waits for a human.
        Blocked,
        /// It delivered nothing that was asked for.
        Empty,
        /// It repeats itself.
        Looping,
        /// It failed.
        Failed,
        /// It fell silent.
        Stalled,
        /// It was lost.
        Dead,
    }
);

wire_enum!(
    /// The group that a failure belongs to (fixed).
    ErrorFamily {
        /// The model or the network.
        TransientUpstream,
        /// The launch or the sandbox.
        SandboxInfrastructure,
        /// A spending limit.
        BudgetExceeded,
        /// The process or the daemon went away.
        ProcessLost,
        /// Nothing was said, or nothing was delivered.
        SilentRun,
        /// None of these.
        Unknown,
    }
);

wire_enum!(
    /// Who ended a run, and why.
    EndReason {
        /// The agent.
        AgentFinished,
        /// A person, by `stop`.
        StoppedByHuman,
        /// A person took its space over.
        TakenOver,
        /// A message that was to interrupt it.
        Interrupted,
        /// The emergency stop.
        Estop,
        /// Its agent, space or ticket was removed.
        Removed,
        /// The silence watchdog.
        Silence,
        /// A spending limit that stops runs in flight.
        Budget,
        /// The daemon's own stop; it is tried again.
        DaemonShutdown,
        /// The daemon died under it; it is tried again.
        DaemonLost,
        /// It could not be started.
        LaunchFailed,
    }
);

impl RunStatus {
    /// Whether the run may still have a process.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

impl EndReason {
    /// Whether a run that ended so is tried again.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::DaemonShutdown | Self::DaemonLost)
    }

    /// Whether the ending counts as one of the lineage's attempts.
    pub const fn counts_as_attempt(self) -> bool {
        !matches!(self, Self::DaemonShutdown)
    }
}

/// Attempts that a lineage has in all, the first included (design §17).
pub const ATTEMPTS_MAX: u32 = 2;

/// Tokens and cost, summed over a run's usage events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
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
    /// Micro-dollars; none while every usage event was unpriced.
    pub cost_micros: Option<i64>,
}

impl Usage {
    /// Adds one metering window.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.thought_tokens = self.thought_tokens.saturating_add(other.thought_tokens);
        self.cached_read_tokens = self
            .cached_read_tokens
            .saturating_add(other.cached_read_tokens);
        self.cached_write_tokens = self
            .cached_write_tokens
            .saturating_add(other.cached_write_tokens);
        if let Some(cost) = other.cost_micros {
            self.cost_micros = Some(self.cost_micros.unwrap_or(0).saturating_add(cost));
        }
    }

    /// What budgets in tokens count: tokens in and out, and those read from or written to a prompt
    /// cache. Reasoning is among the tokens out.
    pub fn tokens(&self) -> Tokens {
        let kinds = [
            self.input_tokens,
            self.output_tokens,
            self.cached_read_tokens,
            self.cached_write_tokens,
        ];
        let sum = kinds.into_iter().fold(0, u64::saturating_add);
        Tokens::new(i64::try_from(sum).unwrap_or(i64::MAX))
    }

    /// The cost, if it is known.
    pub fn cost(&self) -> Option<Money> {
        self.cost_micros.map(Money::from_micros)
    }
}

/// One worktree as a run is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTree {
    /// Its id.
    pub id: WorktreeId,
    /// The repo's uid.
    pub repo: Uid,
    /// The repo's name.
    pub repo_name: String,
    /// Absolute path.
    pub path: String,
    /// The branch it is on.
    pub branch: String,
    /// The commit that the branch started from, hex.
    pub base: String,
}

/// Another agent of a run's space, as the run is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Teammate {
    /// Its name, by which a message can mention it.
    pub name: String,
    /// Its title.
    pub title: String,
}

/// Everything that starting a run needs; the executor chooses nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOrder {
    /// The run's id, derived from the wake's.
    pub run: RunId,
    /// The wake that it serves.
    pub wake: WakeId,
    /// Why.
    pub reason: WakeReason,
    /// Ordinal in the lineage, from 0.
    pub attempt: u32,
    /// The workspace's uid.
    pub workspace: Uid,
    /// The workspace's name.
    pub workspace_name: String,
    /// The agent's uid.
    pub agent: Uid,
    /// The agent object.
    pub agent_ref: ObjectRef,
    /// The agent's title.
    pub agent_title: String,
    /// Its persona.
    pub persona: Option<String>,
    /// Names of its skills.
    pub skills: Vec<String>,
    /// The space's uid.
    pub space: Uid,
    /// The space's name.
    pub space_name: String,
    /// The other agents that serve it, by name.
    pub roster: Vec<Teammate>,
    /// What is done there, and what the run owes.
    pub mode: Mode,
    /// The thread.
    pub conversation: ConversationId,
    /// The ticket.
    pub ticket: Option<Uid>,
    /// Name of the Adapter object.
    pub adapter_name: String,
    /// How the agent is reached.
    pub adapter: AdapterSpec,
    /// The Adapter's generation that says so.
    pub adapter_generation: i64,
    /// The model that it is to think with.
    pub model: Option<String>,
    /// How hard.
    pub effort: Option<Effort>,
    /// Absolute working directory.
    pub cwd: String,
    /// The worktrees, in repo-name order.
    pub trees: Vec<RunTree>,
    /// Author and committer.
    pub identity: GitIdentity,
    /// How long it may say nothing.
    pub silence: Duration,
    /// What is set aside for it; nothing where no budget gates dispatch.
    pub reservation: Reservation,
    /// The budgets that gate it.
    pub guards: Vec<BudgetGuard>,
    /// The revision that it was planned against.
    pub revision: Revision,
    /// The agent's generation that it was planned against.
    pub generation: i64,
}

/// A run whose row is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRun {
    /// Its id.
    pub id: RunId,
    /// The wake that it serves.
    pub wake: WakeId,
    /// `pending` or `running`.
    pub status: RunStatus,
    /// The workspace.
    pub workspace: Uid,
    /// The agent.
    pub agent: Uid,
    /// The space.
    pub space: Uid,
    /// The thread.
    pub conversation: ConversationId,
    /// The ticket.
    pub ticket: Option<Uid>,
    /// The Dispatch or Schedule that caused its wake.
    pub cause: Option<Uid>,
    /// Repos whose worktrees it may write.
    pub repos: Vec<Uid>,
    /// A stop that was asked for.
    pub stop_requested: Option<EndReason>,
    /// When its row was written.
    pub started_at: Timestamp,
    /// Whether a task of this daemon drives it. A live row without one is an orphan.
    pub is_attached: bool,
    /// Whether its agent can be told something now.
    pub is_listening: bool,
}

/// A provider's wish to be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderAsk {
    /// Until when.
    pub until: Timestamp,
    /// The status of the answer that said so.
    pub status: u16,
    /// Whether every run of the Adapter would ask that provider with that key; else the run brought
    /// one of its own, and the wish is about nobody else.
    pub is_shared: bool,
}

/// A closed run whose consequences are not drawn yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// Its id.
    pub id: RunId,
    /// The wake that it served: a next attempt's is made from it.
    pub wake: Wake,
    /// `completed` or `error`.
    pub status: RunStatus,
    /// How it did.
    pub liveness: Liveness,
    /// The group of its failure.
    pub family: Option<ErrorFamily>,
    /// The structured code of its failure.
    pub error_code: Option<String>,
    /// Who ended it.
    pub end_reason: EndReason,
    /// Whether trying again could help.
    pub is_retryable: bool,
    /// What its model's provider asked for last.
    pub provider: Option<ProviderAsk>,
    /// What a next attempt is told of it.
    pub continuation: Option<String>,
    /// When it closed.
    pub ended_at: Timestamp,
}
