//! The `json` output.

use serde::Serialize;

use super::{Report, count};
use crate::diagnostic::{Code, Diagnostic, Label, ObjectName, Severity, Span};

/// Version of the output's shape: minor steps add members, major ones change them.
const FORMAT_VERSION: &str = "1.0";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    format_version: &'static str,
    valid: bool,
    error_count: usize,
    warning_count: usize,
    file_count: usize,
    document_count: usize,
    diagnostics: Vec<Entry<'a>>,
    allowed: Vec<Passed<'a>>,
}

/// A finding that a comment lets pass.
#[derive(Serialize)]
struct Passed<'a> {
    #[serde(flatten)]
    entry: Entry<'a>,
    reason: &'a str,
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
pub fn json(report: &Report<'_>) -> String {
    let (errors, warnings) = count(report.diagnostics);
    let output = Output {
        format_version: FORMAT_VERSION,
        valid: errors == 0,
        error_count: errors,
        warning_count: warnings,
        file_count: report.checked.files,
        document_count: report.checked.documents,
        diagnostics: report.diagnostics.iter().map(Entry::of).collect(),
        allowed: report
            .allowed
            .iter()
            .map(|it| Passed {
                entry: Entry::of(&it.diagnostic),
                reason: &it.reason,
            })
            .collect(),
    };
    let mut text =
        serde_json::to_string_pretty(&output).expect("a report holds only strings and numbers");
    text.push('\n');
    text
}
