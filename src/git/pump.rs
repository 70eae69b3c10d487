//! Serves a child's three pipes and its deadline from one thread.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStdin, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::command::Limits;

/// What is kept of standard error.
const STDERR_BYTES_MAX: usize = 64 << 10;

/// How a child ended. In every case it is reaped and its process group is dead.
pub(super) enum Ended {
    Exited {
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    TimedOut,
    SaidTooMuch,
}

/// A pipe being read, and what came out of it.
struct Drain<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> Drain<R> {
    fn new(pipe: Option<R>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self {
            pipe,
            bytes: Vec::new(),
        })
    }

    /// Takes what is there. Beyond `bytes_max` only the length goes on counting.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Runs `child` to its end. Kills its whole process group when a limit is reached, and when the
/// leader exits before what it started.
pub(super) fn drive(mut child: Child, stdin: &[u8], limits: Limits) -> io::Result<Ended> {
    let group = Pid::from_child(&child);
    let result = pump(&mut child, stdin, limits);
    // The leader is not reaped yet, so its number cannot have passed to a stranger. The group may
    // be empty already.
    let _none_left = kill_process_group(group, Signal::KILL);
    let status = child.wait()?;
    let (stdout, stderr) = match result? {
        Pumped::Closed { stdout, stderr } => (stdout, stderr),
        Pumped::TimedOut => return Ok(Ended::TimedOut),
        Pumped::SaidTooMuch => return Ok(Ended::SaidTooMuch),
    };
    Ok(Ended::Exited {
        status,
        stdout,
        stderr,
    })
}

enum Pumped {
    Closed { stdout: Vec<u8>, stderr: Vec<u8> },
    TimedOut,
    SaidTooMuch,
}

fn pump(child: &mut Child, stdin: &[u8], limits: Limits) -> io::Result<Pumped> {
    let timer = timer(limits)?;
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut stdout = Drain::new(child.stdout.take())?;
    let mut stderr = Drain::new(child.stderr.take())?;
    let mut feed = Feed::new(child.stdin.take(), stdin)?;
    let mut buffer = vec![0; 64 << 10];
    let mut has_exited = false;
    while !has_exited || stdout.pipe.is_some() || stderr.pipe.is_some() {
        let ready = wait(&timer, &pidfd, has_exited, &stdout, &stderr, &feed)?;
        if ready.timer {
            return Ok(Pumped::TimedOut);
        }
        feed.write()?;
        stdout.read(&mut buffer)?;
        stderr.read(&mut buffer)?;
        stderr.bytes.truncate(STDERR_BYTES_MAX);
        if stdout.bytes.len() > limits.output_bytes_max {
            return Ok(Pumped::SaidTooMuch);
        }
        if ready.exit && !has_exited {
            has_exited = true;
            // Whoever the leader left behind holds our pipes open; see `drive` on the number.
            let _none_left = kill_process_group(Pid::from_child(child), Signal::KILL);
        }
    }
    Ok(Pumped::Closed {
        stdout: stdout.bytes,
        stderr: stderr.bytes,
    })
}

/// Standard input being written. Closed at its end, or when the reader goes away.
struct Feed<'a> {
    pipe: Option<ChildStdin>,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    fn new(pipe: Option<ChildStdin>, bytes: &'a [u8]) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { pipe, rest: bytes })
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match pipe.write(self.rest) {
            Ok(count) => self.rest = &self.rest[count..],
            Err(error) if is_again(&error) => {}
            // Its exit code says whether that was wrong.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.rest = &[],
            Err(error) => return Err(error),
        }
        if self.rest.is_empty() {
            self.pipe = None;
        }
        Ok(())
    }
}

struct Ready {
    timer: bool,
    exit: bool,
}

/// Blocks until a pipe, the exit or the timer has news.
fn wait(
    timer: &OwnedFd,
    pidfd: &OwnedFd,
    has_exited: bool,
    stdout: &Drain<impl AsFd>,
    stderr: &Drain<impl AsFd>,
    feed: &Feed<'_>,
) -> io::Result<Ready> {
    fn input(fd: BorrowedFd<'_>) -> PollFd<'_> {
        PollFd::from_borrowed_fd(fd, PollFlags::IN)
    }
    let mut fds = vec![input(timer.as_fd())];
    if !has_exited {
        fds.push(input(pidfd.as_fd()));
    }
    fds.extend(stdout.pipe.iter().map(|pipe| input(pipe.as_fd())));
    fds.extend(stderr.pipe.iter().map(|pipe| input(pipe.as_fd())));
    fds.extend(
        feed.pipe
            .iter()
            .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)),
    );
    match poll(&mut fds, None) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => {
            return Ok(Ready {
                timer: false,
                exit: false,
            });
        }
        Err(errno) => return Err(errno.into()),
    }
    Ok(Ready {
        timer: !fds[0].revents().is_empty(),
        exit: !has_exited && !fds[1].revents().is_empty(),
    })
}

fn timer(limits: Limits) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = Itimerspec {
        it_interval: zero,
        it_value: Timespec {
            tv_sec: i64::try_from(limits.timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limits.timeout.subsec_nanos()),
        },
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(timer)
}
