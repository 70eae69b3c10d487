//! From layers to settings with no choices left.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strum::EnumString;
use thiserror::Error;

use super::environment::Environment;
use super::file;
use super::setting::{BadValue, Draft, Setting};
use crate::model::observed::WorktreeBackend;
use crate::model::remote::RemoteUrl;

/// Why settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A variable that no setting has.
    #[error("{name} is no setting")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The variable that was perhaps meant.
        nearest: Option<String>,
    },
    /// A variable that is not UTF-8.
    #[error("{name} is not UTF-8")]
    NotUnicode {
        /// The variable.
        name: String,
    },
    /// A variable with a value that its setting does not take.
    #[error("the value of {name} cannot be used")]
    BadVariable {
        /// The variable.
        name: String,
        /// What is expected.
        source: BadValue,
    },
    /// A flag with a value that its setting does not take.
    #[error("the value of {flag} cannot be used")]
    BadFlag {
        /// The flag.
        flag: String,
        /// What is expected.
        source: BadValue,
    },
    /// The settings file could not be read.
    #[error("failed to read {}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The settings file has faults.
    #[error("{} has faults\n{report}", path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The faults, each with its place.
        report: String,
    },
    /// Nothing says where state lies.
    #[error("no data directory: neither HOME nor XDG_STATE_HOME is an absolute path")]
    NoDataDir,
    /// A socket path that the kernel cannot take.
    #[error("the socket's path {} has {length} bytes, and the kernel takes {SOCKET_BYTES_MAX}", path.display())]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// Nothing says where the manifests are.
    #[error("no source: nothing says where the manifests are")]
    NoSource,
    /// Two places of manifests.
    #[error("source and sourceRepo exclude each other")]
    TwoSources,
    /// An address that is not understood. It may hold a password, and is not quoted.
    #[error("sourceRepo is no URL that git fetches from")]
    BadUrl,
    /// Parts of a git source without the repository.
    #[error("sourceRef needs sourceRepo")]
    NoSourceRepo,
}

impl ConfigError {
    /// What to try next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownVariable { nearest, .. } => {
                nearest.as_ref().map(|name| format!("did you mean {name}?"))
            }
            Self::NoDataDir => Some("pass --data-dir DIR".to_owned()),
            Self::SocketPathTooLong { .. } => Some("pass a shorter --socket PATH".to_owned()),
            Self::NoSource => Some(
                "pass --source DIR, or --source-repo PATH-OR-URL; `homeostat init` makes one"
                    .to_owned(),
            ),
            Self::BadUrl => Some(
                "write https://, http://, ssh://, git:// or file://, or host:path for ssh; \
                 a key or a token is best left to git's credential helper"
                    .to_owned(),
            ),
            Self::NotUnicode { .. }
            | Self::BadVariable { .. }
            | Self::BadFlag { .. }
            | Self::ReadFile { .. }
            | Self::InvalidFile { .. }
            | Self::TwoSources
            | Self::NoSourceRepo => None,
        }
    }
}

/// Bytes of a UNIX socket's path, without the NUL (`sun_path`).
const SOCKET_BYTES_MAX: usize = 107;

/// How logs look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// And what a person should look at.
    Warn,
    /// And what happened.
    #[default]
    Info,
    /// And why.
    Debug,
    /// And every step.
    Trace,
}

/// How and what is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// How.
    pub format: LogFormat,
    /// What.
    pub level: LogLevel,
}

/// Where the manifests are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSetting {
    /// A directory.
    Directory {
        /// Where it lies.
        path: PathBuf,
        /// The directory within it that holds the manifests; none: all of it.
        inside: Option<String>,
    },
    /// A ref of a local git repository.
    Repository {
        /// The repository: a checkout or a bare one.
        path: PathBuf,
        /// The ref, such as `main`, or `HEAD`.
        reference: String,
        /// The directory within it that holds the manifests; none: the whole tree.
        inside: Option<String>,
    },
    /// A ref of a git repository elsewhere.
    Remote {
        /// The repository.
        url: RemoteUrl,
        /// The branch, such as `main`, a ref in full, or `HEAD`.
        reference: String,
        /// The directory within it that holds the manifests; none: the whole tree.
        inside: Option<String>,
    },
}

/// Whether runs are wrapped by the operating system where it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum SandboxSwitch {
    /// Where a backend is proved.
    #[default]
    On,
    /// Nowhere.
    Off,
}

/// What it takes to reach a daemon, or its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Directory of the daemon's state.
    pub data_dir: PathBuf,
    /// Path of the daemon's socket.
    pub socket: PathBuf,
}

impl Client {
    /// The daemon's database.
    pub fn database(&self) -> PathBuf {
        self.data_dir.join("homeostat.db")
    }
}

/// Everything that the daemon needs to know of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Data directory and socket.
    pub client: Client,
    /// Where the manifests are.
    pub source: SourceSetting,
    /// Logs.
    pub log: Log,
    /// How worktrees are made.
    pub worktree_backend: WorktreeBackend,
    /// Whether runs are wrapped.
    pub sandbox: SandboxSwitch,
    /// The user that a root daemon's runs have; none: the sandbox's own choice.
    pub run_uid: Option<u32>,
    /// How long the source must be quiet before it is read.
    pub debounce: Duration,
    /// Time between two full passes.
    pub resync: Duration,
    /// Time between two scans of a directory source.
    pub scan: Duration,
    /// Time between two looks at a remote source.
    pub poll: Duration,
}

