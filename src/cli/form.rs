//! The forms that a result may have.

use clap::ValueEnum;

/// Text for people, or JSON for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    Text,
    /// For programs
    Json,
}
