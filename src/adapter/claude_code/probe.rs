//! Asking the program for its version, and for the options that it knows. It is started as an agent
//! is: as the run's user, under a shim, with next to no environment, and never by the daemon's own
//! user.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use thiserror::Error;

use super::version::{Version, VersionError};
use super::{LaunchError, OPTIONS, find};
use crate::model::id::RunId;
use crate::process::deadline::{Deadline, poll_until};
use crate::process::table::RUN_MARK;
use crate::process::{StopError, StopTarget, stop};
use crate::sandbox::{self, LaunchPlan, Program, RunIdentity, none};

/// The most that is read of a version, in bytes.
const VERSION_BYTES_MAX: usize = 4 * 1024;
/// The most that is read of a help text, in bytes.
const HELP_BYTES_MAX: usize = 256 * 1024;

/// What to ask, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// This program, of which the shim is a hidden subcommand.
    pub shim: &'a Path,
    /// The user that it is started as.
    pub identity: RunIdentity,
    /// The program that the Adapter names, if it does.
    pub command: Option<&'a str>,
    /// Where programs are found.
    pub search_path: &'a str,
    /// A directory of that user's, for whatever the program leaves behind.
    pub home: &'a Path,
    /// How long it may take.
    pub limit: Duration,
}

/// Why the version is not known, or not one to be used.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// There is no program.
    #[error(transparent)]
    Find(#[from] LaunchError),
    /// It could not be started.
    #[error("start {}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        source: sandbox::LaunchError,
    },
    /// What it prints could not be read.
    #[error("read what {} prints", path.display())]
    Read {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It took too long.
    #[error("get an answer from {} within {} s", path.display(), limit.as_secs_f32())]
    Silent {
        /// The program.
        path: PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// It printed nothing.
    #[error("get an answer from {}, which prints none", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
    },
    /// It is not a version that can be used.
    #[error("use {}", path.display())]
    Version {
        /// The program.
        path: PathBuf,
        /// Why not.
        source: VersionError,
    },
    /// It could not be ended.
    #[error("end {}", path.display())]
    Stop {
        /// The program.
        path: PathBuf,
        /// Why.
        source: StopError,
    },
}

impl ProbeError {
    /// The code for records and conditions.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Find(error) => error.code(),
            Self::Start { .. } => "not_started",
            Self::Read { .. } => "not_read",
            Self::Silent { .. } => "silent",
            Self::Failed { .. } => "failed",
            Self::Version { source, .. } => match source {
                VersionError::NotClaude { .. } => "not_claude",
                VersionError::TooOld { .. } => "too_old",
            },
            Self::Stop { .. } => "not_ended",
        }
    }
}

/// Where the program is, and which version. It blocks for as long as [`Probe::limit`] at most, and
/// leaves no process behind.
///
/// # Errors
/// When there is none that can be used.
pub fn probe(probe: &Probe<'_>) -> Result<(PathBuf, Version), ProbeError> {
    let path = find(probe.command, probe.search_path)?;
    let output = ask(probe, &path, &Version::ARGUMENTS, VERSION_BYTES_MAX)?;
    match Version::of_output(&output) {
        Ok(version) => Ok((path, version)),
        Err(source) => Err(ProbeError::Version { path, source }),
    }
}

/// The options that runs are started with and that the program's help does not name.
///
/// # Errors
/// When it can't be asked.
pub fn unknown_options(probe: &Probe<'_>) -> Result<Vec<&'static str>, ProbeError> {
    let path = find(probe.command, probe.search_path)?;
    let help = ask(probe, &path, &["--help"], HELP_BYTES_MAX)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let named: BTreeSet<&str> = help.split(|c| !is_name(c)).collect();
    let options = OPTIONS.iter().copied();
    Ok(options.filter(|option| !named.contains(option)).collect())
}

/// What the program prints when it is started with these arguments, and then ended.
fn ask(
    probe: &Probe<'_>,
    path: &Path,
    arguments: &[&str],
    bytes_max: usize,
) -> Result<String, ProbeError> {
    // Of that home alone: another one's question at the same time is not ours to end.
    let parts = [path, probe.home].map(Path::to_string_lossy);
    let run = RunId::derived(&["question", &parts[0], &parts[1]]);
    let started = none::start(probe.shim).map_err(|source| start_error(path, source))?;
    let target = StopTarget {
        identity: Some(started.identity().clone()),
        run,
        cgroup: None,
    };
    let mut argv = vec![path.to_string_lossy().into_owned()];
    argv.extend(arguments.iter().map(ToString::to_string));
    let output = output_of(probe, path, argv, (run, bytes_max), started);
    let stopped = stop(&target, Duration::ZERO);
    let output = output?;
    drop(stopped.map_err(|source| ProbeError::Stop {
        path: path.to_owned(),
        source,
    })?);
    if output.is_empty() {
        let path = path.to_owned();
        return Err(ProbeError::Failed { path });
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn start_error(path: &Path, source: sandbox::LaunchError) -> ProbeError {
    ProbeError::Start {
        path: path.to_owned(),
        source,
    }
}

/// What the program prints to its end, or as much as is wanted.
fn output_of(
    probe: &Probe<'_>,
    path: &Path,
    argv: Vec<String>,
    (run, bytes_max): (RunId, usize),
    started: none::Started,
) -> Result<Vec<u8>, ProbeError> {
    let plan = LaunchPlan {
        run,
        identity: probe.identity,
        cgroup: None,
        grace: Duration::ZERO,
    };
    let home = probe.home.to_string_lossy().into_owned();
    let env = [
        ("PATH", probe.search_path.to_owned()),
        ("HOME", home.clone()),
        ("TMPDIR", home),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        (RUN_MARK, run.to_string()),
    ];
    let running = started
        .prepare(&plan)
        .and_then(|attested| {
            attested.launch(Program {
                argv,
                env: env
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<BTreeMap<_, _>>(),
                cwd: probe.home.to_owned(),
                stdin: String::new(),
                keeps_stdin: false,
            })
        })
        .map_err(|source| start_error(path, source))?;
    let mut stdout = File::from(running.stdout);
    let deadline = Deadline::after(probe.limit);
    let read_error = |source| ProbeError::Read {
        path: path.to_owned(),
        source,
    };
    let mut output = Vec::new();
    let mut piece = [0; 1024];
    while output.len() < bytes_max {
        let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
        if !poll_until(&mut fds, Some(deadline)).map_err(read_error)? {
            return Err(ProbeError::Silent {
                path: path.to_owned(),
                limit: probe.limit,
            });
        }
        match stdout.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => output.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_error(error)),
        }
    }
    Ok(output)
}
