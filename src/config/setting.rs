//! The list of settings, and one layer of them as it was given.

use std::path::{Path, PathBuf};

use crate::model::remote::RemoteUrl;

use strum::{Display, EnumIter, EnumString, IntoEnumIterator};

/// Every setting, named as in `homeostat.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter, EnumString)]
#[strum(serialize_all = "camelCase")]
pub enum Setting {
    /// Directory of the daemon's state.
    DataDir,
    /// Path of the daemon's UNIX socket.
    Socket,
    /// Directory of manifests.
    Source,
    /// Git repository of manifests: a path, or a URL.
    SourceRepo,
    /// The ref of `sourceRepo` that is followed.
    SourceRef,
    /// The directory within the source that holds the manifests.
    SourcePath,
    /// `text` or `json`.
    LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    LogLevel,
    /// `reflink` or `git`.
    WorktreeBackend,
    /// `on` or `off`.
    Sandbox,
    /// The user id that runs have when the daemon is root.
    RunUid,
    /// How long the source must be quiet before it is read, in milliseconds.
    DebounceMs,
    /// Time between two full passes, in seconds.
    ResyncSecs,
    /// Time between two scans of a directory source, in seconds.
    ScanSecs,
    /// Time between two looks at a remote source, in seconds.
    PollSecs,
}

/// What a setting's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A path; relative ones start where the layer says.
    Path,
    /// The same, or a URL.
    Repository,
    /// A directory within the source: names with `/` between.
    Inside,
    /// A word or other text.
    Text,
    /// A whole number in these limits.
    Number {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
}

/// Prefix of the variables.
pub const VARIABLE_PREFIX: &str = "HOMEOSTAT_CONFIG_";

impl Setting {
    /// The variable's whole name.
    pub fn variable(self) -> String {
        let mut name = VARIABLE_PREFIX.to_owned();
        for c in self.to_string().chars() {
            if c.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        name
    }

    /// The setting of a variable's whole name.
    pub fn of_variable(name: &str) -> Option<Self> {
        Self::iter().find(|setting| setting.variable() == name)
    }

    /// What its value is.
    pub const fn form(self) -> Form {
        match self {
            Self::DataDir | Self::Socket | Self::Source => Form::Path,
            Self::SourceRepo => Form::Repository,
            Self::SourcePath => Form::Inside,
            Self::SourceRef
            | Self::LogFormat
            | Self::LogLevel
            | Self::WorktreeBackend
            | Self::Sandbox => Form::Text,
            Self::RunUid => Form::Number {
                min: 1,
                // The last two ids mean "no change" to the kernel, or nothing.
                max: 0xffff_fffd,
            },
            Self::DebounceMs => Form::Number {
                min: 0,
                max: 60_000,
            },
            Self::ResyncSecs | Self::ScanSecs | Self::PollSecs => Form::Number {
                min: 1,
                max: 86_400,
            },
        }
    }

    /// The words that it takes, where there is a choice.
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::LogFormat => &["text", "json"],
            Self::LogLevel => &["error", "warn", "info", "debug", "trace"],
            Self::WorktreeBackend => &["reflink", "git"],
            Self::Sandbox => &["on", "off"],
            Self::DataDir
            | Self::Socket
            | Self::Source
            | Self::SourceRepo
            | Self::SourceRef
            | Self::SourcePath
            | Self::RunUid
            | Self::DebounceMs
            | Self::ResyncSecs
            | Self::ScanSecs
            | Self::PollSecs => &[],
        }
    }

    /// What is expected of its value, in words.
    pub fn expected(self) -> String {
        match self.form() {
            Form::Path => "a path".to_owned(),
            Form::Repository => "a path or a URL".to_owned(),
            Form::Inside => "a directory within the source, such as `teams/shop`".to_owned(),
            Form::Number { min, max } => format!("a whole number from {min} to {max}"),
            Form::Text if self.words().is_empty() => "text".to_owned(),
            Form::Text => format!("one of {}", self.words().join(", ")),
        }
    }
}

/// One layer of settings as given: valid one by one, not yet together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    values: std::collections::BTreeMap<Setting, String>,
}

impl Draft {
    /// A layer without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `setting` from text. Relative paths start at `base`.
    ///
    /// # Errors
    /// When the text is not what [`Setting::expected`] says.
    pub fn set(&mut self, setting: Setting, text: &str, base: &Path) -> Result<(), BadValue> {
        let bad = || BadValue {
            expected: setting.expected(),
        };
        if text.is_empty() || text.contains('\0') {
            return Err(bad());
        }
        let value = match setting.form() {
            Form::Repository if RemoteUrl::is_meant(text) => text.to_owned(),
            Form::Path | Form::Repository => {
                let path = base.join(text);
                path.to_str().ok_or_else(bad)?.to_owned()
            }
            Form::Inside => inside(text).ok_or_else(bad)?.to_owned(),
            Form::Number { min, max } => {
                let digits = text.bytes().all(|b| b.is_ascii_digit());
                let number = text.parse::<u64>().ok().filter(|_| digits);
                let number = number.filter(|n| (min..=max).contains(n));
                number.ok_or_else(bad)?.to_string()
            }
            Form::Text if setting.words().is_empty() || setting.words().contains(&text) => {
                text.to_owned()
            }
            Form::Text => return Err(bad()),
        };
        self.values.insert(setting, value);
        Ok(())
    }

