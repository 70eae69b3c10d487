//! Waiting in the kernel, with an end. The only waits of this module: nothing sleeps.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// A moment on the clock that goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// The moment `wait` from now.
    pub fn after(wait: Duration) -> Self {
        Self(now().saturating_add(wait))
    }

    /// How long until then; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(now())
    }

    /// Whether it has come.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Waits until one of `fds` has an event, or for ever without a deadline. Signals do not end the
/// wait.
///
/// Returns whether there is an event.
///
/// # Errors
/// When the kernel refuses to poll, for want of memory.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Deadline>) -> io::Result<bool> {
    loop {
        let timeout = deadline.map(|deadline| {
            Timespec::try_from(deadline.left()).unwrap_or(Timespec {
                tv_sec: i64::from(i32::MAX),
                tv_nsec: 0,
            })
        });
        match poll(fds, timeout.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
