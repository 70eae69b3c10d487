//! The `github` output: workflow commands that GitHub shows as annotations beside the lines.

use std::fmt::Write as _;

use super::{Report, count};
use crate::diagnostic::{Diagnostic, Severity, is_unprintable};

/// Annotations of one kind that GitHub shows for a step; it drops the others silently.
pub const ANNOTATIONS_MAX: usize = 10;

/// Lines of the job summary, whose size GitHub bounds.
const SUMMARY_LINES_MAX: usize = 1_000;

/// The worst findings as annotations, one a line: errors first, then in report order.
pub fn github(report: &Report<'_>) -> String {
    let mut text = String::new();
    for diagnostic in worst_first(report).into_iter().take(ANNOTATIONS_MAX) {
        let (start, end) = (diagnostic.span.range.start, diagnostic.span.range.end);
        let mut properties = format!(
            "file={},line={},endLine={}",
            property(&diagnostic.span.file),
            start.line,
            end.line
        );
        // Columns of different lines are refused.
        if start.line == end.line {
            let columns = format!(",col={},endColumn={}", start.column, end.column);
            properties.push_str(&columns);
        }
        let title = format!("{} {}", diagnostic.code.id(), diagnostic.code.slug());
        let mut message = diagnostic.message.clone();
        if let Some(help) = &diagnostic.help {
            message = format!("{message}\n{help}");
        }
        put(
            &mut text,
            format_args!(
                "::{} {properties},title={}::{}",
                diagnostic.severity(),
                property(&title),
                data(&message)
            ),
        );
    }
    text
}

/// The findings that [`github()`] leaves out, as Markdown for the job summary; none when it leaves
/// out none.
pub fn github_rest(report: &Report<'_>) -> Option<String> {
    let all = worst_first(report);
    let rest = all.get(ANNOTATIONS_MAX..).filter(|rest| !rest.is_empty())?;
    let (errors, warnings) = count(report.diagnostics);
    let mut text = String::new();
    put(
        &mut text,
        format_args!(
            "### homeostat validate\n\nErrors: {errors}, warnings: {warnings}. The worst \
             {ANNOTATIONS_MAX} are annotations; these are the others.\n\n````text"
        ),
    );
    // A line begins with a word of ours, so that no text of a file can end the block.
    for diagnostic in rest.iter().take(SUMMARY_LINES_MAX) {
        let (code, place) = (diagnostic.code, &diagnostic.span);
        let line = format!(
            "{}[{} {}]: {} ({}:{}:{})",
            diagnostic.severity(),
            code.id(),
            code.slug(),
            diagnostic.message,
            place.file,
            place.range.start.line,
            place.range.start.column
        );
        put(&mut text, one_line(&line));
    }
    if let Some(more) = rest
        .len()
        .checked_sub(SUMMARY_LINES_MAX)
        .filter(|it| *it > 0)
    {
        put(&mut text, format_args!("and {more} more"));
    }
    text.push_str("````\n");
    Some(text)
}

fn worst_first<'a>(report: &Report<'a>) -> Vec<&'a Diagnostic> {
    let of = |severity| {
        let all = report.diagnostics.iter();
        all.filter(move |it| it.severity() == severity)
    };
    of(Severity::Error).chain(of(Severity::Warning)).collect()
}

/// As the value of a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// As the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if is_unprintable(c) { ' ' } else { c })
        .collect()
}

fn put(text: &mut String, line: impl std::fmt::Display) {
    let _infallible = writeln!(text, "{line}").is_ok();
}
