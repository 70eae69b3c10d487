//! From bytes to events: encoding, size, syntax. The one file that names the YAML parser.

use std::borrow::Cow;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, StrInput, Tag};

use super::build::{Builder, Outcome, Properties, Tagged};
use super::limits::{DEPTH_MAX, DOCUMENTS_MAX, FILE_BYTES_MAX};
use super::tree::Parsed;
use crate::diagnostic::{Code, Diagnostic, Position, Range};

/// Reads every document of a file. `file` is the path that findings name.
///
/// A document with a syntax error ends there, with one finding; the next document is read as if
/// nothing had happened. Documents without content are left out.
pub fn parse<'a>(file: &str, bytes: &'a [u8]) -> Parsed<'a> {
    let mut parsed = Parsed {
        documents: Vec::new(),
        diagnostics: Vec::new(),
    };
    match text_of(file, bytes) {
        Ok((text, base)) => Reader {
            file,
            bytes,
            base,
            parsed: &mut parsed,
        }
        .read(text),
        Err(diagnostic) => parsed.diagnostics.push(*diagnostic),
    }
    parsed
}

/// The text without its byte order mark, and the mark's length.
fn text_of<'a>(file: &str, bytes: &'a [u8]) -> Result<(&'a str, u32), Box<Diagnostic>> {
    if bytes.len() > FILE_BYTES_MAX {
        let message = format!(
            "the file has {} bytes, which is above the limit of {FILE_BYTES_MAX}",
            bytes.len()
        );
        let span = Range::at(Position::START).in_file(file);
        return Err(Box::new(
            Diagnostic::new(Code::FileTooLarge, span, message)
                .with_help("split it into several files"),
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let valid = String::from_utf8_lossy(&bytes[..at]);
        let span = Range::at(position_after(&valid)).in_file(file);
        let message = format!("byte 0x{:02x} at offset {at} is not UTF-8", bytes[at]);
        Box::new(Diagnostic::new(Code::NotUtf8, span, message).with_help("save the file as UTF-8"))
    })?;
    let (text, base) = match text.strip_prefix('\u{feff}') {
        Some(rest) => (rest, 3),
        None => (text, 0),
    };
    // The parser takes some of these for ordinary text.
    let forbidden = |c: char| {
        matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}'
            | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
    };
    if let Some((at, c)) = text.char_indices().find(|(_, c)| forbidden(*c)) {
        let start = shifted(position_after(&text[..at]), base);
        let mut end = start;
        end.offset += small(c.len_utf8());
        end.column += 1;
        let span = Range { start, end }.in_file(file);
        let message = format!(
            "the character U+{:04X} is not allowed in YAML",
            u32::from(c)
        );
        return Err(Box::new(
            Diagnostic::new(Code::ControlCharacter, span, message)
                .with_help("remove it; inside double quotes an escape such as `\\x00` can name it"),
        ));
    }
    Ok((text, base))
}

struct Reader<'r, 'a> {
    file: &'r str,
    bytes: &'a [u8],
    base: u32,
    parsed: &'r mut Parsed<'a>,
}

impl<'a> Reader<'_, 'a> {
    fn read(&mut self, text: &'a str) {
        let options = granit_parser::options! {
            emit_comments: false,
            emit_unresolved_aliases: true,
            flow_nesting_limit: DEPTH_MAX,
            block_nesting_limit: DEPTH_MAX,
        };
        let mut parser = Parser::new_from_str_with_options(text, options);
        for index in 0.. {
            if index == DOCUMENTS_MAX {
                self.refuse_rest(&mut parser);
                return;
            }
            if !self.read_document(index, &mut parser) {
                return;
            }
        }
    }

    /// Reads one document; whether there is another.
    fn read_document(&mut self, index: u32, parser: &mut Parser<'a, StrInput<'a>>) -> bool {
        let mut builder = Builder::new(self.file, index);
        loop {
            let outcome = match parser.next_event() {
                None | Some(Ok((Event::StreamEnd, _))) => {
                    self.finish(builder, true);
                    return false;
                }
                Some(Ok((Event::DocumentEnd, _))) => {
                    self.finish(builder, true);
                    return true;
                }
                Some(Ok((event, span))) => {
                    let range = Range {
                        start: self.position(span.start),
                        end: self.position(span.end),
                    };
                    feed(&mut builder, event, range)
                }
                Some(Err(error)) => {
                    self.report(&error, index, builder.open_bracket());
                    Outcome::Abandon
                }
            };
            if outcome == Outcome::Abandon {
                self.finish(builder, false);
                return parser.proceed_next_document().unwrap_or(false);
            }
        }
    }

    fn finish(&mut self, builder: Builder<'_, 'a>, complete: bool) {
        let (document, diagnostics) = builder.finish(complete);
        self.parsed.diagnostics.extend(diagnostics);
        self.parsed.documents.extend(document);
    }

    fn refuse_rest(&mut self, parser: &mut Parser<'a, StrInput<'a>>) {
        let next = loop {
            match parser.next_event() {
                None | Some(Ok((Event::StreamEnd, _))) => return,
                Some(Ok((Event::DocumentStart(..), span))) => break span.start,
                Some(Ok(_)) => {}
                Some(Err(error)) => break *error.marker(),
            }
        };
        let span = Range::at(self.position(next)).in_file(self.file);
        let message = format!("the file has more than {DOCUMENTS_MAX} documents");
        let diagnostic = Diagnostic::new(Code::TooManyDocuments, span, message)
            .in_document(DOCUMENTS_MAX)
            .with_help("split it into several files");
        self.parsed.diagnostics.push(diagnostic);
    }

    /// Reports a syntax error; `bracket` is the innermost one that is open.
    fn report(&mut self, error: &ScanError, index: u32, bracket: Option<Range>) {
        let mut position = self.position(*error.marker());
        if is_about_tabs(error.kind()) && self.follows_tab(position) {
            position.offset -= 1;
            position.column -= 1;
        }
        let span = Range::at(position).in_file(self.file);
        let diagnostic = match (error.kind(), bracket) {
            (ErrorKind::RecursionLimitExceeded, _) => super::build::too_deep(span),
            // A bracket that was forgotten shows on a later line only.
            (kind, Some(bracket)) if bracket.start.line < position.line => {
                let message = "the bracket that is opened here is not closed";
                let bracket = bracket.in_file(self.file);
                Diagnostic::new(Code::Syntax, bracket, message)
                    .with_label(span, format!("as seen here: {kind}"))
            }
            (kind, _) => {
                let diagnostic = Diagnostic::new(Code::Syntax, span, kind.to_string());
                match help_for(kind) {
                    Some(help) => diagnostic.with_help(help),
                    None => diagnostic,
                }
            }
        };
        self.parsed.diagnostics.push(diagnostic.in_document(index));
    }

    fn follows_tab(&self, position: Position) -> bool {
        let before = (position.offset as usize).checked_sub(1);
        before.is_some_and(|at| self.bytes.get(at) == Some(&b'\t'))
    }

    fn position(&self, marker: Marker) -> Position {
        position_of(marker, self.base)
    }
}

