//! Findings about files: what is wrong, exactly where, and what to write instead.
//!
//! A [`Code`] is stable and has one page of explanation. Diagnostics are plain data; [`render`]
//! turns them into what people and programs read.

mod code;
pub mod render;

pub use code::{BESIDE, Code, Page};

use serde::Serialize;
use strum::Display;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Severity {
    /// The revision is refused.
    Error,
    /// The revision is accepted; somebody should look.
    Warning,
}

/// A place in a file. Ordered by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Bytes from the start of the file.
    pub offset: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Position {
    /// The first character of a file.
    pub const START: Self = Self {
        offset: 0,
        line: 1,
        column: 1,
    };
}

/// A stretch of one file; `end` is the first place behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Range {
    /// Its first character.
    pub start: Position,
    /// The place behind its last character.
    pub end: Position,
}

impl Range {
    /// The empty stretch at `position`.
    pub const fn at(position: Position) -> Self {
        Self {
            start: position,
            end: position,
        }
    }

    /// The stretch in `file`.
    pub fn in_file(self, file: &str) -> Span {
        Span {
            file: file.to_owned(),
            range: self,
        }
    }
}

/// A stretch of a named file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Span {
    /// Path within the source, with `/`.
    pub file: String,
    /// Which stretch.
    #[serde(flatten)]
    pub range: Range,
}

/// The object that a finding is about, as far as the file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its workspace, if it has one.
    pub workspace: Option<String>,
    /// Its name.
    pub name: String,
}

/// A place that has to do with a finding, such as the first of two definitions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What is there.
    pub message: String,
}

/// One finding. Ordered by file, offset, code, then text: the order of every report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// Where it is.
    pub span: Span,
    /// What kind of fault it is.
    pub code: Code,
    /// What is wrong, in a sentence without a full stop.
    pub message: String,
    /// JSON Pointer (RFC 6901) within the document; empty for the whole document or file.
    pub path: String,
    /// Which document of the file, from 0; none when the file could not be taken apart.
    pub document: Option<u32>,
    /// Which object, if the document says so.
    pub object: Option<ObjectName>,
    /// Other places that matter.
    pub labels: Vec<Label>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A finding with nothing but code, place and message.
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            code,
            message: message.into(),
            path: String::new(),
            document: None,
            object: None,
            labels: Vec::new(),
            help: None,
        }
    }

    /// The same finding in document number `document`.
    #[must_use]
    pub fn in_document(mut self, document: u32) -> Self {
        self.document = Some(document);
        self
    }

    /// The same finding with advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same finding with one more place that matters.
    #[must_use]
    pub fn with_label(mut self, span: Span, message: impl Into<String>) -> Self {
        self.labels.push(Label {
            span,
            message: message.into(),
        });
        self
    }

    /// How bad it is.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// A finding that a comment lets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// What was found.
    pub diagnostic: Diagnostic,
    /// Why it may pass, as the comment says.
    pub reason: String,
}

/// Puts findings into report order and drops those that say the same at the same place twice
/// (an aliased YAML node is checked once for each use).
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort();
    diagnostics.dedup_by(|later, earlier| {
        later.span == earlier.span && later.code == earlier.code && later.message == earlier.message
    });
}

/// Whether a terminal may act on `c`, or show what follows it in another place.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Quotes text of a file for a message: control characters escaped, at most 60 characters.
pub fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut quoted = String::from("`");
    for (count, c) in text.chars().enumerate() {
        if count == CHARS_MAX {
            quoted.push('…');
            break;
        }
        if is_unprintable(c) {
            quoted.extend(c.escape_unicode());
        } else {
            quoted.push(c);
        }
    }
    quoted.push('`');
    quoted
}

/// The candidate nearest to `text` by edit distance, if it is near enough to be a typing error.
pub fn did_you_mean<'a>(
    text: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    const LENGTH_MAX: usize = 64;
    if text.len() > LENGTH_MAX {
        return None;
    }
    let typed: Vec<char> = text.to_lowercase().chars().collect();
    let tolerated = (typed.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LENGTH_MAX)
        .map(|candidate| (edit_distance(&typed, candidate), candidate))
        .filter(|(distance, _)| *distance <= tolerated)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one text into the other,
/// not counting case.
fn edit_distance(typed: &[char], candidate: &str) -> usize {
    let candidate: Vec<char> = candidate.to_lowercase().chars().collect();
    let width = candidate.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (i, a) in typed.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in candidate.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(a != b))
                .min(rows[i][j + 1] + 1)
                .min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *a == candidate[j - 1] && typed[i - 1] == *b;
            if swapped {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[typed.len()][width - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_candidate_is_found_and_far_ones_are_not() {
        let fields = ["adapter", "budget", "title", "concurrency"];
        for (typed, meant) in [
            ("adpater", Some("adapter")),
            ("Title", Some("title")),
            ("concurency", Some("concurrency")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(did_you_mean(typed, fields), meant, "{typed}");
        }
    }

    #[test]
    fn quoted_text_is_bounded_and_harmless() {
        assert_eq!(quote("a\u{1b}[31mb"), "`a\\u{1b}[31mb`");
        assert_eq!(quote(&"x".repeat(1000)).chars().count(), 63);
    }
}
