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

/// Forms of a list of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListForm {
    /// A table for people
    Table,
    /// The table with more columns
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// One reference a line
    Name,
}