fn position_of(marker: Marker, base: u32) -> Position {
    let position = Position {
        offset: small(marker.byte_offset().unwrap_or(0)),
        line: small(marker.line()),
        column: small(marker.col()) + 1,
    };
    shifted(position, base)
}

/// A comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment<'a> {
    /// What stands behind its `#`.
    pub text: Cow<'a, str>,
    /// Its place, with the `#`.
    pub range: Range,
    /// Whether nothing but space stands before it on its line.
    pub is_alone: bool,
}

/// The comments of a file, in order. Those of a document that broke off, behind the fault, and
/// those of a file that is no text are left out.
pub fn comments(bytes: &[u8]) -> Vec<Comment<'_>> {
    let Ok((text, base)) = text_of("", bytes) else {
        return Vec::new();
    };
    let options = granit_parser::options! {
        emit_comments: true,
        max_buffered_comment_events: FILE_BYTES_MAX,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut comments = Vec::new();
    let mut broken = 0;
    loop {
        match parser.next_event() {
            None | Some(Ok((Event::StreamEnd, _))) => return comments,
            Some(Ok((Event::Comment(text, _), span))) => {
                let range = Range {
                    start: position_of(span.start, base),
                    end: position_of(span.end, base),
                };
                comments.push(Comment {
                    text,
                    range,
                    is_alone: is_alone(bytes, range),
                });
            }
            Some(Ok(_)) => {}
            Some(Err(_)) => {
                broken += 1;
                let goes_on = parser.proceed_next_document().unwrap_or(false);
                if !goes_on || broken == DOCUMENTS_MAX {
                    return comments;
                }
            }
        }
    }
}

fn is_alone(bytes: &[u8], range: Range) -> bool {
    let before = bytes.get(..range.start.offset as usize).unwrap_or_default();
    let line = before.rsplit(|byte| matches!(byte, b'\n' | b'\r')).next();
    line.is_none_or(|line| line.iter().all(|byte| matches!(byte, b' ' | b'\t')))
}

fn feed<'a>(builder: &mut Builder<'_, 'a>, event: Event<'a>, range: Range) -> Outcome {
    let properties = |anchor, tag: Option<Cow<'a, Tag>>| Properties {
        anchor,
        tag: tag.map(|tag| match tag.core_suffix() {
            Some(suffix) => Tagged::Core(suffix.to_owned()),
            None => Tagged::Other(tag.original()),
        }),
    };
    match event {
        Event::Scalar(text, style, anchor, tag) => {
            let plain = style == ScalarStyle::Plain;
            builder.scalar(text, plain, &properties(anchor, tag), range)
        }
        Event::SequenceStart(_, anchor, tag) => {
            builder.sequence_start(&properties(anchor, tag), range)
        }
        Event::MappingStart(_, anchor, tag) => {
            builder.mapping_start(&properties(anchor, tag), range)
        }
        Event::SequenceEnd | Event::MappingEnd => builder.end(range),
        Event::Alias(id) => builder.alias(id, range),
        Event::UnresolvedAlias(name) => builder.unknown_alias(&name, range),
        // Marks and comments; the version is pinned, so no kind of node is among them.
        _ => Outcome::GoOn,
    }
}

fn is_about_tabs(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabInPlainScalar
            | ErrorKind::TabAtBlockScalarStart
    )
}

/// What to try, where the parser's own words leave that open.
fn help_for(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        kind if is_about_tabs(kind) => Some("indent with spaces"),
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping => Some("close the bracket that was opened here"),
        ErrorKind::UnclosedQuotedScalar => Some("close the quotes that were opened here"),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidIndentation => {
            Some("check the indentation of this line and the one before")
        }
        _ => None,
    }
}

/// The place behind the last character of `text`.
fn position_after(text: &str) -> Position {
    let mut position = Position {
        offset: small(text.len()),
        ..Position::START
    };
    let mut chars = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .chars()
        .peekable();
    while let Some(c) = chars.next() {
        if c == '\n' || (c == '\r' && chars.peek() != Some(&'\n')) {
            position.line += 1;
            position.column = 1;
        } else {
            position.column += 1;
        }
    }
    position
}

fn shifted(mut position: Position, base: u32) -> Position {
    position.offset += base;
    position
}

/// Offsets are small: files are at most [`FILE_BYTES_MAX`] long when they are parsed.
fn small(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX - 1)
}
