//! A handle on one process that no reuse of its pid can redirect.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::deadline::{Deadline, poll_until};
use super::identity::{LookError, Stat, boot_id, raw_pid};
use crate::model::process::ProcessIdentity;

/// A process that was, when this was opened, the one with the identity that was asked for.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens the process; none when it is gone, or its pid belongs to another one by now.
    ///
    /// # Errors
    /// When it could not be looked at.
    pub fn open(identity: &ProcessIdentity) -> Result<Option<Self>, LookError> {
        if boot_id()? != identity.boot_id {
            return Ok(None);
        }
        Self::open_this_boot(identity.pid, identity.start_time)
    }

    /// As [`open`](Self::open), for a process that was seen since this machine started.
    pub(super) fn open_this_boot(pid: u32, start_time: u64) -> Result<Option<Self>, LookError> {
        let Some(raw) = raw_pid(pid) else {
            return Ok(None);
        };
        let opened = pidfd_open(raw, PidfdFlags::empty());
        // Looked at after opening. If the start time is right now, it was right at the opening too,
        // or what was opened is an older process that has ended, and signals to it go nowhere.
        if Stat::of(pid)?.is_none_or(|stat| stat.start_time != start_time) {
            return Ok(None);
        }
        match opened {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::SRCH) => Ok(None),
            Err(source) => Err(LookError::Open {
                pid,
                source: source.into(),
            }),
        }
    }

    /// Sends `signal`. Whether the process was still there to get it.
    ///
    /// # Errors
    /// When we may not signal it.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended, all its threads included. Whether it did in `timeout`.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait(&self, timeout: Duration) -> Result<bool, LookError> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll_until(&mut fds, Some(Deadline::after(timeout))).map_err(LookError::Wait)
    }

    /// Whether the process has ended, reaped or not.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn has_ended(&self) -> Result<bool, LookError> {
        self.wait(Duration::ZERO)
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Pidfd> for OwnedFd {
    fn from(process: Pidfd) -> Self {
        process.0
    }
}
