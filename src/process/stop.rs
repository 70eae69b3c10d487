//! Ending a run for certain.
//!
//! The polite way first: the shim is asked, passes it on, and kills what is left after its grace.
//! Whatever is then still there is killed from here, again and again until two looks in a row find
//! nothing (one look is not an instant: a process can slip past it by forking). Only that is
//! *confirmed*. Nothing is signalled whose identity was not checked through the handle that takes
//! the signal, and never the calling process, even if it belongs to the run.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use thiserror::Error;

use super::cgroup::{CgroupError, RunCgroup};
use super::deadline::{Deadline, poll_until};
use super::identity::{LookError, boot_id, identify};
use super::pidfd::Pidfd;
use super::table::{descendants, sweep_since};
use crate::model::id::RunId;
use crate::model::process::ProcessIdentity;

/// What the shim gets on top of the grace, to kill, reap and report by itself.
const SETTLE: Duration = Duration::from_secs(1);
/// How long one round waits for what it has killed.
const ROUND: Duration = Duration::from_millis(500);
/// How long killing goes on before it is given up.
const FORCE: Duration = Duration::from_secs(10);

/// A run, by what its record holds. It needs no daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopTarget {
    /// The run's shim; none when the record was written and no identity stored, so that nothing but
    /// a shim can have been started.
    pub identity: Option<ProcessIdentity>,
    /// The run, whose id its processes carry in their environment.
    pub run: RunId,
    /// The run's control group, if it has one.
    pub cgroup: Option<PathBuf>,
}

/// A run of which nothing is left.
#[must_use = "it says how the run ended"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Whether the shim was there when the stop began.
    pub was_running: bool,
    /// The processes that had to be killed from outside the shim, in the order of killing.
    pub killed: Vec<ProcessIdentity>,
}

/// Why the end of a run is not confirmed.
#[derive(Debug, Error)]
pub enum StopError {
    /// The identity is the calling process's own.
    #[error("stop {0}, which is this very process")]
    Ourselves(ProcessIdentity),
    /// Processes could not be looked at.
    #[error("look for what is left of the run")]
    Look(#[from] LookError),
    /// The run's control group could not be used.
    #[error("end the run's control group")]
    Cgroup(#[from] CgroupError),
    /// These processes outlived everything that was tried.
    #[error("end the run: {} still alive", list(left))]
    StillAlive {
        /// Which; empty when only the control group says that somebody is there.
        left: Vec<ProcessIdentity>,
        /// Why the last refused signal was refused.
        #[source]
        refused: Option<io::Error>,
    },
}

fn list(left: &[ProcessIdentity]) -> String {
    if left.is_empty() {
        return "a member of its control group is".to_owned();
    }
    let names: Vec<_> = left.iter().map(ToString::to_string).collect();
    format!(
        "{} {}",
        names.join(", "),
        if left.len() == 1 { "is" } else { "are" }
    )
}

/// Ends the run and confirms it: afterwards nothing of it is alive, and its control group is
/// removed. A run that has ended is only confirmed. Twice is as good as once.
///
/// `grace` is what the agent gets to end by itself; zero kills at once.
///
/// # Errors
/// When the end could not be confirmed; it is safe to try again.
pub fn stop(target: &StopTarget, grace: Duration) -> Result<StopReport, StopError> {
    let cgroup = target
        .cgroup
        .as_ref()
        .map(|path| RunCgroup::stored(path, target.run))
        .transpose()?;
    let shim = match &target.identity {
        Some(identity) => open_shim(identity)?,
        None => None,
    };
    let was_running = shim.is_some();
    if let Some(shim) = &shim
        && !grace.is_zero()
        // A refusal shows below, as a survivor.
        && shim.signal(Signal::TERM).unwrap_or(false)
    {
        shim.wait(grace.saturating_add(SETTLE))?;
    }
    let mut force = Force {
        target,
        cgroup: cgroup.as_ref(),
        killed: Vec::new(),
        refused: None,
        shim_had_time: false,
        since: match &target.identity {
            Some(shim) if shim.boot_id == boot_id()? => shim.start_time,
            Some(_) | None => 0,
        },
    };
    force.until_nothing_is_left()?;
    let killed = force.killed;
    if let Some(cgroup) = &cgroup
        && !holds_us(cgroup)?
    {
        cgroup.remove()?;
    }
    Ok(StopReport {
        was_running,
        killed,
    })
}

/// The shim, if it is there and has not ended.
fn open_shim(identity: &ProcessIdentity) -> Result<Option<Pidfd>, StopError> {
    let Some(shim) = Pidfd::open(identity)? else {
        return Ok(None);
    };
    if identity.pid == std::process::id() {
        return Err(StopError::Ourselves(identity.clone()));
    }
    Ok((!shim.has_ended()?).then_some(shim))
}

/// Whether the calling process is a member: an agent that stops its own run.
fn holds_us(cgroup: &RunCgroup) -> Result<bool, CgroupError> {
    Ok(cgroup.members()?.contains(&std::process::id()))
}

struct Force<'a> {
    target: &'a StopTarget,
    cgroup: Option<&'a RunCgroup>,
    killed: Vec<ProcessIdentity>,
    refused: Option<io::Error>,
    shim_had_time: bool,
    /// No process of the run started before this.
    since: u64,
}

/// What one look has found.
struct Left {
    shim: Option<ProcessIdentity>,
    others: Vec<ProcessIdentity>,
    populated: bool,
}

impl Force<'_> {
    fn until_nothing_is_left(&mut self) -> Result<(), StopError> {
        let deadline = Deadline::after(FORCE);
        let (mut rounds, mut empty_looks) = (0_u32, 0);
        while empty_looks < 2 {
            let left = self.look()?;
            if left.is_empty() {
                empty_looks += 1;
                continue;
            }
            empty_looks = 0;
            if deadline.passed() {
                return Err(StopError::StillAlive {
                    left: left.shim.into_iter().chain(left.others).collect(),
                    refused: self.refused.take(),
                });
            }
            self.round(rounds, left)?;
            rounds += 1;
        }
        Ok(())
    }

