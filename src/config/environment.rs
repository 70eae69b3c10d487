//! What the process was given: variables, user, working directory.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::resolve::ConfigError;
use super::setting::{Draft, Setting, VARIABLE_PREFIX};

/// The process's surroundings, read once, so that everything after it is a function of them.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Its variables.
    pub variables: BTreeMap<OsString, OsString>,
    /// Its effective user id.
    pub uid: u32,
    /// Its working directory.
    pub directory: PathBuf,
}

impl Environment {
    /// The surroundings of this process. Without a working directory, relative paths stay as they
    /// are and fail where they are used.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            uid: rustix::process::geteuid().as_raw(),
            directory: std::env::current_dir().unwrap_or_default(),
        }
    }

    /// Whether the process runs as root.
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the person asked for no colour (<https://no-color.org>).
    pub fn is_colour_unwanted(&self) -> bool {
        let is_set = |name: &str| self.get(name).is_some_and(|value| !value.is_empty());
        is_set("NO_COLOR") || self.get("TERM").is_some_and(|term| term == "dumb")
    }

    /// The name that the environment gives its user; nobody checked it.
    pub fn user_name(&self) -> Option<&str> {
        self.get("USER")
            .and_then(|name| name.to_str())
            .filter(|name| !name.is_empty())
    }

    /// Where programs are looked up; empty when nothing says so.
    pub fn search_path(&self) -> &OsStr {
        self.get("PATH").map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// The variable's value as a path, if it is absolute.
    pub(super) fn absolute_path(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.get(name)?);
        path.is_absolute().then_some(path)
    }

    /// The settings that variables make.
    pub(super) fn draft(&self) -> Result<Draft, ConfigError> {
        let mut draft = Draft::new();
        for (name, value) in &self.variables {
            let Some(name) = name.to_str().filter(|it| it.starts_with(VARIABLE_PREFIX)) else {
                continue;
            };
            if name == FILE_VARIABLE {
                continue;
            }
            let setting = Setting::of_variable(name).ok_or_else(|| unknown(name))?;
            let text = value.to_str().ok_or_else(|| ConfigError::NotUnicode {
                name: name.to_owned(),
            })?;
            draft
                .set(setting, text, &self.directory)
                .map_err(|source| ConfigError::BadVariable {
                    name: name.to_owned(),
                    source,
                })?;
        }
        Ok(draft)
    }

    /// The settings file that the environment names.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let path = self.get(FILE_VARIABLE)?;
        Some(self.directory.join(Path::new(path)))
    }

    fn get(&self, name: &str) -> Option<&OsString> {
        self.variables.get(OsStr::new(name))
    }
}

/// Names the settings file.
pub(super) const FILE_VARIABLE: &str = "HOMEOSTAT_CONFIG_FILE";

fn unknown(name: &str) -> ConfigError {
    use strum::IntoEnumIterator;
    let known: Vec<String> = Setting::iter().map(Setting::variable).collect();
    let nearest = crate::diagnostic::did_you_mean(name, known.iter().map(String::as_str));
    ConfigError::UnknownVariable {
        name: name.to_owned(),
        nearest: nearest.map(ToOwned::to_owned),
    }
}
