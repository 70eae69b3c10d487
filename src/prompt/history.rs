//! What was said in the conversation before, as much of it as fits.

use jiff::Timestamp;

use crate::model::id::MessageId;
use crate::model::tool::Verb;

use super::layers::PromptInput;
use super::text::{one_line, quote};
use super::tools::has;

/// The most that the conversation's layer quotes, in characters (design §8.5).
pub const HISTORY_CHARS_MAX: usize = 50_000;

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryMessage {
    /// Its id.
    pub id: MessageId,
    /// Who said it, in words.
    pub author: String,
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// The layer: the newest of `messages` whose quotations fit together, oldest first, and how many are
/// left out. The first that does not fit ends it, so that what is shown has no gap.
/// `messages` is ordered from oldest to newest. None when there is nothing to show. Of the run's
/// tools, the one that reads the rest is named if it is there.
pub(super) fn layer(input: &PromptInput<'_>, messages: &[&HistoryMessage]) -> Option<String> {
    let PromptInput {
        older,
        tools,
        is_resumed,
        ..
    } = *input;
    if messages.is_empty() && older == 0 {
        return None;
    }
    let mut quoted = Vec::new();
    let mut left = HISTORY_CHARS_MAX;
    for message in messages.iter().rev() {
        let rendered = render(message);
        // The blank line between two messages counts as well.
        let Some(rest) = left.checked_sub(rendered.chars().count() + 2) else {
            break;
        };
        left = rest;
        quoted.push(rendered);
    }
    let omitted = older + (messages.len() - quoted.len());
    if omitted > 0 {
        let noun = if omitted == 1 {
            "message is"
        } else {
            "messages are"
        };
        let remedy = if has(tools, Verb::GetMessages) {
            format!("; call `{}` to read on", Verb::GetMessages)
        } else {
            String::new()
        };
        quoted.push(format!("{omitted} older {noun} left out{remedy}."));
    }
    if is_resumed {
        quoted.push("Since you were here last, others said this.".to_owned());
    }
    quoted.reverse();
    Some(quoted.join("\n\n"))
}

fn render(message: &HistoryMessage) -> String {
    format!(
        "From {}, {}:\n{}",
        one_line(&message.author),
        message.at,
        quote(&message.text)
    )
}
