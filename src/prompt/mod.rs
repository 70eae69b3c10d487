//! What a run is told: the prompt as labelled layers, and the same facts as environment variables.
//!
//! Pure, and blind to everything that the run does not have: a layer never names a tool that the
//! run could not call. Start with [`assemble`]; [`wake_environment`] and [`git_environment`] are
//! its twins for the environment.

mod history;
mod identity;
mod layers;
mod memory;
mod text;
mod tools;
mod wake;

pub use history::{HISTORY_CHARS_MAX, HistoryMessage};
pub use identity::{coauthor_trailer, git_environment};
pub use layers::{Label, Layer, Prompt, PromptInput, assemble};
pub use memory::{FACTS_CHARS_MAX, FACTS_MAX, TASK_CHARS_MIN};
pub use wake::{aside, wake_environment};
#[cfg(test)]
mod tests;
