//! The shim from start to end.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use super::agent;
use super::link::{Heard, Link, failed, refused};
use super::privileges;
use super::setup;
use super::signals::Signals;
use super::supervise::Watch;
use crate::process::cgroup::RunCgroup;
use crate::process::control::{
    Failed, Launch, Order, Prepare, Report, Running, Stage, Started, VERSION,
};
use crate::process::identify;

/// Asked wrongly.
const USAGE: u8 = 2;

/// Runs a shim if `args`, the program's name first, ask for one; none when they ask for something
/// else. To be called before anything makes a thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != "shim" {
        return None;
    }
    let asked_right = args.next().is_some_and(|verb| verb == "run") && args.next().is_none();
    let control = if asked_right {
        setup::take_control()
    } else {
        Ok(None)
    };
    let outcome = match control {
        Ok(Some(control)) => converse(&mut Link::new(control)),
        Ok(None) => {
            complain("the daemon starts this for its agents; it is of no use by hand");
            return Some(ExitCode::from(USAGE));
        }
        Err(error) => {
            complain(&format!("take the control socket: {error}"));
            Outcome::GaveUp
        }
    };
    Some(match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::GaveUp => ExitCode::FAILURE,
    })
}

/// How a shim ends.
enum Outcome {
    Done,
    GaveUp,
}

/// The only way to say anything while there is no control socket.
fn complain(message: &str) {
    drop(writeln!(io::stderr(), "homeostat shim: {message}"));
}

/// Talks to the daemon to the end. A failure is its last word.
fn converse(link: &mut Link) -> Outcome {
    match steps(link) {
        Ok(()) => Outcome::Done,
        Err(failure) => {
            link.send(&Report::Failed(failure));
            Outcome::GaveUp
        }
    }
}

fn steps(link: &mut Link) -> Result<(), Failed> {
    let signals = setup::become_owner()
        .map_err(|error| failed(Stage::Setup, "become the owner of a run", &error))?;
    let own = identify(std::process::id())
        .ok()
        .flatten()
        .ok_or_else(|| refused(Stage::Setup, "/proc does not show us"))?;
    link.send(&Report::Started(Started {
        version: VERSION,
        identity: own.clone(),
    }));
    let Some(prepare) = await_prepare(link, &signals)? else {
        return Ok(());
    };
    if let Some(cgroup) = &prepare.cgroup {
        RunCgroup::join(cgroup).map_err(|error| joining(&error))?;
    }
    privileges::give_up(&prepare)?;
    link.send(&Report::Attested(privileges::attest()?));
    let Some(launch) = await_launch(link, &signals)? else {
        return Ok(());
    };
    let agent = agent::execute(launch)?;
    link.send(&Report::Running(Running {
        child_pid: agent.pid.as_raw_nonzero().get().cast_unsigned(),
    }));
    let exited = Watch {
        own: &own,
        link,
        signals: &signals,
        agent,
        grace: Duration::from_millis(prepare.grace_ms),
    }
    .until_nothing_is_left()?;
    link.send(&Report::Exited(exited));
    Ok(())
}

fn joining(error: &crate::process::cgroup::CgroupError) -> Failed {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    Failed {
        stage: Stage::Cgroup,
        errno: source.and_then(io::Error::raw_os_error),
        message: match source {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// The first order; none when it is over before it began.
fn await_prepare(link: &mut Link, signals: &Signals) -> Result<Option<Prepare>, Failed> {
    match link.wait(signals)? {
        Heard::Order(Order::Prepare(prepare)) => Ok(Some(prepare)),
        Heard::Order(Order::Launch(_)) => Err(refused(
            Stage::Protocol,
            "told to launch before told to prepare",
        )),
        Heard::Order(Order::Input(_) | Order::CloseInput) => Err(no_agent_yet()),
        Heard::Over | Heard::Nothing => Ok(None),
    }
}

/// The second order; none when it is over before it began.
fn await_launch(link: &mut Link, signals: &Signals) -> Result<Option<Launch>, Failed> {
    match link.wait(signals)? {
        Heard::Order(Order::Launch(launch)) => Ok(Some(launch)),
        Heard::Order(Order::Prepare(_)) => Err(refused(Stage::Protocol, "told to prepare twice")),
        Heard::Order(Order::Input(_) | Order::CloseInput) => Err(no_agent_yet()),
        Heard::Over | Heard::Nothing => Ok(None),
    }
}

fn no_agent_yet() -> Failed {
    refused(Stage::Protocol, "given input before there is an agent")
}
