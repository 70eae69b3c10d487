//! Kinds, references and the envelope that every object shares.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

use super::id::Uid;
use super::units::Name;

/// The one API version.
pub const API_VERSION: &str = "homeostat/v1alpha1";

/// The kinds that exist.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
    IntoStaticStr,
)]
pub enum Kind {
    /// Fleet-wide settings; exactly one object.
    Fleet,
    /// The container that everything belongs to.
    Workspace,
    /// A source repository.
    Repo,
    /// How an agent is reached.
    Adapter,
    /// A spending ceiling for a scope.
    BudgetPolicy,
    /// A coding agent.
    Agent,
    /// A room with a working root and a repo allowlist.
    Space,
    /// A piece of work; assigning it wakes its agent.
    Ticket,
    /// One run, once per generation.
    Dispatch,
    /// Recurring follow-up wakes.
    Schedule,
}

/// Whether a kind's objects belong to the fleet or to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// `metadata.workspace` is refused.
    Fleet,
    /// `metadata.workspace` is required.
    Workspace,
    /// Decided by the spec (BudgetPolicy: scope fleet has no workspace).
    BySpec,
}

impl Kind {
    /// Names that the design reserves for kinds whose feature does not exist yet.
    pub const RESERVED: [&str; 13] = [
        "Approval",
        "Forge",
        "Goal",
        "GuardrailPolicy",
        "Hook",
        "Mode",
        "Pipeline",
        "ProviderCredential",
        "SandboxPolicy",
        "Skill",
        "Team",
        "Checker",
        "Trigger",
    ];

    /// Where the kind's objects live.
    pub const fn placement(self) -> Placement {
        match self {
            Self::Fleet | Self::Workspace | Self::Adapter => Placement::Fleet,
            Self::BudgetPolicy => Placement::BySpec,
            Self::Repo
            | Self::Agent
            | Self::Space
            | Self::Ticket
            | Self::Dispatch
            | Self::Schedule => Placement::Workspace,
        }
    }

    /// The lower-case plural that `get` takes, as kubectl's.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Fleet => "fleets",
            Self::Workspace => "workspaces",
            Self::Repo => "repos",
            Self::Adapter => "adapters",
            Self::BudgetPolicy => "budgetpolicies",
            Self::Agent => "agents",
            Self::Space => "spaces",
            Self::Ticket => "tickets",
            Self::Dispatch => "dispatches",
            Self::Schedule => "schedules",
        }
    }

    /// The kind that `text` names: its name, lower-cased, or its plural.
    pub fn from_argument(text: &str) -> Option<Self> {
        use strum::IntoEnumIterator;
        let text = text.to_ascii_lowercase();
        Self::iter()
            .find(|kind| kind.plural() == text || kind.to_string().to_ascii_lowercase() == text)
    }

    /// Objects of a run-once kind finish; their absence from a later revision removes nothing.
    pub const fn is_run_once(self) -> bool {
        matches!(self, Self::Dispatch | Self::Ticket)
    }
}

/// A reference to an object by name. Ordered by kind, workspace, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// What it is.
    pub kind: Kind,
    /// Its workspace; none for a fleet-scoped object.
    pub workspace: Option<Name>,
    /// Its name.
    pub name: Name,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.workspace {
            Some(workspace) => write!(f, "{}/{workspace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// `metadata` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Unique among the kind's objects of the workspace.
    pub name: Name,
    /// The workspace; none for a fleet-scoped object.
    pub workspace: Option<Name>,
    /// Pins the identity over a rename.
    pub uid: Option<Uid>,
    /// For selection.
    pub labels: BTreeMap<String, String>,
    /// Instructions to homeostat and notes of other tools.
    pub annotations: BTreeMap<String, String>,
}

/// Where a document stands in its revision. Line and column count from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// Path within the source.
    pub path: String,
    /// Line of the document's first token.
    pub line: u32,
}

/// One decoded object.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource<S> {
    /// Name, labels, annotations.
    pub metadata: Metadata,
    /// What the operator wants.
    pub spec: S,
    /// Hex SHA-256 of the canonical spec: its change is the generation's.
    pub spec_hash: String,
    /// Where it was written.
    pub origin: Origin,
}

/// An accepted state of the source: a git commit id, or `sha256:…` of a directory's contents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(String);

impl Revision {
    /// Wraps the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form that tables show.
    pub fn short(&self) -> &str {
        let digits = self.0.strip_prefix("sha256:").unwrap_or(&self.0);
        digits.get(..10).unwrap_or(digits)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_answer_to_name_and_plural() {
        for text in ["Agent", "agent", "agents"] {
            assert_eq!(Kind::from_argument(text), Some(Kind::Agent));
        }
        assert_eq!(
            Kind::from_argument("budgetpolicies"),
            Some(Kind::BudgetPolicy)
        );
        assert_eq!(Kind::from_argument("pods"), None);
    }

    #[test]
    fn no_reserved_name_is_a_kind() {
        for name in Kind::RESERVED {
            assert!(name.parse::<Kind>().is_err(), "{name}");
        }
    }
}
