//! What the program reads on its standard input: one JSON object a line.

use serde_json::{Value, json};

/// A message of the user. While the agent works it is taken up at the next turn, between two tool
/// calls; otherwise it begins one.
pub(super) fn message(text: &str) -> String {
    line(&json!({
        "type": "user",
        "message": {
            "role": "user",
            "content": [{ "type": "text", "text": text }],
        },
    }))
}

/// Drops what the agent does, a running command included. It answers with a `control_response` of
/// this id, ends its turn with a result that says so, and waits for a message.
pub(super) fn interrupt(id: &str) -> String {
    line(&json!({
        "type": "control_request",
        "request_id": id,
        "request": { "subtype": "interrupt" },
    }))
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
