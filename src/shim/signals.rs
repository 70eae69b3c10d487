//! Signals as a descriptor to wait on. What rustix leaves to a libc is called here.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that ask the shim to end its agent.
const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// What a signal says to the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// End the agent.
    End,
    /// A child has ended.
    Child,
}

/// The signals that the shim listens to. They are blocked, and read from here.
pub(super) struct Signals(OwnedFd);

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signals").finish_non_exhaustive()
    }
}

impl Signals {
    /// Blocks them for this process and opens the descriptor.
    #[expect(unsafe_code, reason = "signal masks and signalfd are not in rustix")]
    pub(super) fn open() -> io::Result<Self> {
        let mut listened = empty_set();
        for signal in ENDING.into_iter().chain([libc::SIGCHLD]) {
            // SAFETY: the set is initialised, and the number is a signal's.
            if unsafe { libc::sigaddset(&raw mut listened, signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        set_mask(&listened)?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised and outlives the call; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const listened, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so that nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next notice that has arrived, if any.
    pub(super) fn next(&self) -> io::Result<Option<Notice>> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut record) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // `ssi_signo` is the first field. Of what is listened to, only one is not a request to end.
        let [a, b, c, d, ..] = record;
        let child = u32::from_ne_bytes([a, b, c, d]) == libc::SIGCHLD.cast_unsigned();
        Ok(Some(if child { Notice::Child } else { Notice::End }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives every signal its default action again: what the daemon's starter ignored, agents need not.
/// `SIGPIPE` stays ignored, as the Rust runtime wants it here; it is reset for the agent.
#[expect(unsafe_code, reason = "signal actions are not in rustix")]
pub(super) fn reset_actions() {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGPIPE) {
        // SAFETY: installs no handler. Refused for KILL, STOP and the C library's own signals.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks every signal. Safe between fork and exec.
pub(super) fn unblock_all() -> io::Result<()> {
    set_mask(&empty_set())
}

#[expect(unsafe_code, reason = "signal masks are not in rustix")]
fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, and has no way to fail on a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[expect(unsafe_code, reason = "signal masks are not in rustix")]
fn set_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised, and the old one is not asked for.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}