    /// Everything that belongs to the run and has not ended, except us.
    fn look(&self) -> Result<Left, StopError> {
        let shim = match &self.target.identity {
            Some(identity) => open_shim(identity)?.map(|_| identity.clone()),
            None => None,
        };
        let mut others = sweep_since(self.target.run, self.since)?;
        if let Some(shim) = &shim {
            others.extend(descendants(shim)?);
        }
        let mut populated = false;
        if let Some(cgroup) = self.cgroup {
            for pid in cgroup.members()? {
                others.extend(identify(pid)?);
            }
            populated = !holds_us(cgroup)? && cgroup.is_populated()?;
        }
        others.retain(|other| other.pid != std::process::id() && Some(other) != shim.as_ref());
        others.sort_unstable();
        others.dedup();
        Ok(Left {
            shim,
            others,
            populated,
        })
    }

    /// Kills what one look found. The shim is spared as long as it has somebody to adopt, so that
    /// orphans stay in sight, and once more so that it can report by itself.
    fn round(&mut self, number: u32, left: Left) -> Result<(), StopError> {
        let mut handles = Vec::new();
        for process in left.others {
            handles.extend(self.kill(process)?);
        }
        if let Some(shim) = left.shim
            && handles.is_empty()
        {
            if self.shim_had_time {
                handles.extend(self.kill(shim)?);
            } else {
                self.shim_had_time = true;
                handles.extend(open_shim(&shim)?);
            }
        }
        if let Some(cgroup) = self.cgroup
            && left.populated
            && number > 0
        {
            cgroup.kill()?;
            cgroup.wait_empty(ROUND)?;
        }
        let deadline = Deadline::after(ROUND);
        for handle in &handles {
            let mut fds = [PollFd::new(handle, PollFlags::IN)];
            if !poll_until(&mut fds, Some(deadline)).map_err(LookError::Wait)? {
                break;
            }
        }
        Ok(())
    }

    fn kill(&mut self, identity: ProcessIdentity) -> Result<Option<Pidfd>, StopError> {
        let Some(process) = Pidfd::open(&identity)? else {
            return Ok(None);
        };
        match process.signal(Signal::KILL) {
            Ok(true) => {
                if !self.killed.contains(&identity) {
                    self.killed.push(identity);
                }
            }
            Ok(false) => {}
            Err(error) => self.refused = Some(error),
        }
        Ok(Some(process))
    }
}

impl Left {
    fn is_empty(&self) -> bool {
        self.shim.is_none() && self.others.is_empty() && !self.populated
    }
}
