//! Secrets out of what a run says, once, where its events come in: before the run log, the
//! database, messages and error chains see them.
//!
//! Three layers. *Exact values*: everything that was leased for the run, its own tokens included,
//! in each encoding that a shell one-liner produces. *Shapes*: what
//! looks like a credential of a known kind, whoever's it is. *Entropy*: only a flag, since a hash
//! looks like a key. A text is judged as it stands and with its percent and JSON escapes undone,
//! so that no mixture of escapes hides a value.
//!
//! Findings that overlap are replaced together by one marker `[redacted:NAME]`, so that the rest
//! of a second value isn't left standing beside the first.
//!
//! A stream gives what the whole text would have given, however it was cut: a tail that may yet
//! become a finding is held back, at most [`HOLD_MAX`] bytes.
//!
//! What no redactor sees: a value that the agent itself takes apart or encrypts. That is why model
//! and forge secrets stay outside a run.
//!
//! Start with [`Redactor`]; `forms` lists the encodings, `shape` the kinds, `view` the escapes.

mod entropy;
mod event;
mod forms;
mod redactor;
mod shape;
mod stream;
mod view;

#[cfg(test)]
mod tests;

pub use entropy::suspects;
pub use event::EventStream;
pub use redactor::{Known, Redactor, VALUE_MIN};
pub use stream::{HOLD_MAX, Stream};
