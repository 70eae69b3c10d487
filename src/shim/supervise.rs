//! Watching over the agent until nothing of it is left.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait};

use super::agent::{Agent, Fed};
use super::link::{Heard, Link, failed};
use super::signals::{Notice, Signals};
use crate::model::process::{Exit, ProcessIdentity};
use crate::process::control::{
    Exited, Failed, Input, InputRefusal, InputRefused, Order, Report, Stage,
};
use crate::process::deadline::{Deadline, poll_until};
use crate::process::{Pidfd, descendants};

/// What the agent gets at most when nobody is there any more to want its result.
const ORPHANED_GRACE: Duration = Duration::from_secs(2);
/// How long killing goes on before it is given up.
const FORCE: Duration = Duration::from_secs(10);
/// How long until the process table is looked at again for what killing has missed.
const LOOK: Duration = Duration::from_millis(50);

/// An agent under watch.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// The shim itself.
    pub(super) own: &'a ProcessIdentity,
    pub(super) link: &'a mut Link,
    pub(super) signals: &'a Signals,
    pub(super) agent: Agent,
    /// Between TERM and KILL.
    pub(super) grace: Duration,
}

/// How far the end has come.
#[derive(Debug, Default)]
struct Progress {
    /// When KILL follows TERM.
    ending: Option<Deadline>,
    daemon_is_gone: bool,
    status: Option<WaitStatus>,
    /// Input that was refused and not yet said to be.
    refused: Option<InputRefused>,
    /// How many inputs came.
    inputs: u32,
}

impl Progress {
    fn refuse(&mut self, reason: InputRefusal, inputs: u32) {
        if inputs == 0 {
            return;
        }
        let before = self.refused.map_or(0, |refused| refused.inputs);
        self.refused = Some(InputRefused {
            reason,
            inputs: before.saturating_add(inputs),
        });
    }
}

/// Whether the shim has children, running or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Children {
    Some,
    None,
}

