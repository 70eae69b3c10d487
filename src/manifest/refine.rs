//! Faults that mean something more exact than what the schema says.

use super::envelope;
use super::walk::{Fault, Step};
use crate::diagnostic::{Code, Severity, quote};
use crate::model::kind::Kind;
use crate::model::spec::reserved_fields;

impl Fault {
    /// Whether it keeps its document from being decoded.
    pub(super) fn is_error(&self) -> bool {
        self.code.severity() == Severity::Error
    }

    fn into_code(self, code: Code, message: String, help: Option<&str>) -> Self {
        Self {
            code,
            message,
            help: help.map(str::to_owned),
            ..self
        }
    }
}

/// The same fault, or the more exact one that it is.
pub(super) fn refine(kind: Kind, fault: Fault) -> Fault {
    let keys: Vec<&str> = fault
        .path
        .iter()
        .filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        })
        .collect();
    let subject = quote(&fault.subject);
    match (fault.code, keys.as_slice()) {
        (Code::UnknownField, ["status"]) => {
            let message = "a file has no `status`".to_owned();
            let help = "remove it; homeostat keeps what it saw in its database";
            fault.into_code(Code::StatusInFile, message, Some(help))
        }
        (Code::UnknownValue, ["apiVersion"]) => {
            envelope::unknown_version(fault.range, &fault.subject)
        }
        (Code::UnknownField, ["metadata", "workspace"]) => {
            let message = format!("the kind {kind} belongs to the fleet, not to a workspace");
            fault.into_code(
                Code::WorkspaceNotAllowed,
                message,
                Some("remove `workspace`"),
            )
        }
        (Code::MissingField, ["metadata", "workspace"]) => {
            let message = format!("the kind {kind} belongs to a workspace, and none is named");
            fault.into_code(Code::WorkspaceMissing, message, Some("add `workspace`"))
        }
        (Code::UnknownField, ["spec", field]) if reserved_fields(kind).contains(field) => {
            let message = format!("the field {subject} is not supported yet");
            fault.into_code(Code::FieldNotSupported, message, None)
        }
        (Code::UnknownValue, path) if reserved_values(kind, path).contains(&&*fault.subject) => {
            let message = format!("the choice {subject} is not supported yet");
            fault.into_code(Code::ValueNotSupported, message, None)
        }
        _ => fault,
    }
}

/// Choices of the design whose feature does not exist yet.
fn reserved_values(kind: Kind, path: &[&str]) -> &'static [&'static str] {
    match (kind, path) {
        (Kind::Adapter, ["spec", "type"]) => &["builtin", "codex", "acp", "gemini", "opencode"],
        (Kind::BudgetPolicy, ["spec", "scope", "kind"]) => &["team"],
        (Kind::Space, ["spec", "mode"]) => &["review", "orchestrate"],
        (Kind::Schedule, ["spec", "overlap"]) => &["replace"],
        _ => &[],
    }
}
