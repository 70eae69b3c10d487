//! What a next attempt is told of the one that was lost.

use super::fold::Fold;
use super::segment::Segment;

/// The most that it is told, in characters.
pub const CONTINUATION_CHARS_MAX: usize = 4_000;

/// The most of the last words, in characters.
const WORDS_CHARS_MAX: usize = 1_500;

/// The most tools and files that are named.
const NAMES_MAX: usize = 40;

/// The most of one name, in characters.
const NAME_CHARS_MAX: usize = 120;

/// One worktree as a run left it.
#[derive(Clone, Copy, Debug)]
pub struct ChangedTree<'a> {
    /// The repo's name.
    pub repo: &'a str,
    /// Paths in it that differ from where the run began.
    pub files: &'a [String],
}

/// What a run had done when it was lost: its last words, the tools that it called, the files that
/// it changed. Everything here is an agent's and quoted as such by the prompt. Bounded by
/// [`CONTINUATION_CHARS_MAX`].
pub fn continuation_summary(fold: &Fold, trees: &[ChangedTree<'_>]) -> String {
    let mut parts = Vec::new();
    let changed = trees.iter().filter(|tree| !tree.files.is_empty());
    for tree in changed {
        let files = names(tree.files.iter().map(|file| one_line(file)));
        parts.push(format!("Changed in {}: {files}.", one_line(tree.repo)));
    }
    let tools = fold.tools();
    if !tools.is_empty() {
        let calls = tools.iter().map(|(name, calls)| {
            let name = one_line(name);
            match calls {
                1 => name,
                calls => format!("{name} ({calls} times)"),
            }
        });
        parts.push(format!("Tools called: {}.", names(calls)));
    }
    let last_words = fold
        .segments()
        .iter()
        .rev()
        .find_map(|segment| match segment {
            Segment::Text { text } if !text.trim().is_empty() => Some(text.trim()),
            _ => None,
        });
    if let Some(words) = last_words {
        parts.push(format!(
            "Its last words:\n{}",
            end_of(words, WORDS_CHARS_MAX)
        ));
    }
    if parts.is_empty() {
        return "It had said nothing and changed nothing.".to_owned();
    }
    parts
        .join("\n")
        .chars()
        .take(CONTINUATION_CHARS_MAX)
        .collect()
}

/// A list of names, the first of them and how many more.
fn names(all: impl Iterator<Item = String>) -> String {
    let mut named: Vec<_> = all.collect();
    let more = named.len().saturating_sub(NAMES_MAX);
    named.truncate(NAMES_MAX);
    let list = named.join(", ");
    match more {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// A name without line breaks, and not too much of it.
pub fn one_line(name: &str) -> String {
    let flat = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    flat.take(NAME_CHARS_MAX).collect()
}

/// The last characters of a text.
fn end_of(text: &str, chars: usize) -> String {
    let skipped = text.chars().count().saturating_sub(chars);
    let end: String = text.chars().skip(skipped).collect();
    match skipped {
        0 => end,
        _ => format!("[…] {end}"),
    }
}
