//! A run's events folded into what people read: reasoning, text, tools, errors and violations.
//!
//! Pure: pushing the same events gives the same transcript, so that one can be made again from
//! the stored events. Bounded: what an agent prints never decides how much is kept.

mod continuation;
mod fold;
mod segment;

pub use continuation::{CONTINUATION_CHARS_MAX, ChangedTree, continuation_summary, one_line};
pub use fold::{Fold, REST_BYTES_MAX, ReportedError, TEXT_BYTES_MAX, TOOL_BYTES_MAX};
pub use segment::{Segment, ToolState};

#[cfg(test)]
mod tests;
