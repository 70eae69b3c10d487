//! The `json` output.

use serde::Serialize;

use super::{Checked, count};
use crate::diagnostic::{Code, Diagnostic, Label, ObjectName, Severity, Span};

/// Version of the output's shape: minor steps add members, major ones change them.
const FORMAT_VERSION: &str = "1.0";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    format_version: &'static str,
    valid: bool,
    error_count: usize,
    warning_count: usize,
    file_count: usize,
    document_count: usize,
    diagnostics: Vec<Entry<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    code: Code,
    name: &'static str,
    severity: Severity,
    message: &'a str,
    path: &'a str,
    span: &'a Span,
    document: Option<u32>,
    object: Option<&'a ObjectName>,
    labels: &'a [Label],
    help: Option<&'a str>,
}

impl<'a> Entry<'a> {
    fn of(diagnostic: &'a Diagnostic) -> Self {
        Self {
            code: diagnostic.code,
            name: diagnostic.code.slug(),
            severity: diagnostic.severity(),
            message: &diagnostic.message,
            path: &diagnostic.path,
            span: &diagnostic.span,
            document: diagnostic.document,
            object: diagnostic.object.as_ref(),
            labels: &diagnostic.labels,
            help: diagnostic.help.as_deref(),
        }
    }
}

/// Findings as one JSON document that ends in a newline. Every member is always present, also
/// without findings; what is unknown is `null`.
pub fn json(diagnostics: &[Diagnostic], checked: Checked) -> String {
    let (errors, warnings) = count(diagnostics);
    let report = Report {
        format_version: FORMAT_VERSION,
        valid: errors == 0,
        error_count: errors,
        warning_count: warnings,
        file_count: checked.files,
        document_count: checked.documents,
        diagnostics: diagnostics.iter().map(Entry::of).collect(),
    };
    let mut text =
        serde_json::to_string_pretty(&report).expect("a report holds only strings and numbers");
    text.push('\n');
    text
}
