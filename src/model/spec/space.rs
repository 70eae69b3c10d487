//! Space.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}
