//! What the workspace remembers of the matter, as much of it as fits.

use crate::model::tool::MemoryFact;

use super::text::one_line;

/// The most facts that a prompt shows.
pub const FACTS_MAX: usize = 5;
/// The most characters that the layer has.
pub const FACTS_CHARS_MAX: usize = 1_200;
/// The most characters of one fact's text.
const FACT_CHARS_MAX: usize = 200;
/// A task of fewer characters says too little to be matched with anything.
pub const TASK_CHARS_MIN: usize = 20;

/// The layer: the best facts whose lines fit together, in the order given. What agents wrote is
/// shown as what it is, one line each. None when there is nothing to show, or nothing to match.
pub(super) fn layer(facts: &[MemoryFact], task: &str) -> Option<String> {
    if facts.is_empty() || task.trim().chars().count() < TASK_CHARS_MIN {
        return None;
    }
    let mut text =
        "What agents of this workspace noted earlier. It may be out of date; check it.".to_owned();
    let mut left = FACTS_CHARS_MAX - text.chars().count();
    let mut is_bare = true;
    for fact in facts.iter().take(FACTS_MAX) {
        let line = format!("\n- {}: {}", snippet(&fact.key), snippet(&fact.text));
        let Some(rest) = left.checked_sub(line.chars().count()) else {
            break;
        };
        left = rest;
        text.push_str(&line);
        is_bare = false;
    }
    (!is_bare).then_some(text)
}

/// The beginning of a text, as one line.
fn snippet(text: &str) -> String {
    let mut chars = text.trim().chars();
    let mut start: String = chars.by_ref().take(FACT_CHARS_MAX - 1).collect();
    if chars.next().is_some() {
        start.push('…');
    }
    one_line(&start)
}
