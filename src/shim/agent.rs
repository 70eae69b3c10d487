//! Executing the agent's program, and feeding it its prompt.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, chdir, getpid, getppid, set_parent_process_death_signal};

use super::link::{failed, refused};
use super::signals::unblock_all;
use crate::process::control::{Failed, INPUT_BYTES_MAX, InputRefusal, Launch, Stage};

/// The agent's own process, and what is left of its prompt.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) pid: Pid,
    /// None when nothing more will be written.
    pub(super) feed: Option<Feed>,
}

/// Executes the program: its own process group, default signal actions, nothing in its environment
/// or among its descriptors that the order does not name. Once it is executed, nothing fails.
pub(super) fn execute(launch: Launch) -> Result<Agent, Failed> {
    let (stdin, feed) = pipe_with(PipeFlags::CLOEXEC)
        .and_then(|(stdin, feed)| {
            // Our end alone: the agent's blocks as usual.
            fcntl_setfl(&feed, fcntl_getfl(&feed)? | OFlags::NONBLOCK)?;
            Ok((stdin, feed))
        })
        .map_err(|error| failed(Stage::Exec, "make a pipe for the prompt", &error.into()))?;
    chdir(&launch.cwd)
        .map_err(|error| failed(Stage::WorkingDirectory, "enter it", &error.into()))?;
    let spawned = spawn(&launch, stdin);
    // So that the shim keeps no worktree busy. The root can always be entered.
    chdir("/").ok();
    Ok(Agent {
        pid: spawned?,
        feed: Some(Feed {
            pipe: feed.into(),
            bytes: launch.stdin.into_bytes(),
            written: 0,
            stays_open: launch.keeps_stdin,
            ends: VecDeque::new(),
        }),
    })
}

#[expect(
    clippy::disallowed_methods,
    unsafe_code,
    reason = "the one place where an agent's program is executed, after its last preparations"
)]
fn spawn(launch: &Launch, stdin: OwnedFd) -> Result<Pid, Failed> {
    let Some((program, arguments)) = launch.argv.split_first() else {
        return Err(refused(Stage::Exec, "there is no program"));
    };
    // Another one would be looked for in directories that the agent's environment names.
    if !program.starts_with('/') {
        return Err(refused(
            Stage::Exec,
            format!("{program:?} is no absolute path"),
        ));
    }
    // Such a name would come out as another variable.
    if let Some(name) = launch
        .env
        .keys()
        .find(|name| name.is_empty() || name.contains('='))
    {
        return Err(refused(
            Stage::Exec,
            format!("{name:?} is no name for a variable"),
        ));
    }
    let shim = getpid();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&launch.env)
        .process_group(0)
        .stdin(stdin);
    let last_preparations = move || {
        unblock_all()?;
        // Should somebody kill the shim, the agent goes with it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(shim) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: the closure makes four system calls and touches no memory but its own stack; the
    // process that it was forked from has one thread, so that no lock can be held.
    unsafe { command.pre_exec(last_preparations) };
    let child = command
        .spawn()
        .map_err(|error| failed(Stage::Exec, &format!("execute {program}"), &error))?;
    Ok(Pid::from_child(&child))
}

/// What the agent has not read yet of its standard input. It may never read it.
#[derive(Debug)]
pub(super) struct Feed {
    pipe: File,
    bytes: Vec<u8>,
    /// How many of them the pipe has taken.
    written: usize,
    /// Whether more may come.
    stays_open: bool,
    /// Where each of the inputs in it ends; what the agent was launched with is none.
    ends: VecDeque<usize>,
}

/// Whether there is more to feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// The pipe is full, or more may come.
    Partly,
    /// All is written that ever will be: close it.
    Wholly,
    /// Nobody will read the rest: close it.
    Broken,
}

impl Feed {
    /// Writes what the pipe takes.
    pub(super) fn write(&mut self) -> Fed {
        loop {
            let rest = self.bytes.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                // What was long is not kept for what may come.
                (self.bytes, self.written, self.ends) = (Vec::new(), 0, VecDeque::new());
                return match self.stays_open {
                    true => Fed::Partly,
                    false => Fed::Wholly,
                };
            }
            match self.pipe.write(rest) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fed::Partly,
                Err(_) => return Fed::Broken,
            }
        }
    }

    /// Takes more, whole or not at all.
    pub(super) fn add(&mut self, text: &str) -> Result<(), InputRefusal> {
        if !self.stays_open {
            return Err(InputRefusal::Closed);
        }
        self.bytes.drain(..self.written);
        self.ends.retain(|end| *end > self.written);
        self.ends.iter_mut().for_each(|end| *end -= self.written);
        self.written = 0;
        if self.bytes.len() + text.len() > INPUT_BYTES_MAX {
            return Err(InputRefusal::Full);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        self.ends.push_back(self.bytes.len());
        Ok(())
    }

    /// Takes no more; what it has is still written.
    pub(super) fn close(&mut self) {
        self.stays_open = false;
    }

    /// How many of the inputs that were taken are not all written.
    pub(super) fn inputs(&self) -> u32 {
        let left = self.ends.iter().filter(|end| **end > self.written);
        u32::try_from(left.count()).unwrap_or(u32::MAX)
    }

    /// Whether something waits for room in the pipe.
    pub(super) fn has_more(&self) -> bool {
        self.written < self.bytes.len()
    }
}

impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
