//! Renderers: the same findings for people ([`text()`]), for programs ([`json()`]), and for what
//! shows findings of others ([`sarif()`], [`github()`], [`junit()`]).

mod github;
mod json;
mod junit;
mod sarif;
mod text;

pub use github::{ANNOTATIONS_MAX, github, github_rest};
pub use json::json;
pub use junit::junit;
pub use sarif::sarif;
pub use text::{Colour, text};

use super::{Allowed, Diagnostic, Severity};

/// What the renderers for programs are given.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Findings, in report order.
    pub diagnostics: &'a [Diagnostic],
    /// Those that comments let pass, in report order.
    pub allowed: &'a [Allowed],
    /// How much was looked at.
    pub checked: Checked,
}

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
