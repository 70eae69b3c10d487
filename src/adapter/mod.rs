//! Adapters: how an agent is started, and what its output means.
//!
//! An adapter does no I/O of its own beyond finding its program and asking it for its version
//! ([`claude_code::probe`]): it says what to launch
//! ([`Adapter::launch`]) and reads lines that someone else took off a pipe ([`EventParser`]). It
//! never touches the store, git or policy. Start with [`Adapter`], then [`command`], then
//! [`claude_code`].

pub mod claude_code;
mod command;
mod env;
pub mod lines;
mod note;
mod program;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use uuid::Uuid;

use crate::model::event::AgentEvent;
use crate::model::process::Exit;
use crate::model::run::EndReason;
use crate::model::spec::{AdapterSpec, AdapterType, Effort};

use self::lines::Line;

/// The code of a run whose program does not know the session that it was to resume.
pub const SESSION_NOT_FOUND: &str = "session_not_found";

/// A way to reach an agent.
pub trait Adapter: Send + Sync + fmt::Debug {
    /// What runs on this adapter can do.
    fn capabilities(&self) -> Capabilities;

    /// What to execute. Looks the program up, and starts nothing.
    ///
    /// # Errors
    /// When the program or the environment is not one that may be started.
    fn launch(&self, spec: &LaunchSpec<'_>) -> Result<Launch, LaunchError>;

    /// A parser for one run's output.
    fn parser(&self) -> Box<dyn EventParser>;

    /// The directories of [`LaunchSpec::state_dir`] that its program needs to resume a session: they
    /// are carried from run to run, and nothing else is. None when it can't resume.
    fn session_files(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// What to write to a running agent's standard input so that it hears `text`: whole lines.
    /// None when it can't be steered. Tell the parser: [`EventParser::note_input`].
    fn message(&self, text: &str) -> Option<String> {
        let _ = text;
        None
    }

    /// What to write to a running agent's standard input so that it drops what it does and waits
    /// for a message: whole lines, with `id` to tell its answer by. None when it can't. Tell the
    /// parser: [`EventParser::note_input`].
    fn interrupt(&self, id: &str) -> Option<String> {
        let _ = id;
        None
    }
}

/// The adapter that a manifest describes.
pub fn for_spec(spec: &AdapterSpec) -> Box<dyn Adapter> {
    match spec.r#type {
        AdapterType::Command => Box::new(command::Command::new(spec)),
        AdapterType::ClaudeCode => Box::new(claude_code::ClaudeCode::new(spec)),
    }
}

/// The program that a run on that Adapter would start.
///
/// # Errors
/// When there is none that can be started.
pub fn program_of(spec: &AdapterSpec, search_path: &str) -> Result<PathBuf, LaunchError> {
    let command = spec.command.as_deref();
    match spec.r#type {
        AdapterType::Command => {
            program::resolve(command.ok_or(LaunchError::ProgramNotNamed)?, search_path)
        }
        AdapterType::ClaudeCode => claude_code::find(command, search_path),
    }
}

/// What a run can do on an adapter (design §9). Data, for validation and for the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags, each a column of the design's table"
)]
pub struct Capabilities {
    /// The tools that the agent sees can be narrowed.
    pub filters_tools: bool,
    /// Its tool calls pass through us first.
    pub intercepts_calls: bool,
    /// It can be seen to deliver what a mode asks for.
    pub observes_contract: bool,
    /// A message can reach it while it runs.
    pub is_steerable: bool,
    /// It can be made to wait at a clean boundary.
    pub is_pausable: bool,
    /// It says how many tokens it used.
    pub reports_usage: bool,
    /// It says what they cost.
    pub reports_cost: bool,
}

/// What a launch is made of, besides the adapter's own spec. All paths are absolute.
#[derive(Clone, Copy, Debug)]
pub struct LaunchSpec<'a> {
    /// The rendered prompt.
    pub prompt: &'a str,
    /// Where programs are found, here and in the run: directories joined by `:`.
    pub search_path: &'a str,
    /// The run's home directory.
    pub home: &'a str,
    /// The run's directory for temporary files.
    pub tmp: &'a str,
    /// The name of the user that the run becomes.
    pub user: &'a str,
    /// The name of its time zone, as `TZ` takes it.
    pub time_zone: &'a str,
    /// Author, committer and co-author.
    pub git_env: &'a BTreeMap<String, String>,
    /// What the dispatch asks for.
    pub caller_env: &'a BTreeMap<String, String>,
    /// Why the run was woken; wins over everything.
    pub wake_env: &'a BTreeMap<String, String>,
    /// The model that the agent asks for; the program's own choice when absent.
    pub model: Option<&'a str>,
    /// How hard it is to think.
    pub effort: Option<Effort>,
    /// Where its model answers. None when the Adapter's own variables say where.
    pub endpoint: Option<Endpoint<'a>>,
    /// The agent's memory of the conversation.
    pub session: Session,
    /// The directory in which the caller will write [`Launch::files`]; the agent can read it and
    /// not write it.
    pub config_dir: &'a str,
    /// The directory that the agent's program keeps between the runs of one conversation.
    pub state_dir: &'a str,
    /// Servers of tools that it is given, and no others.
    pub mcp_servers: &'a [McpServer<'a>],
}

/// A model's endpoint as a run sees it: a gateway of ours, and a key that is worth nothing outside
/// of it. It does not print the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// The base URL, without a slash at its end.
    pub base_url: &'a str,
    /// The run's key.
    pub key: &'a str,
}

impl fmt::Debug for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

