//! Which process, for certain: what a run records before its process may go on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One process for ever: a pid alone comes back, a pid with its start time and boot does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessIdentity {
    /// The process id, in the daemon's pid namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
    /// The kernel's id of this boot, a lower-case UUID.
    pub boot_id: String,
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid, start_time, ..
        } = self;
        write!(f, "pid {pid} (start {start_time})")
    }
}

/// How a process ended. Neither is set when nobody saw it end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exit {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// By `exit(code)`.
    pub const fn with_code(code: i32) -> Self {
        Self {
            code: Some(code),
            signal: None,
        }
    }

    /// By a signal.
    pub const fn by_signal(signal: i32) -> Self {
        Self {
            code: None,
            signal: Some(signal),
        }
    }
}
