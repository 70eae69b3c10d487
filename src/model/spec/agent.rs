//! Agent and Adapter.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::model::price::PriceOverride;
use crate::model::units::{Money, Name, SilenceTimeout};

/// A coding agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentSpec {
    /// What people call it.
    #[schemars(length(min = 1, max = 200))]
    pub title: String,
    /// What it does in the fleet, in a word or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How it should work; a layer of its prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Names of the skills it carries; a layer of its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Name>,
    /// The Adapter that reaches it.
    pub adapter: Name,
    /// The model that it thinks with, as its adapter's provider names it; the adapter's choice when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9._:/@\[\]]{0,199}$"))]
    pub model: Option<String>,
    /// How hard it thinks, for models that can be told; the model's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Its own ceiling; used only when no agent-scope BudgetPolicy covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<AgentBudget>,
    /// The BudgetPolicy that replaces `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_policy: Option<Name>,
    /// How long a run may say nothing before it is ended as `silentRun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_timeout: Option<SilenceTimeout>,
    /// How many of its runs may be live at once.
    #[serde(default = "concurrency_default")]
    #[schemars(range(min = 1, max = 1_000))]
    pub concurrency: u32,
    /// Set here, the lifecycle is git's; absent, the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// Author and committer of its commits, instead of the derived identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_identity: Option<GitIdentity>,
}

/// An agent's own ceiling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentBudget {
    /// The ceiling of one calendar month. Zero is unlimited.
    pub monthly: Money,
}

/// Whether an agent takes work. Ordered from loosest to strictest.
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
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Lifecycle {
    /// It is dispatched.
    Active,
    /// Its wakes wait.
    Paused,
    /// It is gone in all but name.
    Archived,
}

/// How hard a model thinks. Ordered from least to most.
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
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Effort {
    /// Quick answers.
    Low,
    /// A balance.
    Medium,
    /// Thorough.
    High,
    /// More than that.
    XHigh,
    /// All that the model has.
    Max,
}

/// A git author and committer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitIdentity {
    /// The name.
    #[schemars(regex(pattern = r"^[^<>\x00-\x1f]{1,200}$"))]
    pub name: String,
    /// The address.
    #[schemars(regex(pattern = r"^[^<>\x00-\x20]{1,200}$"))]
    pub email: String,
}

/// How agents are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdapterSpec {
    /// The protocol.
    pub r#type: AdapterType,
    /// The program: a path, or a name that is found on the daemon's PATH. Only the type `command`
    /// needs one; the other types know theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables of its environment; nothing of the daemon's own is inherited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What tokens cost; these win over the built-in prices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<PriceOverride>,
    /// What its standard output is.
    #[serde(default)]
    pub output: OutputFormat,
}

/// Protocols.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum AdapterType {
    /// Any program: the prompt on its standard input, text or events on its standard output.
    Command,
    /// The `claude` program of Claude Code, over its own protocol.
    ClaudeCode,
}

impl AdapterType {
    /// Whether its agents can be given tools, and be seen to hand in what a mode owes.
    pub const fn observes_contract(self) -> bool {
        match self {
            Self::Command => false,
            Self::ClaudeCode => true,
        }
    }
}

/// What a `command` adapter's standard output is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum OutputFormat {
    /// Text for the conversation.
    #[default]
    Text,
    /// One event a line, as JSON.
    JsonLines,
}

const fn concurrency_default() -> u32 {
    1
}
