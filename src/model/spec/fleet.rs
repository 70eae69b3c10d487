//! Fleet, Workspace, Repo and BudgetPolicy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::model::budget::{Amount, SOFT_PERCENT_DEFAULT};
use crate::model::kind::Kind;
use crate::model::units::{BranchName, Money, Name, Span, Tokens};

/// Settings of the whole fleet. Exactly one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FleetSpec {
    /// How many runs may be live at once.
    pub concurrency: Concurrency,
    /// When a revision removes so much that it is held for confirmation.
    pub prune: Prune,
    /// What a database that never accepted a revision does with run-once objects.
    pub first_revision: FirstRevision,
    /// How long a stopping daemon, or a removed object, waits for live runs.
    pub drain: Span,
    /// IANA time zone of budget windows and schedules that name none.
    #[schemars(length(min = 1, max = 64))]
    pub zone: String,
    /// Domain of the agents' e-mail addresses.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"))]
    pub identity_domain: String,
    /// Stops every start while true.
    pub estop: bool,
    /// Stops reconciling while true; live runs go on.
    pub suspend: bool,
}

impl Default for FleetSpec {
    fn default() -> Self {
        Self {
            concurrency: Concurrency::default(),
            prune: Prune::default(),
            first_revision: FirstRevision::Hold,
            drain: Span::from_mins(5),
            zone: "UTC".to_owned(),
            identity_domain: "agents.homeostat.local".to_owned(),
            estop: false,
            suspend: false,
        }
    }
}

/// Caps on live runs. Zero means no cap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Concurrency {
    /// In the fleet.
    #[schemars(range(max = 10_000))]
    pub fleet: u32,
    /// In each workspace.
    #[schemars(range(max = 10_000))]
    pub per_workspace: u32,
    /// In worktrees of each repo.
    #[schemars(range(max = 10_000))]
    pub per_repo: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            fleet: 8,
            per_workspace: 0,
            per_repo: 0,
        }
    }
}

/// The prune guard: a revision that removes more than this is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Prune {
    /// Removing more objects than this is held.
    #[schemars(range(max = 1_000_000))]
    pub objects_max: u32,
    /// Removing more than this share of all objects is held …
    #[schemars(range(max = 100))]
    pub percent_max: u32,
    /// … if it is at least this many.
    #[schemars(range(max = 1_000_000))]
    pub percent_from: u32,
}

impl Default for Prune {
    fn default() -> Self {
        Self {
            objects_max: 10,
            percent_max: 20,
            percent_from: 3,
        }
    }
}

/// What a database that never accepted a revision does with Dispatches and assigned Tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum FirstRevision {
    /// Hold them: a lost database must not run old work again.
    Hold,
    /// Run them.
    Run,
}

/// The container that everything else belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceSpec {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Who answers for it: a person's name or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Repos that its spaces may use.
    #[serde(default)]
    pub repos: Vec<Name>,
}

/// A source repository. It is read, never written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepoSpec {
    /// Path of a local checkout or bare repository; relative paths start at the config source.
    #[schemars(length(min = 1, max = 4096))]
    pub source: String,
    /// The branch that spaces start from; the source's own HEAD when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<BranchName>,
}

/// A monthly ceiling on what a scope may spend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetPolicySpec {
    /// What the ceiling is over.
    pub scope: BudgetScope,
    /// The ceiling of one calendar month in money. Zero is unlimited; absent, only `tokens` is a
    /// ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly: Option<Money>,
    /// The ceiling of one calendar month in tokens, beside or instead of `monthly`: tokens in and
    /// out and those read from or written to a prompt cache. Models without a price count. Zero is
    /// unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Share of the ceiling at which a warning incident is recorded.
    #[serde(default = "soft_threshold_default")]
    #[schemars(range(min = 1, max = 100))]
    pub soft_threshold_percent: u8,
    /// How the ceiling acts on dispatch.
    #[serde(default)]
    pub enforcement: Enforcement,
    /// Whether exhaustion pauses the scope.
    #[serde(default = "hard_stop_default")]
    pub hard_stop: bool,
    /// What a run is expected to cost at most, where dispatch is gated. Absent: what nine in ten
    /// of the agent's last 20 priced runs in the space's mode stayed at or below, or $1.00 while
    /// there are fewer than five. Tokens are set aside in the same way, 100,000 while too few runs
    /// tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Money>,
    /// IANA time zone of the window; the Fleet's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
}

impl BudgetPolicySpec {
    /// Its ceilings; unlimited ones are among them.
    pub fn ceilings(&self) -> impl Iterator<Item = Amount> {
        let money = self.monthly.map(Amount::Money);
        money.into_iter().chain(self.tokens.map(Amount::Tokens))
    }
}

/// What a budget is over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetScope {
    /// The kind of scope.
    pub kind: BudgetScopeKind,
    /// Its name; absent for the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
}

/// Kinds of budget scope.
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
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum BudgetScopeKind {
    /// One agent.
    Agent,
    /// Every run in one space.
    Space,
    /// Every run with a worktree of one repo.
    Repo,
    /// Every run in one workspace.
    Workspace,
    /// Every run.
    Fleet,
}

impl BudgetScopeKind {
    /// The kind of the object that such a budget is over.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Agent => Kind::Agent,
            Self::Space => Kind::Space,
            Self::Repo => Kind::Repo,
            Self::Workspace => Kind::Workspace,
            Self::Fleet => Kind::Fleet,
        }
    }
}

/// How a ceiling acts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Enforcement {
    /// A reaction after the run; the paused agent still accepts dispatches.
    #[default]
    PostHoc,
    /// A run is admitted only if what it may cost fits in what remains.
    Gate,
    /// The same, and the run that crosses the ceiling is ended at its next usage event.
    GateAndStop,
}

impl Enforcement {
    /// Whether the ceiling holds runs back before they start.
    pub const fn gates(self) -> bool {
        matches!(self, Self::Gate | Self::GateAndStop)
    }
}

const fn soft_threshold_default() -> u8 {
    SOFT_PERCENT_DEFAULT
}

const fn hard_stop_default() -> bool {
    true
}
