//! Launching what a test wants to watch, and waiting for what it does.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use homeostat::model::id::RunId;
use homeostat::model::process::ProcessIdentity;
use homeostat::process::control::{Decoder, Exited, Report};
use homeostat::process::deadline::{Deadline, poll_until};
use homeostat::process::table::RUN_MARK;
use homeostat::process::{
    Pidfd, Presence, StopError, StopReport, StopTarget, identify, is_alive, stop,
};
use homeostat::sandbox::{LaunchError, LaunchPlan, Program, RunIdentity, Running, none};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

/// Longer than anything here takes on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(30);

pub(super) const GRACE: Duration = Duration::from_millis(200);

pub(super) fn shim_binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_homeostat"))
}

pub(super) fn identity() -> RunIdentity {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    RunIdentity::resolve(uid.as_raw(), gid.as_raw(), None).unwrap()
}

/// A run id that no other test has, in this process or beside it.
pub(super) fn fresh_run() -> RunId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let serial = NEXT.fetch_add(1, Ordering::Relaxed);
    let own = identify(std::process::id()).unwrap().expect("we exist");
    RunId::derived(&[&format!("{own:?}"), &serial.to_string()])
}

/// What is launched: a shell script, unless `argv` says otherwise.
pub(super) struct Setup {
    pub(super) plan: LaunchPlan,
    pub(super) program: Program,
}

pub(super) fn script(text: &str) -> Setup {
    let run = fresh_run();
    Setup {
        plan: LaunchPlan {
            run,
            identity: identity(),
            cgroup: None,
            grace: GRACE,
        },
        program: Program {
            argv: ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                (RUN_MARK.to_owned(), run.to_string()),
            ]),
            cwd: PathBuf::from("/"),
            stdin: String::new(),
            keeps_stdin: false,
        },
    }
}

/// A launched run. Whatever a test leaves of it is stopped when it ends, also by a panic.
pub(super) struct Run {
    pub(super) running: Option<Running>,
    pub(super) target: StopTarget,
}

impl Setup {
    pub(super) fn launch(self) -> Run {
        self.try_launch().unwrap()
    }

    pub(super) fn try_launch(self) -> Result<Run, LaunchError> {
        let started = none::start(shim_binary())?;
        let mut run = Run {
            running: None,
            target: StopTarget {
                identity: Some(started.identity().clone()),
                run: self.plan.run,
                cgroup: self.plan.cgroup.clone(),
            },
        };
        let attested = started.prepare(&self.plan)?;
        run.running = Some(attested.launch(self.program)?);
        Ok(run)
    }
}

impl Run {
    pub(super) fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("not let go of")
    }

    /// The next line of the agent's output, without its end.
    pub(super) fn line(&mut self) -> String {
        let mut out = File::from(self.running().stdout.try_clone().unwrap());
        let mut line = Vec::new();
        let mut byte = [0];
        while wait_and_read(&mut out, &mut byte) == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// A process that the agent's next line names by pid.
    pub(super) fn named(&mut self) -> ProcessIdentity {
        let line = self.line();
        let pid = line
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("no pid: {line:?}"));
        identify(pid).unwrap().expect("it has just been started")
    }

    /// The rest of the output, and how it all ended.
    pub(super) fn finish(mut self) -> (String, Exited) {
        let running = self.running();
        let mut out = File::from(running.stdout.try_clone().unwrap());
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match wait_and_read(&mut out, &mut piece) {
                0 => break,
                read => text.extend_from_slice(&piece[..read]),
            }
        }
        let exited = self.exited();
        let status = self.running().shim.reap(LONG).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        (String::from_utf8(text).unwrap(), exited)
    }

    pub(super) fn exited(&mut self) -> Exited {
        let running = self.running();
        match next_report(&mut running.control, &mut running.decoder) {
            Report::Exited(exited) => exited,
            other => panic!("not the end: {other:?}"),
        }
    }

    pub(super) fn stop(&self, grace: Duration) -> Result<StopReport, StopError> {
        stop(&self.target, grace)
    }

    pub(super) fn shim(&self) -> &ProcessIdentity {
        self.target.identity.as_ref().expect("launched")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let stopped = stop(&self.target, Duration::ZERO);
        if !std::thread::panicking() {
            drop(stopped.expect("what a test leaves can be stopped"));
        }
    }
}

/// Waits until there is something to read, and reads it.
pub(super) fn wait_and_read(from: &mut (impl Read + AsFd), into: &mut [u8]) -> usize {
    let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
    let ready = poll_until(&mut fds, Some(Deadline::after(LONG))).unwrap();
    assert!(ready, "nothing to read for {LONG:?}");
    from.read(into).unwrap()
}

pub(super) fn next_report(control: &mut UnixStream, decoder: &mut Decoder) -> Report {
    let mut piece = [0; 4096];
    loop {
        if let Some(report) = decoder.message().unwrap() {
            return report;
        }
        let read = wait_and_read(control, &mut piece);
        assert_ne!(read, 0, "the shim ended without a report");
        decoder.push(&piece[..read]);
    }
}

/// Waits for the end of a process, and only that.
pub(super) fn wait_gone(process: &ProcessIdentity) {
    if let Some(handle) = Pidfd::open(process).unwrap() {
        assert!(handle.wait(LONG).unwrap(), "{process} lives on");
    }
    assert_eq!(is_alive(process), Presence::Gone);
}

pub(super) fn kill(process: &ProcessIdentity) {
    signal(process, Signal::KILL);
    wait_gone(process);
}

/// Signals a process that is there.
pub(super) fn signal(process: &ProcessIdentity, signal: Signal) {
    let handle = Pidfd::open(process).unwrap().expect("it runs");
    assert!(handle.signal(signal).unwrap());
}
