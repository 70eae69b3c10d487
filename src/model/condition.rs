//! Conditions: what an object's status says, as the Kubernetes API conventions have it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// What is said.
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
pub enum ConditionType {
    /// The object does what its spec says.
    Ready,
    /// Something is being done about it.
    Reconciling,
    /// Nothing more will be done until something changes.
    Stalled,
    /// A space's worktrees are there.
    Provisioned,
    /// A scope is within its budget.
    BudgetOk,
    /// An agent takes no work, or a space has none done in it.
    Paused,
    /// An agent's runs are wrapped by the operating system.
    SandboxActive,
    /// A run is live, or waits.
    Dispatching,
}

/// Whether it is so.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
pub enum ConditionStatus {
    /// Yes.
    True,
    /// No.
    False,
    /// It could not be looked at.
    Unknown,
}

/// Why it is so: a closed list.
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
pub enum ConditionReason {
    /// It is as declared.
    AsDeclared,
    /// Work is under way.
    Progressing,
    /// Worktrees are being made.
    Provisioning,
    /// Worktrees could not be made.
    ProvisionFailed,
    /// Removal is under way.
    Deleting,
    /// Removal waits for a live run.
    DeletionBlocked,
    /// Runs wait; the holds say why.
    Waiting,
    /// A run is live.
    Running,
    /// There is nothing to do.
    Idle,
    /// Paused by the manifest.
    PausedByGit,
    /// Paused by an operator.
    PausedByOperator,
    /// A person took the space over.
    TakenOver,
    /// Paused by a budget.
    PausedByBudget,
    /// Archived by the manifest.
    Archived,
    /// It takes work.
    Active,
    /// Spend is below the thresholds.
    WithinBudget,
    /// The warning threshold was crossed.
    SoftThreshold,
    /// The ceiling was crossed.
    Exhausted,
    /// No sandbox backend wraps runs.
    SandboxNone,
    /// The emergency stop is set.
    Estop,
    /// The fleet is suspended.
    Suspended,
    /// A run-once object has run.
    Dispatched,
    /// The last run of it failed.
    LastRunFailed,
    /// An action failed and will be tried again.
    Backoff,
    /// An action failed for good until the spec changes.
    Terminal,
    /// Held because the database never accepted a revision before.
    FirstRevision,
}

/// One statement about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is said.
    pub kind: ConditionType,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// Why.
    pub reason: ConditionReason,
    /// In words.
    pub message: String,
    /// The generation that it speaks about.
    pub observed_generation: i64,
}

/// A condition as stored: with the time of its last flip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCondition {
    /// The statement.
    pub condition: Condition,
    /// When `status` last changed.
    pub since: Timestamp,
}
