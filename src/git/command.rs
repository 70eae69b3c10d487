//! One run of the `git` program, with everything that could steer it pinned.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::pump::{self, Ended};
use crate::model::worktree::{ObjectId, UserIds};

/// Where `git` and what it starts are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of every run; nothing of the daemon's own passes.
const ENVIRONMENT: [(&str, &str); 15] = [
    ("PATH", PATH),
    ("HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_ADVICE", "0"),
    ("GIT_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
];

/// Settings that win over a repository's own.
const SETTINGS: [&str; 17] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.sshCommand=false",
    "core.filesRefLockTimeout=10000",
    "core.packedRefsTimeout=10000",
    "credential.helper=",
    "safe.directory=*",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
];

/// Over the operator's environment, where theirs is used: whatever would ask somebody fails.
const OPERATOR_ENVIRONMENT: [(&str, &str); 8] = [
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ADVICE", "0"),
    ("GIT_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "force"),
];

/// Variables of git that say how a remote is reached. Its others are about repositories, or make it
/// tell what it does.
const OPERATOR_VARIABLES: [&str; 11] = [
    "GIT_ASKPASS",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_PROXY_COMMAND",
    "GIT_PROXY_SSL_CAINFO",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
];

/// Settings that win over the operator's own.
const OPERATOR_SETTINGS: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "safe.bareRepository=all",
    "safe.directory=*",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
];

/// How long a run may take and how much it may say.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After this the process group is killed.
    pub timeout: Duration,
    /// Bytes of standard output after which the process group is killed.
    pub output_bytes_max: usize,
}

impl Limits {
    /// A question about refs or objects.
    pub const QUERY: Self = Self {
        timeout: Duration::from_secs(60),
        output_bytes_max: 64 << 20,
    };
    /// Work in proportion to a repository: a fetch, a checkout, a repack.
    pub const WORK: Self = Self {
        timeout: Duration::from_mins(30),
        output_bytes_max: 64 << 20,
    };
}

/// Why a run of git has no result.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be started.
    #[error("start git {subcommand}")]
    Start {
        /// `fetch`, `rev-parse`, …
        subcommand: String,
        /// What the system said; `NotFound` means that git is not installed.
        #[source]
        source: io::Error,
    },
    /// Its pipes could not be served.
    #[error("read from git {subcommand}")]
    Pipe {
        /// `fetch`, `rev-parse`, …
        subcommand: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It was killed at its deadline.
    #[error("finish git {subcommand} within {} s", timeout.as_secs())]
    Timeout {
        /// `fetch`, `rev-parse`, …
        subcommand: String,
        /// The limit.
        timeout: Duration,
    },
    /// It was killed for saying too much.
    #[error("read the answer of git {subcommand}: it is longer than {bytes_max} bytes")]
    Output {
        /// `fetch`, `rev-parse`, …
        subcommand: String,
        /// The limit.
        bytes_max: usize,
    },
    /// It ran and said no.
    #[error("run git {subcommand} ({status}): {stderr}")]
    Failed {
        /// `fetch`, `rev-parse`, …
        subcommand: String,
        /// Its exit code or signal.
        status: ExitStatus,
        /// The end of what it wrote to standard error, on one line.
        stderr: String,
    },
    /// It ran, and its answer does not have the promised form.
    #[error("understand the answer of git {subcommand}")]
    Answer {
        /// `fetch`, `rev-parse`, …
        subcommand: String,
    },
}

