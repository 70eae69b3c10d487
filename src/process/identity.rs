//! Who a process is, read from `/proc`.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use thiserror::Error;

use super::pidfd::Pidfd;
use crate::model::process::ProcessIdentity;

/// Why nothing can be said about a process.
#[derive(Debug, Error)]
pub enum LookError {
    /// The kernel's id of this boot could not be read.
    #[error("read the boot id")]
    BootId(#[source] io::Error),
    /// A file below `/proc` could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A `stat` file does not look like one.
    #[error("make sense of /proc/{pid}/stat")]
    Parse {
        /// Whose.
        pid: u32,
    },
    /// The process exists, and `/proc` does not show it (not mounted, or `hidepid`).
    #[error("find process {pid} in /proc, although it exists")]
    Hidden {
        /// Which.
        pid: u32,
    },
    /// No handle on the process could be had.
    #[error("open a handle on process {pid}")]
    Open {
        /// Which.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused to wait.
    #[error("wait for processes")]
    Wait(#[source] io::Error),
}

/// Whether a process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It runs, or is stopped.
    Alive,
    /// It has ended: the pid is free, or somebody else's, or waits to be reaped.
    Gone,
    /// It could not be looked at.
    Unknown,
}

/// The kernel's id of this boot, a lower-case UUID.
///
/// # Errors
/// When `/proc` is not readable.
pub fn boot_id() -> Result<String, LookError> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim_end().to_owned())
        .map_err(LookError::BootId)
}

/// The identity of the process that has `pid` now; none when there is no such process.
///
/// # Errors
/// When it could not be looked at.
pub fn identify(pid: u32) -> Result<Option<ProcessIdentity>, LookError> {
    let Some(stat) = Stat::of(pid)? else {
        return Ok(None);
    };
    Ok(Some(ProcessIdentity {
        pid,
        start_time: stat.start_time,
        boot_id: boot_id()?,
    }))
}

/// Whether this very process is there.
pub fn is_alive(identity: &ProcessIdentity) -> Presence {
    let ended = Pidfd::open(identity).and_then(|open| match open {
        Some(process) => process.has_ended(),
        None => Ok(true),
    });
    match ended {
        Ok(true) => Presence::Gone,
        Ok(false) => Presence::Alive,
        Err(_) => Presence::Unknown,
    }
}

/// `pid` as the kernel takes it; none for a number that no process can have.
pub(super) fn raw_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// What we read of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: u32,
    pub(super) start_time: u64,
    pub(super) ended: bool,
}

impl Stat {
    /// Reads the process that has `pid` now; none when there is no such process.
    pub(super) fn of(pid: u32) -> Result<Option<Self>, LookError> {
        let Some(raw) = raw_pid(pid) else {
            return Ok(None);
        };
        let path = PathBuf::from(format!("/proc/{pid}/stat"));
        // A pid that is reused between two looks seems hidden once, but not again and again.
        for _ in 0..3 {
            match fs::read(&path) {
                Ok(text) => return Self::parse(&text).map(Some).ok_or(LookError::Parse { pid }),
                // Absent from `/proc` is only gone if the kernel says so too.
                Err(error) if is_absent(&error) => {
                    if test_kill_process(raw) == Err(Errno::SRCH) {
                        return Ok(None);
                    }
                }
                Err(source) => return Err(LookError::Read { path, source }),
            }
        }
        Err(LookError::Hidden { pid })
    }

    /// Parses a `stat` line. The command in parentheses may hold anything, also `)` and newlines.
    fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(text.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // `fields` begins at field 3 of proc_pid_stat(5).
        let field = |number: usize| fields.get(number - 3).copied();
        let state = field(3)?;
        let threads: u64 = field(20)?.parse().ok()?;
        Some(Self {
            parent: field(4)?.parse().ok()?,
            start_time: field(22)?.parse().ok()?,
            // A first thread that has exited looks like a zombie while the others work on.
            ended: matches!(state, "Z" | "X" | "x") && threads <= 1,
        })
    }
}

/// Whether reading a file of a process failed because there is no such process.
pub(super) fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &str, state: &str, threads: u32) -> Vec<u8> {
        format!(
            "42 ({command}) {state} 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 \
             98765 1000 200 18446744073709551615 0 0\n"
        )
        .into_bytes()
    }

    #[test]
    fn stat_lines() {
        let stat = Stat {
            parent: 7,
            start_time: 98_765,
            ended: false,
        };
        let ended = Stat {
            ended: true,
            ..stat
        };
        let cases = [
            (line("sh", "S", 1), Some(stat)),
            (line("a) R 1 (b", "R", 3), Some(stat)),
            (line("two\nlines", "T", 1), Some(stat)),
            (line("sh", "Z", 1), Some(ended)),
            (line("first thread gone", "Z", 2), Some(stat)),
            (b"".to_vec(), None),
            (b"42 (sh".to_vec(), None),
            (b"42 (sh) S 7".to_vec(), None),
            (
                b"42 (sh) S x 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 5".to_vec(),
                None,
            ),
            (b"42 (sh) \xff\xfe".to_vec(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Stat::parse(&text),
                expected,
                "{}",
                String::from_utf8_lossy(&text)
            );
        }
    }

    #[test]
    fn we_are_alive_and_impostors_are_gone() {
        let own = identify(std::process::id()).unwrap().expect("we exist");
        assert_eq!(is_alive(&own), Presence::Alive);
        let impostors = [
            ProcessIdentity {
                start_time: own.start_time + 1,
                ..own.clone()
            },
            ProcessIdentity {
                boot_id: "00000000-0000-0000-0000-000000000000".to_owned(),
                ..own.clone()
            },
            ProcessIdentity {
                pid: 0,
                ..own.clone()
            },
            ProcessIdentity {
                pid: u32::MAX,
                ..own.clone()
            },
            // Above the largest pid that Linux can be set to (2^22).
            ProcessIdentity {
                pid: 1 << 23,
                ..own
            },
        ];
        for impostor in impostors {
            assert_eq!(is_alive(&impostor), Presence::Gone, "{impostor:?}");
        }
    }
}
