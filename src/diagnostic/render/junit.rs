//! The `junit` output: one test case a file with findings, for CI systems that show tests.

use std::fmt::Write as _;

use super::{Report, count};
use crate::diagnostic::{Diagnostic, Severity};

/// Findings as `JUnit` XML: a file with an error is a failed test, one with warnings alone a passed
/// one that printed something, and all others together one that passed.
pub fn junit(report: &Report<'_>) -> String {
    let by_file: Vec<&[Diagnostic]> = report
        .diagnostics
        .chunk_by(|a, b| a.span.file == b.span.file)
        .collect();
    let failed = by_file.iter().filter(|file| count(file).0 > 0).count();
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let counts = format!("tests=\"{}\" failures=\"{failed}\"", by_file.len() + 1);
    put(
        &mut text,
        format_args!("<testsuites name=\"homeostat\" {counts}>"),
    );
    put(
        &mut text,
        format_args!("  <testsuite name=\"homeostat validate\" {counts}>"),
    );
    let clean = report.checked.files.saturating_sub(by_file.len());
    put(
        &mut text,
        format_args!(
            "    <testcase classname=\"homeostat.validate\" name=\"files without findings: \
             {clean}\"/>"
        ),
    );
    for findings in by_file {
        case(&mut text, findings);
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn case(text: &mut String, findings: &[Diagnostic]) {
    let Some(first) = findings.first() else {
        return;
    };
    put(
        text,
        format_args!(
            "    <testcase classname=\"homeostat.validate\" name=\"{}\">",
            escaped(&first.span.file)
        ),
    );
    let of = |severity| findings.iter().filter(move |it| it.severity() == severity);
    if let Some(worst) = of(Severity::Error).next() {
        put(
            text,
            format_args!(
                "      <failure type=\"{}\" message=\"{}\">{}</failure>",
                worst.code.id(),
                escaped(&worst.message),
                lines(of(Severity::Error))
            ),
        );
    }
    if of(Severity::Warning).next().is_some() {
        let warnings = lines(of(Severity::Warning));
        put(
            text,
            format_args!("      <system-out>{warnings}</system-out>"),
        );
    }
    text.push_str("    </testcase>\n");
}

fn lines<'a>(findings: impl Iterator<Item = &'a Diagnostic>) -> String {
    let mut text = String::new();
    for finding in findings {
        let place = &finding.span;
        let line = format!(
            "{}:{}:{}: {}[{} {}]: {}",
            place.file,
            place.range.start.line,
            place.range.start.column,
            finding.severity(),
            finding.code.id(),
            finding.code.slug(),
            finding.message
        );
        put(&mut text, escaped(&line));
    }
    text
}

/// As text or attribute of XML, which has no control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

fn put(text: &mut String, line: impl std::fmt::Display) {
    let _infallible = writeln!(text, "{line}").is_ok();
}
