//! What each kind declares. One definition serves decoder, JSON Schema, canonical form and
//! `explain`: the doc comments below are the reference that operators read. They are the one
//! place in `model` that derives serde, because the manifest's spelling *is* the vocabulary.
//!
//! A field of the design that nothing reads yet is not here; [`reserved_fields`] names it, and
//! `validate` refuses it with "not supported yet" instead of ignoring it.

mod agent;
mod fleet;
mod space;
mod work;

pub use agent::{
    AdapterSpec, AdapterType, AgentBudget, AgentSpec, Effort, GitIdentity, Lifecycle, OutputFormat,
};
pub use fleet::{
    BudgetPolicySpec, BudgetScope, BudgetScopeKind, Concurrency, Enforcement, FirstRevision,
    FleetSpec, Prune, RepoSpec, WorkspaceSpec,
};
pub use space::{Mode, SpaceSpec};
pub use work::{DispatchSpec, Overlap, Priority, ScheduleSpec, TicketSpec};

use super::kind::Kind;

/// Fields of the design that `validate` refuses with "not supported yet".
pub const fn reserved_fields(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Fleet => &[
            "queue",
            "retention",
            "diagnostics",
            "audit",
            "retrieval",
            "access",
            "approvals",
            "installPolicy",
        ],
        Kind::Workspace => &["guardrails", "sandboxPolicy", "secretGlobs"],
        Kind::Repo => &[
            "forge",
            "protectedBranches",
            "submodules",
            "lfs",
            "materialize",
            "spares",
            "strictVolume",
        ],
        Kind::Adapter => &["inheritHostEnv", "mcp", "models"],
        Kind::BudgetPolicy => &[],
        Kind::Agent => &[
            "systemPrompt",
            "contextSize",
            "capabilities",
            "sandboxPolicy",
            "limits",
            "reportsTo",
        ],
        Kind::Space => &[
            "pullRequest",
            "autonomy",
            "checker",
            "approver",
            "approvalTimeout",
            "queue",
            "diskQuota",
            "retain",
        ],
        Kind::Ticket => &["parent", "blocks", "outputSchema"],
        Kind::Dispatch => &["outputSchema", "costCap"],
        Kind::Schedule => &[],
    }
}
