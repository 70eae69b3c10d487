//! The values of one run, and the judgement of one text.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::AhoCorasick;

use super::view::{self, View};
use super::{forms, shape};

/// Shorter values are not looked for: they are words of ordinary text.
pub const VALUE_MIN: usize = 8;

/// A value that must not appear.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// What the marker calls it; it says which secret, never how it reads.
    pub name: &'a str,
    /// The value.
    pub value: &'a str,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Knows the secrets of one run.
pub struct Redactor {
    names: Vec<String>,
    /// Every form of every value, sorted, and whose it is.
    needles: Vec<(Vec<u8>, usize)>,
    /// Finds all of them; none without values.
    automaton: Option<AhoCorasick>,
    longest: usize,
    is_first: [bool; 256],
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// A place of the text that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span<'a> {
    /// A shape's prefix may stay, but a text can't be cut between it and the secret.
    anchor: usize,
    range: Range<usize>,
    name: &'a str,
}

/// What is to be done with a text.
#[derive(Debug)]
pub(super) struct Judgement {
    /// What may be said now, markers in place.
    pub(super) said: String,
    /// Up to where the text is dealt with.
    pub(super) cut: usize,
    /// The last place before `cut` from which the text can be read again.
    pub(super) context: usize,
}

impl Redactor {
    /// Shapes are always looked for; these values as well. Values shorter than [`VALUE_MIN`] are
    /// passed over.
    pub fn new(known: &[Known<'_>]) -> Self {
        let names = known.iter().map(|known| known.name.to_owned()).collect();
        let of_one = |(owner, known): (usize, &Known<'_>)| {
            forms::of(known.value)
                .into_iter()
                .map(move |form| (form, owner))
        };
        let mut needles: Vec<_> = known.iter().enumerate().flat_map(of_one).collect();
        needles.sort();
        needles.dedup_by(|one, other| one.0 == other.0);
        let mut is_first = [false; 256];
        for (form, _) in &needles {
            is_first[usize::from(form[0])] = true;
        }
        let automaton = (!needles.is_empty()).then(|| {
            let built = AhoCorasick::new(needles.iter().map(|(form, _)| form));
            built.expect("values of a run are far below two gigabytes")
        });
        Self {
            names,
            longest: needles
                .iter()
                .map(|(form, _)| form.len())
                .max()
                .unwrap_or(0),
            needles,
            automaton,
            is_first,
        }
    }

    /// The text with a marker for each finding.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let views = view::of(text, true);
        let spans = self.spans(&views, 0, true).0;
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replaced(text, 0, &spans))
    }

    /// Judges `text` from `from` on; what stands before it was said and is only context. Without
    /// `is_end`, what may yet become a finding is left for the next time.
    pub(super) fn judge(&self, text: &str, from: usize, is_end: bool) -> Judgement {
        let views = view::of(text, is_end);
        let (mut spans, open) = self.spans(&views, from, is_end);
        let end = views.iter().map(View::end).min().unwrap_or(text.len());
        let cut = if is_end {
            text.len()
        } else {
            settled(&views, &spans, open.unwrap_or(end))
        };
        let cut = cut.max(from);
        spans.retain(|span| span.range.end <= cut);
        let before = text.floor_char_boundary(cut.saturating_sub(1));
        let context = settled(&views, &[], before);
        Judgement {
            said: replaced(&text[..cut], from, &spans),
            cut,
            context,
        }
    }

    /// The findings that begin at `from` or after it, in order, those that overlap made one; and
    /// where the first one begins that may not be complete.
    fn spans<'a>(
        &'a self,
        views: &[View<'_>],
        from: usize,
        is_end: bool,
    ) -> (Vec<Span<'a>>, Option<usize>) {
        let (mut spans, mut open) = (Vec::new(), None);
        for view in views {
            let start = view.index(from);
            let shapes = shape::scan(&view.bytes, start, is_end);
            for found in shapes.found {
                spans.push(span(view, found.anchor, found.range, found.label));
            }
            if let Some(automaton) = &self.automaton {
                let matches = automaton.find_overlapping_iter(&view.bytes[start..]);
                for found in matches {
                    let owner = self.needles[found.pattern().as_usize()].1;
                    let range = start + found.start()..start + found.end();
                    spans.push(span(view, range.start, range, &self.names[owner]));
                }
            }
            let partial = if is_end {
                None
            } else {
                self.partial(&view.bytes, start)
            };
            let places = [shapes.open, partial, open.take()];
            open = places[..2]
                .iter()
                .flatten()
                .map(|&index| view.origin(index))
                .chain(places[2])
                .min();
        }
        spans.sort_by_key(|span| (span.range.start, std::cmp::Reverse(span.range.end)));
        (merged(spans), open)
    }

    /// Where the longest end of `bytes` begins that is the beginning of a needle.
    fn partial(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let earliest = (bytes.len() + 1).saturating_sub(self.longest).max(from);
        (earliest..bytes.len()).find(|&at| {
            let end = &bytes[at..];
            self.is_first[usize::from(end[0])] && {
                let next = self
                    .needles
                    .partition_point(|(form, _)| form.as_slice() < end);
                // A needle that is all there is a finding; a longer one may follow it.
                let mut rest = self.needles[next..].iter().map(|(form, _)| form);
                rest.find(|form| form.as_slice() != end)
                    .is_some_and(|form| form.starts_with(end))
            }
        })
    }
}

fn span<'a>(view: &View<'_>, anchor: usize, range: Range<usize>, name: &'a str) -> Span<'a> {
    Span {
        anchor: view.origin(anchor),
        range: view.origin(range.start)..view.origin(range.end),
        name,
    }
}

/// `spans` are in order; the first of those that overlap gives its name.
fn merged(spans: Vec<Span<'_>>) -> Vec<Span<'_>> {
    let mut merged: Vec<Span<'_>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.range.start < last.range.end => {
                last.range.end = last.range.end.max(span.range.end);
                last.anchor = last.anchor.min(span.anchor);
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// The last place at or before `place` that is inside no escape and no finding.
fn settled(views: &[View<'_>], spans: &[Span<'_>], place: usize) -> usize {
    let mut at = place;
    loop {
        let before = at;
        for view in views {
            at = view.boundary(at);
        }
        let inside = |span: &&Span<'_>| span.anchor < at && at < span.range.end;
        if let Some(span) = spans.iter().find(inside) {
            at = span.anchor;
        }
        if at == before {
            return at;
        }
    }
}

fn replaced(text: &str, from: usize, spans: &[Span<'_>]) -> String {
    let mut said = String::with_capacity(text.len() - from);
    let mut at = from;
    for span in spans {
        said.push_str(&text[at..span.range.start]);
        said.push_str("[redacted:");
        said.push_str(span.name);
        said.push(']');
        at = span.range.end;
    }
    said.push_str(&text[at..]);
    said
}
