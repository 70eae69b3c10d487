//! The backend without a sandbox: a shim starts the agent as the run's user, and watches it.
//!
//! The daemon's side. Blocking, with a deadline on every answer; what runs afterwards is handed out
//! as descriptors ([`Running`]) for the caller's event loop.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::Serialize;
use thiserror::Error;

use super::{LaunchPlan, Program, RunIdentity};
use crate::model::process::ProcessIdentity;
use crate::process::cgroup::{CgroupError, RunCgroup};
use crate::process::control::{
    self, Attestation, ControlError, Decoder, Failed, Launch, Order, Prepare, Report,
};
use crate::process::deadline::{Deadline, poll_until};
use crate::process::{LookError, Pidfd, identify};

/// How long a shim may take for one answer. It does a handful of system calls; this is for a machine
/// that swaps.
const ANSWER: Duration = Duration::from_secs(20);

/// Why an agent was not launched. Whatever was started for it is ending; [`stop`] confirms that, and
/// removes the run's control group.
///
/// [`stop`]: crate::process::stop()
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The shim's program could not be executed.
    #[error("start the shim {}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The shim is gone again, or can't be looked at.
    #[error("identify the shim")]
    Identify(#[source] Option<LookError>),
    /// The shim says that it is somebody else than the process that we started.
    #[error("trust the shim: {expected} said that it was {said}")]
    Impostor {
        /// Whom we started.
        expected: ProcessIdentity,
        /// Who it says that it is.
        said: ProcessIdentity,
    },
    /// The control group could not be made.
    #[error("give the run a control group")]
    Cgroup(#[from] CgroupError),
    /// The shim could not be talked to.
    #[error("talk to the shim")]
    Talk(#[source] io::Error),
    /// The shim did not answer in time.
    #[error("get an answer from the shim in {} s", ANSWER.as_secs())]
    Silent,
    /// The shim ended without a word.
    #[error("get an answer from the shim, which has ended")]
    Ended,
    /// The shim does not speak our language, or the message can't be sent.
    #[error("understand the shim")]
    Control(#[from] ControlError),
    /// The shim answered something else than was asked.
    #[error("understand the shim, which should be {0}")]
    OutOfOrder(&'static str),
    /// The shim holds privileges that it should have given up.
    #[error("trust the shim, whose attestation is {0:?}")]
    NotConfined(Attestation),
    /// The shim gave up.
    #[error("launch the agent")]
    Refused(#[source] Failed),
}

/// A shim's process, and our ends of its descriptors.
///
/// Dropping it before an agent was launched kills the shim and reaps it. Dropping it afterwards
/// leaves both alone: it is the end of the control socket that has the shim end the agent.
#[derive(Debug)]
pub struct Shim {
    identity: ProcessIdentity,
    handle: Pidfd,
    /// None only while this is dropped.
    child: Option<Child>,
    launched: Launched,
}

/// Shims that were let go of while an agent ran. They end by themselves; the next start reaps them.
static LET_GO: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn reap_let_go() {
    let mut children = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launched {
    /// The shim is alone: it can be killed with nothing left behind.
    Nothing,
    /// An agent may run.
    Agent,
}

impl Shim {
    /// Who it is.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Reaps the shim if it has ended, and returns how. It is readable (as a descriptor) from then
    /// on.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn try_reap(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.as_mut().map_or(Ok(None), Child::try_wait)
    }

    /// Waits until the shim has ended, at most for `timeout`, and reaps it. None when time was up.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn reap(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        poll_until(&mut fds, Some(Deadline::after(timeout)))?;
        self.try_reap()
    }
}

impl AsFd for Shim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        match self.launched {
            Launched::Nothing => end(&mut child),
            Launched::Agent => LET_GO
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(child),
        }
    }
}

/// Kills and reaps a shim that is alone. As long as it is not reaped, its pid is its own.
fn end(child: &mut Child) {
    // Both fail only when it was reaped.
    drop(child.kill());
    drop(child.wait());
}

/// The daemon's end of a conversation with a shim.
#[derive(Debug)]
struct Talk {
    socket: UnixStream,
    decoder: Decoder,
}

impl Talk {
    fn tell(&mut self, order: &impl Serialize) -> Result<(), LaunchError> {
        let line = control::encode(order)?;
        let deadline = Deadline::after(ANSWER);
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
            if !poll_until(&mut fds, Some(deadline)).map_err(LaunchError::Talk)? {
                return Err(LaunchError::Silent);
            }
            match self.socket.write(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if is_retry(&error) => {}
                // Its last words, if there are any, say more than the broken pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(LaunchError::Talk(error)),
            }
        }
        Ok(())
    }

    /// The next report; a failure is an error.
    fn hear(&mut self) -> Result<Report, LaunchError> {
        let deadline = Deadline::after(ANSWER);
        let mut piece = [0; 4096];
        loop {
            match self.decoder.message::<Report>()? {
                Some(Report::Failed(failed)) => return Err(LaunchError::Refused(failed)),
                Some(report) => return Ok(report),
                None => {}
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            if !poll_until(&mut fds, Some(deadline)).map_err(LaunchError::Talk)? {
                return Err(LaunchError::Silent);
            }
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(LaunchError::Ended),
                Ok(read) => self.decoder.push(piece.get(..read).unwrap_or_default()),
                Err(error) if is_retry(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(LaunchError::Ended);
                }
                Err(error) => return Err(LaunchError::Talk(error)),
            }
        }
    }
}

fn is_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// A shim that has done nothing but say who it is. Store its identity, then go on.
#[derive(Debug)]
#[must_use = "dropping it ends the shim"]
pub struct Started {
    talk: Talk,
    shim: Shim,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// Starts a shim from `program`, a homeostat binary, with an empty environment and no descriptors
/// but its three: the control socket as standard input, and pipes for what the agent prints.
///
/// # Errors
/// When it does not start, or does not say that it is the process that was started.
pub fn start(program: &Path) -> Result<Started, LaunchError> {
    reap_let_go();
    let (ours, theirs) = UnixStream::pair().map_err(LaunchError::Talk)?;
    ours.set_nonblocking(true).map_err(LaunchError::Talk)?;
    let mut child = spawn(program, theirs).map_err(|source| LaunchError::Spawn {
        program: program.to_owned(),
        source,
    })?;
    let outputs = (child.stdout.take(), child.stderr.take());
    let shim = identified(child)?;
    let (Some(stdout), Some(stderr)) = outputs else {
        return Err(LaunchError::Talk(io::ErrorKind::NotConnected.into()));
    };
    let stdout = unblocked(stdout.into()).map_err(LaunchError::Talk)?;
    let stderr = unblocked(stderr.into()).map_err(LaunchError::Talk)?;
    let mut started = Started {
        talk: Talk {
            socket: ours,
            decoder: Decoder::default(),
        },
        shim,
        stdout,
        stderr,
    };
    let Report::Started(said) = started.talk.hear()? else {
        return Err(LaunchError::OutOfOrder("started"));
    };
    if said.identity != started.shim.identity {
        return Err(LaunchError::Impostor {
            expected: started.shim.identity.clone(),
            said: said.identity,
        });
    }
    Ok(started)
}

/// Our end of a pipe; the agent's end goes on to block.
fn unblocked(pipe: OwnedFd) -> io::Result<OwnedFd> {
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
    Ok(pipe)
}

/// The control socket goes in as standard input: the one descriptor that can be handed over without
/// running code between fork and exec.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that starts a shim; every agent is started by one"
)]
fn spawn(program: &Path, control: UnixStream) -> io::Result<Child> {
    Command::new(program)
        .args(["shim", "run"])
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Finds out who our child is, while it is ours to reap and its pid can't be another's.
fn identified(mut child: Child) -> Result<Shim, LaunchError> {
    let found = identify(child.id()).and_then(|identity| {
        let Some(identity) = identity else {
            return Ok(None);
        };
        Ok(Pidfd::open(&identity)?.map(|handle| (identity, handle)))
    });
    match found {
        Ok(Some((identity, handle))) => Ok(Shim {
            identity,
            handle,
            child: Some(child),
            launched: Launched::Nothing,
        }),
        Ok(None) | Err(_) => {
            end(&mut child);
            Err(LaunchError::Identify(found.err()))
        }
    }
}

impl Started {
    /// Who the shim is; stored before the next step.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.shim.identity
    }

    /// Has the shim join its control group and give up its privileges, and checks its attestation
    /// against `plan`.
    ///
    /// # Errors
    /// When that did not all happen.
    pub fn prepare(mut self, plan: &LaunchPlan) -> Result<Attested, LaunchError> {
        let cgroup = plan
            .cgroup
            .as_ref()
            .map(|path| RunCgroup::stored(path, plan.run))
            .transpose()?;
        if let Some(cgroup) = &cgroup {
            cgroup.create()?;
        }
        self.talk.tell(&Order::Prepare(Prepare {
            version: control::VERSION,
            uid: plan.identity.uid(),
            gid: plan.identity.gid(),
            cgroup: plan.cgroup.clone(),
            grace_ms: u64::try_from(plan.grace.as_millis()).unwrap_or(u64::MAX),
        }))?;
        let Report::Attested(attestation) = self.talk.hear()? else {
            return Err(LaunchError::OutOfOrder("attested"));
        };
        if !confines(&attestation, plan.identity) {
            return Err(LaunchError::NotConfined(attestation));
        }
        Ok(Attested {
            started: self,
            attestation,
        })
    }
}

