//! Renderers: the same findings for people ([`text()`]) and for programs ([`json()`]).

mod json;
mod text;

pub use json::json;
pub use text::{Colour, text};

use super::{Diagnostic, Severity};

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files that were read.
    pub files: usize,
    /// Documents that were found in them.
    pub documents: usize,
}

/// How many findings are (errors, warnings).
pub fn count(diagnostics: &[Diagnostic]) -> (usize, usize) {
    let errors = diagnostics
        .iter()
        .filter(|it| it.severity() == Severity::Error)
        .count();
    (errors, diagnostics.len() - errors)
}
