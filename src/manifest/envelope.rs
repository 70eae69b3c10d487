//! What a document says it is: kind, workspace and name.

use strum::IntoEnumIterator;

use super::walk::{Fault, Step};
use crate::diagnostic::{Code, ObjectName, Range, did_you_mean, quote};
use crate::model::kind::{API_VERSION, Kind, ObjectRef, Placement};
use crate::model::units::Name;
use crate::yaml::{NodeRef, Value};

/// The outside of a document.
pub(super) struct Envelope {
    /// Its kind, if that exists.
    pub(super) kind: Option<Kind>,
    /// The object, if kind, workspace and name can be read.
    pub(super) name: Option<ObjectRef>,
    /// What keeps the rest from being checked.
    pub(super) faults: Vec<Fault>,
}

/// Reads the outside of a document.
pub(super) fn read(root: NodeRef<'_>) -> Envelope {
    match kind_of(root) {
        Ok(kind) => Envelope {
            kind: Some(kind),
            name: reference(kind, root),
            faults: Vec::new(),
        },
        Err(fault) => Envelope {
            kind: None,
            name: None,
            faults: std::iter::once(*fault).chain(wrong_version(root)).collect(),
        },
    }
}

/// The reference in a report's terms.
pub(super) fn object_name(reference: &ObjectRef) -> ObjectName {
    ObjectName {
        kind: reference.kind.to_string(),
        workspace: reference.workspace.as_ref().map(Name::to_string),
        name: reference.name.to_string(),
    }
}

fn kind_of(root: NodeRef<'_>) -> Result<Kind, Box<Fault>> {
    let fault = |code, range, subject: &str, path: &[&str], message: String, help| {
        Box::new(Fault {
            code,
            range,
            path: path.iter().map(|key| Step::from(*key)).collect(),
            subject: subject.to_owned(),
            message,
            help,
        })
    };
    if !matches!(root.value(), Value::Mapping(_)) {
        let message = "a document is a mapping with apiVersion, kind, metadata and spec".to_owned();
        return Err(fault(
            Code::NotAnObject,
            root.range(),
            "",
            &[],
            message,
            None,
        ));
    }
    let Some((key, node)) = root.get("kind") else {
        let message = "the field `kind` is missing".to_owned();
        let help = Some("the kind decides which fields the object has".to_owned());
        return Err(fault(
            Code::MissingField,
            root.range(),
            "",
            &["kind"],
            message,
            help,
        ));
    };
    let Some(text) = node.as_str() else {
        let is_empty = node.range().start == node.range().end;
        let range = if is_empty { key } else { node.range() };
        let message = "`kind` must be text".to_owned();
        return Err(fault(Code::WrongType, range, "", &["kind"], message, None));
    };
    text.parse().map_err(|_unknown| {
        let reserved = Kind::RESERVED.contains(&text);
        let (code, message, help) = if reserved {
            let message = format!("the kind {} is not supported yet", quote(text));
            (Code::KindNotSupported, message, None)
        } else {
            let message = format!("there is no kind {}", quote(text));
            (Code::UnknownKind, message, suggestion(text))
        };
        fault(code, node.range(), text, &["kind"], message, help)
    })
}

fn suggestion(text: &str) -> Option<String> {
    let kinds: Vec<&'static str> = Kind::iter().map(Into::into).collect();
    let help = match did_you_mean(text, kinds.iter().copied()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("the kinds are {}", kinds.join(", ")),
    };
    Some(help)
}

/// The version of a document whose kind is unknown; otherwise the schema checks it.
fn wrong_version(root: NodeRef<'_>) -> Option<Fault> {
    let (_, node) = root.get("apiVersion")?;
    let text = node.as_str()?;
    (text != API_VERSION).then(|| unknown_version(node.range(), text))
}

/// The finding for a version that does not exist.
pub(super) fn unknown_version(range: Range, text: &str) -> Fault {
    Fault {
        code: Code::UnknownApiVersion,
        range,
        path: vec!["apiVersion".into()],
        subject: text.to_owned(),
        message: format!("there is no apiVersion {}", quote(text)),
        help: Some(format!("write `apiVersion: {API_VERSION}`")),
    }
}

fn reference(kind: Kind, root: NodeRef<'_>) -> Option<ObjectRef> {
    let (_, metadata) = root.get("metadata")?;
    let text = |key| metadata.get(key).and_then(|(_, node)| node.as_str());
    let workspace = match (kind.placement(), text("workspace")) {
        (Placement::Fleet, _) | (Placement::BySpec, None) => None,
        (Placement::Workspace | Placement::BySpec, Some(name)) => Some(name.parse().ok()?),
        (Placement::Workspace, None) => return None,
    };
    Some(ObjectRef {
        kind,
        workspace,
        name: text("name")?.parse().ok()?,
    })
}
