//! One file per subcommand: its arguments, and what it does.

mod select;

pub(crate) mod completions;
pub(crate) mod credentials;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod login;
pub(crate) mod plan;
pub(crate) mod schema;
pub(crate) mod validate;
pub(crate) mod version;
pub(crate) mod volume;

pub(crate) mod budget;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod logs;
pub(crate) mod prompt;
pub(crate) mod runs;
pub(crate) mod trace;
pub(crate) mod transcript;
pub(crate) mod why;

pub(crate) mod dispatch;
pub(crate) mod estop;
pub(crate) mod send;
pub(crate) mod steer;
pub(crate) mod wait;
