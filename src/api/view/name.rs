//! From what people type to one object.

use crate::api::problem::Failure;
use crate::model::kind::Kind;
use crate::store::{ObjectView, Store};

/// The object of `kind` that `text` (`NAME`, `WORKSPACE/NAME` or a uid) names.
///
/// # Errors
/// When there is none, or more than one.
pub(in crate::api) async fn find(
    store: &Store,
    kind: Kind,
    text: &str,
) -> Result<ObjectView, Failure> {
    let objects = store.objects(Some(kind)).await?;
    one(objects, kind, text)
}

/// As [`find`], among `objects` of the kind.
pub(super) fn one(objects: Vec<ObjectView>, kind: Kind, text: &str) -> Result<ObjectView, Failure> {
    let mut named: Vec<ObjectView> = objects
        .into_iter()
        .filter(|object| is_named(object, text))
        .collect();
    if named.len() > 1 {
        let references: Vec<String> = named.iter().map(|it| it.reference.to_string()).collect();
        return Err(
            Failure::ambiguous(format!("'{text}' names more than one {kind}"))
                .detail(format!("say which: {}", references.join(", "))),
        );
    }
    named
        .pop()
        .ok_or_else(|| Failure::not_found(format!("there is no {kind} '{text}'")))
}

fn is_named(object: &ObjectView, text: &str) -> bool {
    let reference = &object.reference;
    let workspace = reference.workspace.as_ref().map(|it| it.as_str());
    match text.split_once('/') {
        Some((of, name)) => reference.name.as_str() == name && workspace == Some(of),
        None => reference.name.as_str() == text || object.state.uid.to_string() == text,
    }
}
