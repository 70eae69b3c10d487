//! The command line: the one place that talks to a person at a terminal.
//!
//! Results go to standard output, talk goes to standard error, and the exit code says how it went
//! ([`error::Exit`], [`error::Kind`]). `validate`, `explain`, `plan`, `schema` and `init` need no
//! daemon, no database and no network. What acts on a fleet asks the daemon; what only looks asks
//! the daemon too, and reads the database itself when no daemon answers.
//!
//! Start with [`args`] (what may be typed) and [`mod@run`] (what becomes of it), then read one file
//! of [`commands`].

mod adapters;
mod args;
mod client;
mod commands;
mod committed;
mod error;
mod files;
mod form;
mod host;
mod reader;
mod run;
mod secret;
mod selector;
mod show;
mod surroundings;
mod table;
mod ui;

pub use run::run;