/// Which of its own sessions the agent's program continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// None: it begins one, with this id where it lets us choose.
    New(Uuid),
    /// This one, which an earlier run of the conversation began.
    Resume(Uuid),
}

/// A server of tools, over HTTP. It does not print its token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct McpServer<'a> {
    /// Its name, a part of its tools' names.
    pub name: &'a str,
    /// Where it answers.
    pub url: &'a str,
    /// The run's bearer token.
    pub token: &'a str,
}

impl fmt::Debug for McpServer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What to execute. It holds secrets and the prompt, so it prints neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// What the agent reads first on its standard input.
    pub stdin: String,
    /// Whether its standard input then stays open: it is closed when
    /// [`EventParser::awaits_input`] and there is nothing to say.
    pub keeps_stdin: bool,
    /// What to write into [`LaunchSpec::config_dir`] before it starts.
    pub files: Vec<ConfigFile>,
}

/// A generated file of a run's configuration. It may hold a token, so that it is for the run's user
/// alone, and its text is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its name, one component.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigFile")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("program", &self.argv.first())
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

/// Why a run can't be launched.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The agent's program, which its type knows by name, is not there.
    #[error("find {program:?} (looked in {looked_in:?})")]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// The search path.
        looked_in: String,
        /// How to get it.
        remedy: &'static str,
    },
    /// The Adapter names no program, and its type knows none.
    #[error("execute the Adapter's program, of which it names none")]
    ProgramNotNamed,
    /// No directory of the search path has the program, or the path names nothing.
    #[error("find the agent's program {command:?} (looked in {looked_in:?})")]
    ProgramNotFound {
        /// The program, as declared.
        command: String,
        /// The search path, or the path itself.
        looked_in: String,
    },
    /// It is there, and it is no file that can be executed.
    #[error("execute {path:?}, which is no executable file")]
    ProgramNotExecutable {
        /// Where it is.
        path: PathBuf,
    },
    /// Whether it is there could not be seen.
    #[error("look for the agent's program at {path:?}")]
    ProgramNotVisible {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its path is relative, so that it would depend on a directory that agents write.
    #[error("accept the relative path {command:?} as the agent's program")]
    ProgramRelative {
        /// The program, as declared.
        command: String,
    },
    /// A variable could redirect the agent's programs, and it does not come from the
    /// Adapter.
    #[error("let the dispatch set {name}, which could redirect the agent's programs")]
    VariableRefused {
        /// Its name.
        name: String,
    },
    /// A variable has a name of ours.
    #[error("accept the variable {name}, whose prefix HOMEOSTAT_ is the daemon's own")]
    VariableReserved {
        /// Its name.
        name: String,
    },
    /// The system knows no such variable, argument or input.
    #[error("make {what}, which has a NUL byte or no legal name")]
    NotRepresentable {
        /// What it is: `the variable "A=B"`, `argument 3`.
        what: String,
    },
}

impl LaunchError {
    /// The code for run records.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotInstalled { .. } => "not_installed",
            Self::ProgramNotNamed => "program_not_named",
            Self::ProgramNotFound { .. } => "program_not_found",
            Self::ProgramNotExecutable { .. } => "program_not_executable",
            Self::ProgramNotVisible { .. } => "program_not_visible",
            Self::ProgramRelative { .. } => "program_relative",
            Self::VariableRefused { .. } => "variable_refused",
            Self::VariableReserved { .. } => "variable_reserved",
            Self::NotRepresentable { .. } => "not_representable",
        }
    }

    /// What an operator can do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NotInstalled { remedy, .. } => remedy,
            Self::ProgramNotNamed => "name it as the Adapter's spec.command",
            Self::ProgramNotFound { .. } => {
                "install it, or give its absolute path as the Adapter's spec.command"
            }
            Self::ProgramNotExecutable { .. } => {
                "make it executable (chmod +x), or correct the Adapter's spec.command"
            }
            Self::ProgramNotVisible { .. } => {
                "let the daemon's user search the directories on the way to it"
            }
            Self::ProgramRelative { .. } => {
                "give the Adapter's spec.command as an absolute path, or as a name without a slash"
            }
            Self::VariableRefused { .. } => {
                "set it in the Adapter's spec.env if the agent really needs it"
            }
            Self::VariableReserved { .. } => "choose another name",
            Self::NotRepresentable { .. } => "correct it in the Adapter or the Dispatch",
        }
    }
}

/// Turns one run's output into events. It is told everything and reads nothing itself.
pub trait EventParser: Send + fmt::Debug {
    /// A line of standard output.
    fn stdout_line(&mut self, line: &Line) -> Vec<AgentEvent>;

    /// A line of standard error: only ever `debug`.
    fn stderr_line(&mut self, line: &Line) -> Vec<AgentEvent>;

    /// Something was written to the agent's standard input after its launch, so that what it does
    /// next, or stops doing, may be an answer to that.
    fn note_input(&mut self) {}

    /// Whether the agent's program has its session now, so that a later run can resume it.
    fn has_session(&self) -> bool {
        false
    }

    /// Whether the agent has ended its turn and waits on an open standard input: more can be said,
    /// or it can be closed, which ends the agent.
    fn awaits_input(&self) -> bool {
        false
    }

    /// The end of both: who ended the run, and how its process went. `done` is the agent's own end,
    /// said or seen, and comes at most once: a run that we ended, or whose end nobody saw, has
    /// none from here, for its record must not be able to read as a success.
    fn finish(&mut self, end: EndReason, exit: Exit) -> Vec<AgentEvent>;
}

#[cfg(test)]
mod tests;
