//! Settings of this host: where state lies, where the source is, how worktrees are made.
//!
//! Everything that an operator may want reviewed is a resource in the source; what remains is
//! bound to one host and comes from, strongest first, flags, `HOMEOSTAT_CONFIG_*` variables and
//! `homeostat.yaml`. A setting has one name in three spellings (`--data-dir`,
//! `HOMEOSTAT_CONFIG_DATA_DIR`, `dataDir`). Unknown names are errors: a setting that nothing
//! reads would silently not be in force.
//!
//! This module is the only one that reads the process's environment ([`Environment`]).
//! Start with [`setting`] (the list), then [`resolve`] (what becomes of it).

mod environment;
mod file;
pub mod resolve;
pub mod setting;

pub use environment::Environment;
pub use resolve::{
    Client, ConfigError, Layers, Log, LogFormat, LogLevel, Resolved, SandboxSwitch, SourceSetting,
};
pub use setting::{Draft, Setting};
