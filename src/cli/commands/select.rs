//! How a person names objects.

use crate::api::dto::Object;
use crate::cli::error::{CliError, CliResult, Kind};
use crate::diagnostic::did_you_mean;
use crate::model::kind::Kind as ObjectKind;

/// The kind that `text` names.
///
/// # Errors
/// When none does.
pub(crate) fn kind(text: &str) -> CliResult<ObjectKind> {
    use strum::IntoEnumIterator;
    if let Some(kind) = ObjectKind::from_argument(text) {
        return Ok(kind);
    }
    let plurals: Vec<&str> = ObjectKind::iter().map(ObjectKind::plural).collect();
    let error = CliError::new(Kind::Usage, format!("'{text}' is no kind"));
    Err(match did_you_mean(text, plurals.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("the kinds are {}", plurals.join(", "))),
    })
}

/// Whether `name` (`NAME` or `WORKSPACE/NAME`) names `object`.
pub(crate) fn is_named(object: &Object, name: &str) -> bool {
    match name.split_once('/') {
        Some((workspace, name)) => {
            object.name == name && object.workspace.as_deref() == Some(workspace)
        }
        None => object.name == name,
    }
}

/// The one object of `objects` that `subject` (`KIND/NAME` or `KIND/WORKSPACE/NAME`) names.
///
/// # Errors
/// When none does, or more than one.
pub(crate) fn one(objects: Vec<Object>, name: &str) -> CliResult<Object> {
    let mut named: Vec<Object> = objects
        .into_iter()
        .filter(|object| is_named(object, name))
        .collect();
    if named.len() > 1 {
        let references: Vec<String> = named.iter().map(Object::reference).collect();
        return Err(
            CliError::new(Kind::Usage, format!("'{name}' names more than one object"))
                .hint(format!("say which: {}", references.join(", "))),
        );
    }
    named
        .pop()
        .ok_or_else(|| CliError::new(Kind::NotFound, format!("there is no '{name}'")))
}

/// `KIND/NAME` or `KIND/WORKSPACE/NAME`, taken apart: the kind, and the rest.
///
/// # Errors
/// When it is not of that form.
pub(crate) fn subject(text: &str) -> CliResult<(ObjectKind, &str)> {
    let (of, name) = text.split_once('/').ok_or_else(|| {
        CliError::new(Kind::Usage, format!("'{text}' names no object"))
            .hint("objects are named KIND/NAME, or KIND/WORKSPACE/NAME")
    })?;
    Ok((kind(of)?, name))
}