/// Whether the attestation is what `identity` calls for. Only root can leave its groups.
fn confines(attestation: &Attestation, identity: RunIdentity) -> bool {
    let switched = rustix::process::geteuid().is_root();
    attestation.uid == identity.uid()
        && attestation.gid == identity.gid()
        && attestation.no_new_privs
        && attestation.capabilities == 0
        && (!switched || attestation.groups.is_empty())
}

/// A shim that can do no more than the run may. Now secrets may be minted.
#[derive(Debug)]
#[must_use = "dropping it ends the shim"]
pub struct Attested {
    started: Started,
    attestation: Attestation,
}

impl Attested {
    /// What the kernel says of it; for the run's record.
    pub fn attestation(&self) -> &Attestation {
        &self.attestation
    }

    /// Executes the agent's program.
    ///
    /// # Errors
    /// When it can't be executed.
    pub fn launch(self, program: Program) -> Result<Running, LaunchError> {
        let Started {
            mut talk,
            mut shim,
            stdout,
            stderr,
        } = self.started;
        let Program {
            argv,
            env,
            cwd,
            stdin,
            keeps_stdin,
        } = program;
        shim.launched = Launched::Agent;
        talk.tell(&Order::Launch(Launch {
            argv,
            env,
            cwd,
            stdin,
            keeps_stdin,
        }))?;
        let running = match talk.hear() {
            Ok(Report::Running(running)) => running,
            Ok(_) => return Err(LaunchError::OutOfOrder("running")),
            Err(error) => {
                if matches!(error, LaunchError::Refused(_)) {
                    // Nothing was executed.
                    shim.launched = Launched::Nothing;
                }
                return Err(error);
            }
        };
        Ok(Running {
            shim,
            child_pid: running.child_pid,
            control: talk.socket,
            decoder: talk.decoder,
            stdout,
            stderr,
        })
    }
}

/// A running agent, in parts for the caller's event loop. All descriptors are non-blocking.
///
/// The shim sends [`Report::Exited`] when nothing of the agent is left, and ends; that closes the
/// outputs too. If it ends without that report, somebody has killed it, and only
/// [`stop`](crate::process::stop()) says what is left.
#[derive(Debug)]
#[must_use = "dropping it ends the agent"]
pub struct Running {
    /// The shim: reap it when it is readable.
    pub shim: Shim,
    /// The agent's own pid, for people.
    pub child_pid: u32,
    /// The control socket. Closing it ends the agent.
    pub control: UnixStream,
    /// What has arrived on it so far; push on.
    pub decoder: Decoder,
    /// The agent's standard output.
    pub stdout: OwnedFd,
    /// The agent's standard error output.
    pub stderr: OwnedFd,
}