/// All layers as one, each setting valid by itself, before the settings are held against each other.
#[derive(Clone, Debug)]
pub struct Layers {
    draft: Draft,
    environment: Environment,
}

impl Layers {
    /// Reads the environment's settings and the settings file, below `flags`. The file is `file`,
    /// else the one that `HOMEOSTAT_CONFIG_FILE` names, else the user's own if it exists.
    ///
    /// # Errors
    /// When a layer cannot be read, or names something that is no setting.
    pub fn load(
        flags: Draft,
        file: Option<&Path>,
        environment: Environment,
    ) -> Result<Self, ConfigError> {
        let named = file
            .map(|path| environment.directory.join(path))
            .or_else(|| environment.file());
        let from_file = match named {
            Some(path) => file::read(&path)?,
            None => match default_file(&environment) {
                Some(path) => file::read_if_there(&path)?,
                None => Draft::new(),
            },
        };
        let draft = flags.over(environment.draft()?).over(from_file);
        Ok(Self { draft, environment })
    }

    /// What it takes to reach a daemon.
    ///
    /// # Errors
    /// When nothing says where its state lies, or the socket's path is too long.
    pub fn client(&self) -> Result<Client, ConfigError> {
        let data_dir = self
            .draft
            .path(Setting::DataDir)
            .or_else(|| default_data_dir(&self.environment))
            .ok_or(ConfigError::NoDataDir)?;
        let socket = self
            .draft
            .path(Setting::Socket)
            .unwrap_or_else(|| data_dir.join("homeostat.sock"));
        let length = socket.as_os_str().len();
        if length > SOCKET_BYTES_MAX {
            return Err(ConfigError::SocketPathTooLong {
                path: socket,
                length,
            });
        }
        Ok(Client { data_dir, socket })
    }

    /// How and what is logged.
    pub fn log(&self) -> Log {
        Log {
            format: self.word(Setting::LogFormat).unwrap_or_default(),
            level: self.word(Setting::LogLevel).unwrap_or_default(),
        }
    }

    /// Where the manifests are.
    ///
    /// # Errors
    /// When nothing says so, or two things do.
    pub fn source(&self) -> Result<SourceSetting, ConfigError> {
        let directory = self.draft.path(Setting::Source);
        let inside = self.text(Setting::SourcePath).map(ToOwned::to_owned);
        let reference = self.text(Setting::SourceRef);
        match (directory, self.text(Setting::SourceRepo)) {
            (Some(_), Some(_)) => Err(ConfigError::TwoSources),
            (None, Some(repository)) => {
                let reference = reference.unwrap_or("HEAD").to_owned();
                if !RemoteUrl::is_meant(repository) {
                    let path = PathBuf::from(repository);
                    return Ok(SourceSetting::Repository {
                        path,
                        reference,
                        inside,
                    });
                }
                let url = RemoteUrl::parse(repository).ok_or(ConfigError::BadUrl)?;
                Ok(SourceSetting::Remote {
                    url,
                    reference,
                    inside,
                })
            }
            (_, None) if reference.is_some() => Err(ConfigError::NoSourceRepo),
            (Some(path), None) => Ok(SourceSetting::Directory { path, inside }),
            (None, None) => Err(ConfigError::NoSource),
        }
    }

    /// Everything that the daemon needs to know of its host.
    ///
    /// # Errors
    /// When something is missing, or two settings exclude each other.
    pub fn daemon(&self) -> Result<Resolved, ConfigError> {
        let seconds =
            |setting, default| Duration::from_secs(self.draft.number(setting).unwrap_or(default));
        Ok(Resolved {
            client: self.client()?,
            source: self.source()?,
            log: self.log(),
            worktree_backend: self
                .word(Setting::WorktreeBackend)
                .unwrap_or(WorktreeBackend::Reflink),
            sandbox: self.word(Setting::Sandbox).unwrap_or_default(),
            run_uid: self.run_uid(),
            debounce: Duration::from_millis(self.draft.number(Setting::DebounceMs).unwrap_or(300)),
            resync: seconds(Setting::ResyncSecs, 300),
            scan: seconds(Setting::ScanSecs, 10),
            poll: seconds(Setting::PollSecs, 60),
        })
    }

    /// The user that a root daemon's runs have, if one is named.
    pub fn run_uid(&self) -> Option<u32> {
        // The form's limits are those of a user id.
        let uid = self.draft.number(Setting::RunUid)?;
        u32::try_from(uid).ok()
    }

    fn text(&self, setting: Setting) -> Option<&str> {
        self.draft.get(setting)
    }

    /// The choice that the setting makes; its words are checked when it is set.
    fn word<T: std::str::FromStr>(&self, setting: Setting) -> Option<T> {
        self.text(setting).and_then(|text| text.parse().ok())
    }
}

fn default_data_dir(environment: &Environment) -> Option<PathBuf> {
    if environment.is_root() {
        return Some(PathBuf::from("/var/lib/homeostat"));
    }
    let state = environment.absolute_path("XDG_STATE_HOME").or_else(|| {
        let home = environment.absolute_path("HOME")?;
        Some(home.join(".local/state"))
    })?;
    Some(state.join("homeostat"))
}

fn default_file(environment: &Environment) -> Option<PathBuf> {
    if environment.is_root() {
        return Some(PathBuf::from("/etc/homeostat/homeostat.yaml"));
    }
    let config = environment.absolute_path("XDG_CONFIG_HOME").or_else(|| {
        let home = environment.absolute_path("HOME")?;
        Some(home.join(".config"))
    })?;
    Some(config.join("homeostat/homeostat.yaml"))
}

#[cfg(test)]
mod tests;
