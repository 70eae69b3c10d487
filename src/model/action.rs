//! What a plan may ask for, and what it says about the things that wait.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

use super::budget::{Incident, ScopeKey};
use super::id::{RunId, Uid, WakeId, WorktreeId};
use super::kind::ObjectRef;
use super::run::{EndReason, RunOrder};
use super::ticket::TicketStatus;
use super::units::BranchName;
use super::wake::Wake;

/// One idempotent step. Every choice is made: ids, branches, adapter and identity are in it.
#[derive(Clone, Debug, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "camelCase")]
pub enum Action {
    /// Ends a live run.
    StopRun {
        /// Which.
        run: RunId,
        /// Why.
        reason: EndReason,
    },
    /// Kills what is left of a run that no task drives, confirms it, and closes its row.
    ReapRun {
        /// Which.
        run: RunId,
    },
    /// Draws a closed run's consequences, in one transaction.
    SettleRun {
        /// Which.
        run: RunId,
        /// The next attempt.
        retry: Option<Box<Wake>>,
        /// What becomes of its ticket.
        ticket: Option<TicketChange>,
    },
    /// Records a crossing, and pauses the scope if the budget says so. The incident is unique in
    /// (scope, window, kind), so recording it again only sets the pause anew: a raised ceiling
    /// that is crossed in its turn pauses again.
    RecordIncident {
        /// The crossing.
        incident: Incident,
        /// Whether the scope is paused.
        pause: bool,
    },
    /// Lifts a budget pause.
    LiftBudgetPause {
        /// What is lifted.
        scope: ScopeKey,
        /// Why it may go on.
        because: String,
    },
    /// Makes a space's root and its agents' overlay directories.
    EnsureSpaceRoot {
        /// The workspace.
        workspace: Uid,
        /// The space.
        space: Uid,
        /// Its generation.
        generation: i64,
        /// Agents that get an overlay directory.
        agents: Vec<Uid>,
    },
    /// Makes one worktree.
    ProvisionWorktree(Box<TreeOrder>),
    /// Salvages a worktree and moves it to the trash.
    ReclaimWorktree {
        /// Which.
        worktree: WorktreeId,
    },
    /// Moves an empty space's root to the trash.
    ReclaimSpaceRoot {
        /// Its workspace.
        workspace: Uid,
        /// Which.
        space: Uid,
    },
    /// Records a ticket's assignment, with the wake that it causes.
    AssignTicket {
        /// The ticket.
        ticket: Uid,
        /// Whom it goes to; none: nobody any more.
        assignee: Option<Uid>,
        /// How often it was assigned, this time included.
        assignments: u32,
        /// The wake.
        wake: Option<Box<Wake>>,
    },
    /// Changes a ticket's status.
    ChangeTicket(TicketChange),
    /// Records a Dispatch's one wake for its generation.
    DispatchOnce {
        /// The Dispatch.
        dispatch: Uid,
        /// Its generation.
        generation: i64,
        /// The wake.
        wake: Box<Wake>,
    },
    /// Records that a schedule's slot came, with the wake unless it is skipped.
    FireSchedule {
        /// The Schedule.
        schedule: Uid,
        /// The slot.
        slot: Timestamp,
        /// The wake; none: the last one is not over.
        wake: Option<Box<Wake>>,
    },
    /// Drops a wake that can never run.
    CancelWake {
        /// Which.
        wake: WakeId,
        /// Why.
        because: String,
    },
    /// Claims a wake and starts its run.
    StartRun(Box<RunOrder>),
    /// Tells a live run what a wake says, which then has no run of its own.
    TellRun {
        /// The run.
        run: RunId,
        /// The wake.
        wake: WakeId,
    },
    /// Forgets an object whose finalizers are done.
    FinishDeletion {
        /// Which.
        object: ObjectRef,
        /// Its identity.
        uid: Uid,
    },
}

impl Action {
    /// The generation of the spec that the action was planned against, their sum where several
    /// matter (it rises when any of them does); 0 where none does. A terminal failure waits for
    /// it to change.
    pub const fn generation(&self) -> i64 {
        match self {
            Self::EnsureSpaceRoot { generation, .. } | Self::DispatchOnce { generation, .. } => {
                *generation
            }
            Self::ProvisionWorktree(order) => {
                order.generation.saturating_add(order.repo_generation)
            }
            Self::StartRun(order) => order.generation,
            Self::StopRun { .. }
            | Self::ReapRun { .. }
            | Self::SettleRun { .. }
            | Self::RecordIncident { .. }
            | Self::LiftBudgetPause { .. }
            | Self::ReclaimWorktree { .. }
            | Self::ReclaimSpaceRoot { .. }
            | Self::AssignTicket { .. }
            | Self::ChangeTicket(_)
            | Self::FireSchedule { .. }
            | Self::CancelWake { .. }
            | Self::TellRun { .. }
            | Self::FinishDeletion { .. } => 0,
        }
    }
}

/// A ticket's change of status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketChange {
    /// The ticket.
    pub ticket: Uid,
    /// The status that it was planned against.
    pub from: TicketStatus,
    /// The next one.
    pub to: TicketStatus,
}