impl GitError {
    /// Whether the program is missing from the host.
    pub fn is_missing_program(&self) -> bool {
        matches!(self, Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What a run said.
#[derive(Debug)]
pub struct Output {
    subcommand: String,
    status: ExitStatus,
    /// Standard output, empty where it went to a file.
    pub stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Output {
    /// Whether it exited with 0.
    pub fn is_success(&self) -> bool {
        self.status.success()
    }

    /// This output if the exit code was 0.
    ///
    /// # Errors
    /// [`GitError::Failed`].
    pub fn success(self) -> Result<Self, GitError> {
        if self.status.success() {
            return Ok(self);
        }
        Err(GitError::Failed {
            status: self.status,
            stderr: excerpt(&self.stderr),
            subcommand: self.subcommand,
        })
    }

    /// Standard output as one line of UTF-8.
    ///
    /// # Errors
    /// [`GitError::Answer`].
    pub fn line(&self) -> Result<&str, GitError> {
        let text = std::str::from_utf8(&self.stdout).ok().map(str::trim_end);
        text.filter(|text| !text.contains('\n'))
            .ok_or_else(|| self.unexpected())
    }

    /// Standard output as one object id.
    ///
    /// # Errors
    /// [`GitError::Answer`].
    pub fn object_id(&self) -> Result<ObjectId, GitError> {
        self.line()?.parse().map_err(|_not_an_id| self.unexpected())
    }

    /// The error for an answer that is not of the promised form.
    pub fn unexpected(&self) -> GitError {
        GitError::Answer {
            subcommand: self.subcommand.clone(),
        }
    }
}

/// The last part of what git complained about, without line breaks or control characters.
fn excerpt(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let start = line.char_indices().rev().nth(399).map_or(0, |(at, _)| at);
    line[start..].to_owned()
}

/// One run of git, being put together.
#[derive(Debug)]
pub struct Git {
    directory: PathBuf,
    settings: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    operator: Option<BTreeMap<OsString, OsString>>,
    user: Option<UserIds>,
    stdin: Vec<u8>,
    stdout: Option<File>,
    limits: Limits,
}

impl Git {
    /// `git <subcommand>` in `directory`. A repository above `directory` is not looked for.
    pub fn new(directory: &Path, subcommand: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            settings: Vec::new(),
            arguments: vec![subcommand.into()],
            environment: Vec::new(),
            operator: None,
            user: None,
            stdin: Vec::new(),
            stdout: None,
            limits: Limits::QUERY,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        let arguments = arguments.into_iter();
        self.arguments
            .extend(arguments.map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    /// Adds `name=value` to the configuration of this run.
    #[must_use]
    pub fn setting(mut self, setting: impl AsRef<OsStr>) -> Self {
        self.settings.push(setting.as_ref().to_owned());
        self
    }

    /// Sets an environment variable of git.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name, value.as_ref().to_owned()));
        self
    }

    /// Runs it with this environment, the operator's, and with their configuration. For what
    /// reaches a remote, and nothing else.
    #[must_use]
    pub(super) fn operator(mut self, environment: &BTreeMap<OsString, OsString>) -> Self {
        self.operator = Some(environment.clone());
        self
    }

    /// Drops to this user first, where the daemon is root. A daemon that isn't has one user only.
    #[must_use]
    pub const fn user(mut self, user: UserIds) -> Self {
        self.user = Some(user);
        self
    }

    /// Feeds standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = bytes;
        self
    }

    /// Sends standard output to a file instead of memory.
    #[must_use]
    pub fn stdout_to(mut self, file: File) -> Self {
        self.stdout = Some(file);
        self
    }

    /// Replaces [`Limits::QUERY`].
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Runs it and requires exit code 0.
    ///
    /// # Errors
    /// Any [`GitError`].
    pub fn run(self) -> Result<Output, GitError> {
        self.output()?.success()
    }

    /// Runs it; a non-zero exit code is an answer, not an error.
    ///
    /// # Errors
    /// Any [`GitError`] but `Failed`.
    pub fn output(mut self) -> Result<Output, GitError> {
        let subcommand = self.arguments[0].to_string_lossy().into_owned();
        let limits = self.limits;
        let stdin = std::mem::take(&mut self.stdin);
        let child = self.command(!stdin.is_empty()).spawn();
        let child = child.map_err(|source| GitError::Start {
            subcommand: subcommand.clone(),
            source,
        })?;
        match pump::drive(child, &stdin, limits) {
            Err(source) => Err(GitError::Pipe { subcommand, source }),
            Ok(Ended::TimedOut) => Err(GitError::Timeout {
                subcommand,
                timeout: limits.timeout,
            }),
            Ok(Ended::SaidTooMuch) => Err(GitError::Output {
                subcommand,
                bytes_max: limits.output_bytes_max,
            }),
            Ok(Ended::Exited {
                status,
                stdout,
                stderr,
            }) => Ok(Output {
                subcommand,
                status,
                stdout,
                stderr,
            }),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts git; its environment is pinned here"
    )]
    fn command(self, has_stdin: bool) -> Command {
        let mut command = Command::new("git");
        command.env_clear();
        let settings: &[&str] = match &self.operator {
            None => {
                command.envs(ENVIRONMENT);
                &SETTINGS
            }
            Some(theirs) => {
                let theirs = theirs.iter().filter(|(name, _)| is_of_operator(name));
                command.env("PATH", PATH).envs(theirs);
                command.envs(OPERATOR_ENVIRONMENT);
                &OPERATOR_SETTINGS
            }
        };
        if let Some(parent) = self.directory.parent() {
            command.env("GIT_CEILING_DIRECTORIES", parent);
        }
        command.envs(self.environment);
        for setting in settings {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        command.args(self.arguments).current_dir(self.directory);
        command.stdin(if has_stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(self.stdout.map_or_else(Stdio::piped, Stdio::from));
        command.stderr(Stdio::piped()).process_group(0);
        if let Some(user) = self.user
            && rustix::process::geteuid().is_root()
        {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }
}

/// Whether a variable of the operator's passes: their helpers may need any, but for what would
/// lead git somewhere else, and what is the daemon's.
fn is_of_operator(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_steering = name.starts_with(b"GIT_") || name.starts_with(b"HOMEOSTAT_");
    !is_steering || OPERATOR_VARIABLES.iter().any(|it| it.as_bytes() == name)
}

/// The version of the `git` on the fixed path, as `2.47.3`.
///
/// # Errors
/// Any [`GitError`]; [`GitError::is_missing_program`] when there is none.
pub fn version() -> Result<String, GitError> {
    let output = Git::new(Path::new("/"), "version").run()?;
    let version = output.line()?.strip_prefix("git version ");
    let version = version.and_then(|rest| rest.split(' ').next());
    version
        .map(str::to_owned)
        .ok_or_else(|| output.unexpected())
}

/// `prefix` and `path` as one argument, for options that take `--option=PATH`.
pub fn joined(prefix: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(prefix);
    argument.push(OsStr::from_bytes(path.as_os_str().as_bytes()));
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_bounded_line() {
        assert_eq!(excerpt(b"fatal: a\n\x1b[31mb\n"), "fatal: a  [31mb");
        assert_eq!(excerpt("é".repeat(500).as_bytes()).chars().count(), 400);
    }

    #[test]
    fn the_program_answers_within_limits() {
        let limits = Limits {
            timeout: Duration::from_secs(20),
            output_bytes_max: 4,
        };
        let error = Git::new(Path::new("/"), "version").limits(limits).run();
        assert!(matches!(error, Err(GitError::Output { bytes_max: 4, .. })));
        let limits = Limits {
            timeout: Duration::from_millis(50),
            output_bytes_max: 4,
        };
        let hangs = Git::new(Path::new("/"), "-c")
            .args(["alias.hang=!sleep 60", "hang"])
            .limits(limits);
        assert!(matches!(hangs.run(), Err(GitError::Timeout { .. })));
    }

    #[test]
    fn an_operators_environment_passes_without_what_would_steer_git() {
        let passes = |name: &str| is_of_operator(OsStr::new(name));
        for name in ["HOME", "SSH_AUTH_SOCK", "GH_TOKEN", "GIT_SSH_COMMAND"] {
            assert!(passes(name), "{name}");
        }
        for name in [
            "GIT_DIR",
            "GIT_TRACE_CURL",
            "GIT_CONFIG_COUNT",
            "HOMEOSTAT_X",
        ] {
            assert!(!passes(name), "{name}");
        }
    }

    #[test]
    fn input_longer_than_a_pipe_goes_through() {
        let bytes = vec![b'x'; 1 << 20];
        let id = Git::new(Path::new("/"), "hash-object")
            .arg("--stdin")
            .stdin(bytes)
            .run()
            .and_then(|output| output.object_id());
        assert!(id.is_ok(), "{id:?}");
    }
}
