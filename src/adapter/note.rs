//! Events that say something about an agent's output rather than repeat it; shared by parsers.

use super::lines::Line;
use crate::model::event::{AgentEvent, UsageReport};
use crate::model::process::Exit;

/// The most of a `debug` event's text that is kept, in bytes.
const DEBUG_BYTES_MAX: usize = 8 * 1024;

/// The most tokens that one metering window may claim. More is a mistake or a lie, and the sums
/// of what is below stay far from the end of every integer that holds them.
const WINDOW_TOKENS_MAX: u64 = 1_000_000_000_000;

/// A `debug` event: where its text comes from, and as much of the text as is kept.
pub(super) fn debug(origin: &str, text: &str) -> AgentEvent {
    let kept = &text[..text.floor_char_boundary(DEBUG_BYTES_MAX)];
    let mark = if kept.len() < text.len() {
        " […]"
    } else {
        ""
    };
    AgentEvent::Debug {
        message: format!("{origin}: {kept}{mark}"),
    }
}

/// That a line was not kept whole.
pub(super) fn dropped(stream: &str, line: &Line) -> Option<AgentEvent> {
    (line.dropped > 0).then(|| AgentEvent::Debug {
        message: format!(
            "a line of {stream} was cut: {} bytes of it were dropped",
            line.dropped
        ),
    })
}

/// What an exit says by itself, as code and words: nothing when it is 0 or unknown.
pub(super) fn exit_failure(exit: Exit) -> Option<(&'static str, String)> {
    match exit {
        Exit {
            signal: Some(signal),
            ..
        } => Some(("signal", format!("the agent was killed by signal {signal}"))),
        Exit {
            code: Some(code), ..
        } if code != 0 => Some(("exit", format!("the agent exited with code {code}"))),
        Exit { .. } => None,
    }
}

/// Whether one metering window can have used this much.
pub(super) fn is_plausible(usage: &UsageReport) -> bool {
    let UsageReport {
        input_tokens,
        output_tokens,
        thought_tokens,
        cached_read_tokens,
        cached_write_tokens,
        cost_micros: _,
    } = *usage;
    [
        input_tokens,
        output_tokens,
        thought_tokens,
        cached_read_tokens,
        cached_write_tokens,
    ]
    .iter()
    .all(|tokens| *tokens <= WINDOW_TOKENS_MAX)
}