/// One worktree to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOrder {
    /// Its id.
    pub worktree: WorktreeId,
    /// The workspace.
    pub workspace: Uid,
    /// The space.
    pub space: Uid,
    /// The space's generation.
    pub generation: i64,
    /// The repo.
    pub repo: Uid,
    /// The repo's generation: a corrected source ends a terminal failure.
    pub repo_generation: i64,
    /// The repo's name: the directory's name.
    pub repo_name: String,
    /// Path of the source, as declared.
    pub source: String,
    /// The branch that it starts from; none: the source's own HEAD.
    pub base_branch: Option<BranchName>,
    /// The branch that it is put on.
    pub branch: BranchName,
}

impl Action {
    /// Names what the action is about, stably: failures back off by it.
    pub fn key(&self) -> String {
        let name: &'static str = self.into();
        match self {
            Self::StopRun { run, .. } | Self::ReapRun { run } | Self::SettleRun { run, .. } => {
                format!("{name}/{run}")
            }
            Self::RecordIncident { incident, .. } => {
                format!(
                    "{name}/{}/{}/{}",
                    incident.scope, incident.window, incident.kind
                )
            }
            Self::LiftBudgetPause { scope, .. } => format!("{name}/{scope}"),
            Self::EnsureSpaceRoot { space, .. } | Self::ReclaimSpaceRoot { space, .. } => {
                format!("{name}/{space}")
            }
            Self::ProvisionWorktree(order) => format!("{name}/{}", order.worktree),
            Self::ReclaimWorktree { worktree } => format!("{name}/{worktree}"),
            Self::AssignTicket { ticket, .. } => format!("{name}/{ticket}"),
            Self::ChangeTicket(change) => format!("{name}/{}", change.ticket),
            Self::DispatchOnce { dispatch, .. } => format!("{name}/{dispatch}"),
            Self::FireSchedule { schedule, .. } => format!("{name}/{schedule}"),
            Self::CancelWake { wake, .. } | Self::TellRun { wake, .. } => format!("{name}/{wake}"),
            Self::StartRun(order) => format!("{name}/{}", order.wake),
            Self::FinishDeletion { uid, .. } => format!("{name}/{uid}"),
        }
    }
}

impl Action {
    /// Names what the action works on: no two actions of one lane are performed at once. It is the
    /// action's key, but for a worktree and for a space's root, which are made and reclaimed by
    /// different actions, and for a live run, which is told one thing after the other.
    pub fn lane(&self) -> String {
        match self {
            Self::EnsureSpaceRoot { space, .. } | Self::ReclaimSpaceRoot { space, .. } => {
                format!("root/{space}")
            }
            Self::ProvisionWorktree(order) => format!("worktree/{}", order.worktree),
            Self::ReclaimWorktree { worktree } => format!("worktree/{worktree}"),
            Self::TellRun { run, .. } => format!("told/{run}"),
            Self::StopRun { .. }
            | Self::ReapRun { .. }
            | Self::SettleRun { .. }
            | Self::RecordIncident { .. }
            | Self::LiftBudgetPause { .. }
            | Self::AssignTicket { .. }
            | Self::ChangeTicket(_)
            | Self::DispatchOnce { .. }
            | Self::FireSchedule { .. }
            | Self::CancelWake { .. }
            | Self::StartRun(_)
            | Self::FinishDeletion { .. } => self.key(),
        }
    }
}

/// What a hold is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HoldSubject {
    /// A wake that has not become a run.
    Wake(WakeId),
    /// An object that something should be done for.
    Object(ObjectRef),
}

/// Why something that should happen does not: a closed list.
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
pub enum HoldReason {
    /// The emergency stop is set.
    Estop,
    /// The fleet is suspended.
    Suspended,
    /// The daemon is stopping.
    Draining,
    /// The database never accepted a revision before.
    FirstRevision,
    /// The manifest paused the agent.
    PausedByGit,
    /// An operator paused the agent.
    PausedByOperator,
    /// A person took the space over.
    TakenOver,
    /// The agent is archived.
    AgentArchived,
    /// A budget that gates dispatch is exhausted.
    PausedByBudget,
    /// What the run may cost does not fit in what remains of a budget.
    BudgetExceeded,
    /// A budget in money gates the run, and its model has no price.
    ModelUnpriced,
    /// Another run of the conversation is live.
    ConversationBusy,
    /// Another run holds a worktree that this one would write.
    WorktreeBusy,
    /// The fleet's cap is reached.
    FleetCap,
    /// The workspace's cap is reached.
    WorkspaceCap,
    /// The repo's cap is reached.
    RepoCap,
    /// The agent's cap is reached.
    AgentCap,
    /// The space's worktrees are not there yet.
    NotProvisioned,
    /// The space's worktrees could not be made.
    ProvisionFailed,
    /// A failed action waits for its next try.
    Backoff,
    /// A failed action waits for a change of the spec.
    Terminal,
    /// Removal waits for a live run.
    RunLive,
    /// An earlier wake of the same conversation goes first.
    Queued,
    /// The agent's model provider asked to be left alone.
    PausedByProvider,
    /// The next attempt of a run that its provider failed waits for its time.
    UpstreamRetry,
}

/// A thing that waits, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    /// What waits.
    pub subject: HoldSubject,
    /// Why.
    pub reason: HoldReason,
    /// In words, with who or what is waited for.
    pub message: String,
}

/// The planner's answer.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Plan {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// What waits, one current hold a subject, in subject order.
    pub holds: Vec<Hold>,
    /// The earliest instant at which time alone changes this plan.
    pub wake_at: Option<Timestamp>,
}
