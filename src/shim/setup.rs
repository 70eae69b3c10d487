//! What the shim does before it says a word: leave everything of the daemon's behind.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, sockopt::socket_domain};
use rustix::process::{
    DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior, setsid,
};
use rustix::stdio::{dup2_stdin, stdin};

use super::signals::{self, Signals};

/// Takes the control socket, which came as standard input, and closes every descriptor above
/// standard error: whatever the daemon failed to mark is not the agent's to have.
///
/// None when standard input is no such socket: a person has typed the command.
pub(super) fn take_control() -> io::Result<Option<UnixStream>> {
    if socket_domain(stdin()).ok() != Some(AddressFamily::UNIX) {
        return Ok(None);
    }
    close_above_stderr()?;
    let control: OwnedFd = fcntl_dupfd_cloexec(stdin(), 3)?;
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    let control = UnixStream::from(control);
    control.set_nonblocking(true)?;
    Ok(Some(control))
}

#[expect(unsafe_code, reason = "close_range is not in rustix")]
fn close_above_stderr() -> io::Result<()> {
    // SAFETY: this is a single-threaded process at its start, which owns no descriptor above
    // standard error yet: none of ours is closed behind the back of its owner.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Becomes a process that owns what it starts: its own session without a terminal, adopter of every
/// orphan below it, and closed to debuggers of the same user.
pub(super) fn become_owner() -> io::Result<Signals> {
    signals::reset_actions();
    let signals = Signals::open()?;
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    close_to_debuggers()?;
    rustix::process::chdir("/")?;
    Ok(signals)
}

/// The agent has the same user, and the shim's memory holds the prompt and an open line to the
/// daemon. A change of user undoes this. The agent itself is open again, from its exec on.
pub(super) fn close_to_debuggers() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
