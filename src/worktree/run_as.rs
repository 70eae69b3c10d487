//! A thread that makes files as the run user.
//!
//! Only the *file system* identity of the thread changes (`setfsuid`), as a file server's does:
//! what it creates belongs to the run user and its access is checked as the run user's, but for
//! signals and ptrace it stays the daemon's. Full credentials in one thread would let any process
//! of the run user signal that thread, and a fatal signal to a thread ends the daemon.

use std::io;

use rustix::process::geteuid;

use crate::model::worktree::UserIds;

/// Runs `work` in a new thread whose file system identity is `user`, and waits for it. Where the
/// daemon isn't root there is one identity only and nothing changes.
///
/// # Errors
/// `PermissionDenied` when the identity could not be taken on, before `work` ran; else what `work`
/// returned. A panic in `work` goes on here.
pub(super) fn run_as<T: Send, E: From<io::Error> + Send>(
    user: UserIds,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let is_root = geteuid().is_root();
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if is_root {
                become_user(user)?;
            }
            work()
        });
        thread.join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[expect(unsafe_code, reason = "rustix does not wrap setfsuid and setfsgid")]
fn become_user(user: UserIds) -> io::Result<()> {
    // Both calls below answer with the value before them and never fail; asking for -1 changes
    // nothing and so reads the value.
    const READ: u32 = u32::MAX;
    rustix::thread::set_thread_groups(&[])?;
    // SAFETY: the calls take integers, touch no memory and act on this thread alone.
    let (uid, gid) = unsafe {
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
        (libc::setfsuid(READ), libc::setfsgid(READ))
    };
    if uid.cast_unsigned() == user.uid && gid.cast_unsigned() == user.gid {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