impl Watch<'_> {
    /// Lets the agent run until it ends, is asked to, or has lost its daemon, then ends what it left
    /// behind.
    pub(super) fn until_nothing_is_left(mut self) -> Result<Exited, Failed> {
        let mut progress = Progress::default();
        let watched = self.until_it_ends(&mut progress);
        // The agent, or what is left of it, gets no more of its prompt.
        self.end_feed(&mut progress);
        // Also when it can't be watched any more: then all the more.
        let exited = self.end_everything(&mut progress);
        // What came while it ended came too late.
        self.listen(&mut progress);
        if let Some(refused) = progress.refused {
            self.link.send(&Report::InputRefused(refused));
        }
        watched.and(exited).map(|exited| Exited {
            inputs: progress.inputs,
            ..exited
        })
    }

    fn until_it_ends(&mut self, progress: &mut Progress) -> Result<(), Failed> {
        while progress.status.is_none() && !progress.ending.is_some_and(Deadline::passed) {
            self.wait_for_events(progress)?;
            self.serve(progress)?;
        }
        Ok(())
    }

    fn wait_for_events(&self, progress: &Progress) -> Result<(), Failed> {
        let mut fds = vec![PollFd::new(self.signals, PollFlags::IN)];
        if !progress.daemon_is_gone {
            let mut what = PollFlags::IN;
            what.set(PollFlags::OUT, progress.refused.is_some());
            fds.push(PollFd::new(&*self.link, what));
        }
        if let Some(feed) = &self.agent.feed
            && feed.has_more()
        {
            fds.push(PollFd::new(feed, PollFlags::OUT));
        }
        poll_until(&mut fds, progress.ending)
            .map(drop)
            .map_err(|error| failed(Stage::Supervise, "wait", &error))
    }

    /// Does whatever there is to do, without blocking.
    fn serve(&mut self, progress: &mut Progress) -> Result<(), Failed> {
        self.listen(progress);
        self.feed(progress);
        if let Some(refused) = progress.refused
            && self.link.try_send(&Report::InputRefused(refused))
        {
            progress.refused = None;
        }
        while let Some(notice) = self.next_notice()? {
            match notice {
                Notice::End => self.ask(progress, self.grace),
                Notice::Child => {}
            }
        }
        self.reap(progress)?;
        Ok(())
    }

    fn feed(&mut self, progress: &mut Progress) {
        let Some(feed) = &mut self.agent.feed else {
            return;
        };
        match feed.write() {
            Fed::Partly => {}
            Fed::Wholly | Fed::Broken => self.end_feed(progress),
        }
    }

    /// Ends the agent's input; nobody reads what is left of it.
    fn end_feed(&mut self, progress: &mut Progress) {
        if let Some(feed) = self.agent.feed.take() {
            progress.refuse(InputRefusal::Closed, feed.inputs());
        }
    }

    /// Hears everything that the daemon has to say; once heard, an order is in no descriptor that
    /// could be waited for.
    fn listen(&mut self, progress: &mut Progress) {
        while !progress.daemon_is_gone {
            match self.link.hear() {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Order(Order::Input(Input { text }))) => {
                    let taken = match &mut self.agent.feed {
                        Some(feed) => feed.add(&text),
                        None => Err(InputRefusal::Closed),
                    };
                    progress.inputs = progress.inputs.saturating_add(1);
                    if let Err(reason) = taken {
                        progress.refuse(reason, 1);
                    }
                }
                Ok(Heard::Order(Order::CloseInput)) => {
                    if let Some(feed) = &mut self.agent.feed {
                        feed.close();
                    }
                }
                // Neither follows a launch. Who sends one is not our daemon any more.
                Ok(Heard::Order(Order::Prepare(_) | Order::Launch(_)) | Heard::Over) | Err(_) => {
                    progress.daemon_is_gone = true;
                    self.ask(progress, self.grace.min(ORPHANED_GRACE));
                }
            }
        }
    }

    fn next_notice(&self) -> Result<Option<Notice>, Failed> {
        self.signals
            .next()
            .map_err(|error| failed(Stage::Supervise, "read a signal", &error))
    }

    /// Asks the agent to end. The first time counts, unless a later one leaves it less time.
    fn ask(&self, progress: &mut Progress, grace: Duration) {
        let deadline = Deadline::after(grace);
        if progress.ending.is_none() && progress.status.is_none() {
            // The agent is not reaped, so that pid and group are its own. Outside of its group it is
            // asked alone; if it has ended as well, that will be noticed.
            kill_process_group(self.agent.pid, Signal::TERM)
                .or_else(|_| kill_process(self.agent.pid, Signal::TERM))
                .ok();
        }
        progress.ending = Some(
            progress
                .ending
                .map_or(deadline, |before| before.min(deadline)),
        );
    }

    /// Reaps every child that has ended, adopted ones too.
    fn reap(&self, progress: &mut Progress) -> Result<Children, Failed> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.agent.pid {
                        progress.status = Some(status);
                    }
                }
                Ok(None) => return Ok(Children::Some),
                Err(Errno::CHILD) => return Ok(Children::None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(Stage::Supervise, "reap", &error.into())),
            }
        }
    }

    /// Kills and reaps until there is no child. As every orphan below us becomes our child, there is
    /// then nothing below us at all.
    fn end_everything(&self, progress: &mut Progress) -> Result<Exited, Failed> {
        let deadline = Deadline::after(FORCE);
        let mut killed = BTreeSet::new();
        while self.reap(progress)? == Children::Some {
            // Failing to look is no reason to stop looking.
            let left = descendants(self.own).unwrap_or_default();
            if deadline.passed() {
                return Ok(self.exited(progress, &killed, left.len().max(1)));
            }
            killed.extend(left.into_iter().filter(kill));
            let mut fds = [PollFd::new(self.signals, PollFlags::IN)];
            poll_until(&mut fds, Some(Deadline::after(LOOK)))
                .map_err(|error| failed(Stage::Supervise, "wait", &error))?;
            while self.next_notice()?.is_some() {}
        }
        Ok(self.exited(progress, &killed, 0))
    }

    fn exited(
        &self,
        progress: &Progress,
        killed: &BTreeSet<ProcessIdentity>,
        left: usize,
    ) -> Exited {
        let agent = self.agent.pid.as_raw_nonzero().get().cast_unsigned();
        let leftovers = killed.iter().filter(|process| process.pid != agent).count();
        Exited {
            exit: Exit {
                code: progress.status.and_then(WaitStatus::exit_status),
                signal: progress.status.and_then(WaitStatus::terminating_signal),
            },
            leftovers_killed: u32::try_from(leftovers).unwrap_or(u32::MAX),
            left: u32::try_from(left).unwrap_or(u32::MAX),
            inputs: progress.inputs,
        }
    }
}

/// Kills a process that is still who it was. Whether it was there to be killed.
fn kill(process: &ProcessIdentity) -> bool {
    let Ok(Some(handle)) = Pidfd::open(process) else {
        return false;
    };
    handle.signal(Signal::KILL).unwrap_or(false)
}
