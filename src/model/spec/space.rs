//! Space.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::model::tool::Verb;
use crate::model::units::{BranchName, Name};

/// A room: a conversation, the agents that serve it, and a working root of worktrees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpaceSpec {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Agents that serve it; the first answers a message that names none.
    #[serde(default)]
    pub agents: Vec<Name>,
    /// The repo allowlist: absent, every repo of the workspace; empty, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repos: Option<Vec<Name>>,
    /// The branch that its worktrees start from; each repo's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<BranchName>,
    /// What agents do there, and what they owe.
    #[serde(default)]
    pub mode: Mode,
}

/// What the agents of a space do, and what each of their runs owes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
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
pub enum Mode {
    /// They talk and work; nothing in particular is owed.
    #[default]
    Chat,
    /// They study the work and hand in a plan, which is owed; they change nothing.
    Plan,
}

impl Mode {
    /// The verb that hands in what a run owes. A run that can't call it owes nothing.
    pub const fn contract(self) -> Option<Verb> {
        match self {
            Self::Chat => None,
            Self::Plan => Some(Verb::SubmitPlan),
        }
    }
}