    /// The value of `setting`.
    pub(super) fn get(&self, setting: Setting) -> Option<&str> {
        self.values.get(&setting).map(String::as_str)
    }

    /// The path that `setting` names.
    pub(super) fn path(&self, setting: Setting) -> Option<PathBuf> {
        self.get(setting).map(PathBuf::from)
    }

    /// The number that `setting` is.
    pub(super) fn number(&self, setting: Setting) -> Option<u64> {
        self.get(setting).and_then(|text| text.parse().ok())
    }

    /// Whether it holds nothing of the source.
    pub(super) fn has_source(&self) -> bool {
        SOURCE
            .iter()
            .any(|setting| self.values.contains_key(setting))
    }

    /// This layer over a weaker one. What names the source is one setting in four parts: a layer
    /// that names any of them decides alone.
    #[must_use]
    pub fn over(mut self, weaker: Self) -> Self {
        let has_source = self.has_source();
        for (setting, value) in weaker.values {
            if !(has_source && SOURCE.contains(&setting)) {
                self.values.entry(setting).or_insert(value);
            }
        }
        self
    }
}

const SOURCE: [Setting; 4] = [
    Setting::Source,
    Setting::SourceRepo,
    Setting::SourceRef,
    Setting::SourcePath,
];

/// The directory without a slash at its end, if it leads nowhere but down.
fn inside(text: &str) -> Option<&str> {
    let directory = text.trim_end_matches('/');
    let is_down = |name: &str| !matches!(name, "" | "." | "..");
    directory.split('/').all(is_down).then_some(directory)
}

/// A text that a setting does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}")]
pub struct BadValue {
    expected: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(settings: &[(Setting, &str)]) -> Draft {
        let mut draft = Draft::new();
        for (setting, text) in settings {
            draft.set(*setting, text, Path::new("/base")).unwrap();
        }
        draft
    }

    #[test]
    fn names_are_one_word_in_three_spellings() {
        assert_eq!(Setting::DataDir.to_string(), "dataDir");
        assert_eq!(Setting::DataDir.variable(), "HOMEOSTAT_CONFIG_DATA_DIR");
        for setting in Setting::iter() {
            assert_eq!(Setting::of_variable(&setting.variable()), Some(setting));
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
    }

    #[test]
    fn values_are_checked_one_by_one() {
        for (setting, right, wrong) in [
            (Setting::DataDir, "var", ""),
            (Setting::LogFormat, "json", "xml"),
            (Setting::Sandbox, "off", "maybe"),
            (Setting::RunUid, "1000", "0"),
            (Setting::DebounceMs, "0", "60001"),
            (Setting::ScanSecs, "5", "+5"),
            (Setting::PollSecs, "60", "0"),
            (Setting::SourceRef, "main", "ma\0in"),
            (Setting::SourcePath, "teams/shop/", "teams/../../shop"),
            (Setting::SourcePath, ".fleet", "/teams"),
            (Setting::SourcePath, "..teams", "."),
        ] {
            let base = Path::new("/");
            assert!(Draft::new().set(setting, right, base).is_ok(), "{setting}");
            assert!(Draft::new().set(setting, wrong, base).is_err(), "{setting}");
        }
        let relative = draft(&[(Setting::Socket, "run/h.sock")]);
        assert_eq!(relative.get(Setting::Socket), Some("/base/run/h.sock"));
        for (text, value) in [
            ("fleet", "/base/fleet"),
            ("./a:b", "/base/./a:b"),
            ("git@h:fleet", "git@h:fleet"),
            ("https://h/fleet", "https://h/fleet"),
        ] {
            let repository = draft(&[(Setting::SourceRepo, text)]);
            assert_eq!(repository.get(Setting::SourceRepo), Some(value));
        }
    }

    #[test]
    fn a_stronger_layer_decides_and_a_source_is_never_mixed() {
        let strong = draft(&[(Setting::Source, "/here"), (Setting::LogLevel, "debug")]);
        let weak = draft(&[
            (Setting::SourceRepo, "/there"),
            (Setting::SourceRef, "main"),
            (Setting::LogLevel, "warn"),
            (Setting::LogFormat, "json"),
        ]);
        let both = strong.over(weak);
        assert_eq!(
            both,
            draft(&[
                (Setting::Source, "/here"),
                (Setting::LogLevel, "debug"),
                (Setting::LogFormat, "json"),
            ])
        );
    }
}
