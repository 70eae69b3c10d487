//! Errors as people read them.

use std::error::Error;

/// An error with its causes, on one line: `start the agent: open /x: permission denied`.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
