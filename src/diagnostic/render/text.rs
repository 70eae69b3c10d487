//! The `text` output: a title, the line with a caret, advice.

use std::collections::BTreeMap;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Label, Severity, Span, is_unprintable};

/// Whether the output may colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    Never,
    /// ANSI colours.
    Always,
}

/// Columns do not count it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A line longer than this is named, not shown.
const LINE_BYTES_MAX: usize = 2_000;

/// Findings as text: one block each, an empty line between them, a newline at the end; empty
/// without findings. `sources` gives the bytes of a file by its path; a finding in a file that it
/// lacks is shown without its line.
pub fn text(diagnostics: &[Diagnostic], sources: &BTreeMap<&str, &[u8]>, colour: Colour) -> String {
    let renderer = match colour {
        Colour::Never => Renderer::plain(),
        Colour::Always => Renderer::styled(),
    };
    let blocks: Vec<String> = diagnostics
        .iter()
        .map(|diagnostic| block(diagnostic, sources, &renderer))
        .collect();
    blocks.join("\n")
}

fn block(diagnostic: &Diagnostic, sources: &BTreeMap<&str, &[u8]>, renderer: &Renderer) -> String {
    let level = match diagnostic.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(printable(&diagnostic.message))
        .id(format!(
            "{} {}",
            diagnostic.code.id(),
            diagnostic.code.slug()
        ));
    let (beside, elsewhere): (Vec<&Label>, Vec<&Label>) =
        diagnostic.labels.iter().partition(|label| {
            let (this, that) = (&diagnostic.span, &label.span);
            this.file == that.file && this.range.start.line == that.range.start.line
        });
    let primary = (&diagnostic.span, AnnotationKind::Primary, None);
    let beside = beside.into_iter().map(mark);
    let mut group = Group::with_title(title).element(excerpt(primary, beside, sources));
    for label in elsewhere {
        group = group.element(excerpt(mark(label), [], sources));
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(printable(help)));
    }
    let mut block = renderer.render(&[group]);
    block.push('\n');
    block
}

/// A place with what is drawn under it and said beside it.
type Mark<'d> = (&'d Span, AnnotationKind, Option<String>);

fn mark(label: &Label) -> Mark<'_> {
    let message = Some(printable(&label.message));
    (&label.span, AnnotationKind::Context, message)
}

/// The first line of a mark's place, with the mark and those `beside` it on the same line; only
/// the place when the line cannot be shown.
fn excerpt<'d>(
    (span, kind, label): Mark<'d>,
    beside: impl IntoIterator<Item = Mark<'d>>,
    sources: &BTreeMap<&str, &[u8]>,
) -> Element<'static> {
    let path = printable(&span.file);
    let start = span.range.start;
    let bytes = sources.get(span.file.as_str()).copied();
    let Some((line, marked)) = bytes.and_then(|bytes| line_around(bytes, span)) else {
        let origin = Origin::path(path).line(start.line as usize);
        return origin.char_column(start.column as usize).into();
    };
    let mut snippet = Snippet::source(line)
        .path(path)
        .line_start(start.line as usize)
        .annotation(kind.span(marked).label(label));
    for (span, kind, label) in beside {
        if let Some((_, marked)) = bytes.and_then(|bytes| line_around(bytes, span)) {
            snippet = snippet.annotation(kind.span(marked).label(label));
        }
    }
    snippet.into()
}

/// The line where `span` begins, made harmless, and which bytes of it the span covers.
fn line_around(bytes: &[u8], span: &Span) -> Option<(String, Range<usize>)> {
    let start = span.range.start.offset as usize;
    let (before, after) = bytes.split_at_checked(start)?;
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let line_start = before.iter().rposition(is_break).map_or(0, |at| at + 1);
    let line_end = after.iter().position(is_break).unwrap_or(after.len());
    let before = &before[line_start..];
    let before = before.strip_prefix(BYTE_ORDER_MARK).unwrap_or(before);
    if before.len() + line_end > LINE_BYTES_MAX {
        return None;
    }
    let end = (span.range.end.offset as usize)
        .saturating_sub(start)
        .clamp(0, line_end);
    let before = printable(std::str::from_utf8(before).ok()?);
    let marked = printable(std::str::from_utf8(&after[..end]).ok()?);
    let rest = printable(std::str::from_utf8(&after[end..line_end]).ok()?);
    let range = before.len()..before.len() + marked.len();
    Some((format!("{before}{marked}{rest}"), range))
}

/// The text with one replacement for each character that a terminal may act on; tabs stay.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => c,
            c if is_unprintable(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}
