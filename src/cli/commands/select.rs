//! How a person names objects.

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
