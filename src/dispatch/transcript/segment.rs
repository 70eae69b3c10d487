//! The pieces of a transcript, as they are stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of a transcript. The JSON form is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Segment {
    /// Thinking, one stretch of it.
    Reasoning {
        /// The words.
        text: String,
    },
    /// Visible text, one stretch of it.
    Text {
        /// The words. Empty when they only repeated a tool's arguments.
        text: String,
    },
    /// One tool call and its result.
    Tool {
        /// The call's id, as the agent gave it.
        id: String,
        /// The tool; none for a result that no call was seen for.
        name: Option<String>,
        /// The arguments; when they were too long, the beginning of their JSON as a string.
        args: Value,
        /// What it said, partial results included.
        output: String,
        /// How many bytes of the output were left out.
        #[serde(default, skip_serializing_if = "is_zero")]
        output_dropped: u64,
        /// How it went.
        state: ToolState,
    },
    /// Something failed.
    Error {
        /// What.
        message: String,
        /// The adapter's code for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// The operating system denied something.
    Violation {
        /// What was attempted.
        operation: String,
        /// Who noticed.
        source: String,
    },
    /// Here the bounds were reached: something of what came after is missing.
    Truncated {
        /// How many bytes, in all.
        bytes: u64,
    },
}

/// How far a tool call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolState {
    /// No final result yet.
    Running,
    /// It answered.
    Ok,
    /// It failed.
    Error,
    /// The run ended first.
    Interrupted,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
