//! Which version of the program it is: what `claude --version` prints, and what is too old.

use std::fmt;

use thiserror::Error;

/// The oldest version whose options and events are the ones that are used here.
pub const OLDEST: Version = Version {
    major: 2,
    minor: 1,
    patch: 0,
};

/// A version of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes what it is.
    pub major: u32,
    /// Adds to it.
    pub minor: u32,
    /// Corrects it.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a program is not one that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VersionError {
    /// It prints something else than a version of Claude Code.
    #[error("read a version of Claude Code in {printed:?}")]
    NotClaude {
        /// The beginning of what it prints.
        printed: String,
    },
    /// It is older than [`OLDEST`].
    #[error("use Claude Code {found}, which is older than {OLDEST}")]
    TooOld {
        /// Its version.
        found: Version,
    },
}

impl Version {
    /// The arguments with which the program prints its version.
    pub const ARGUMENTS: [&'static str; 1] = ["--version"];

    /// Reads what the program printed: `2.1.197 (Claude Code)`.
    ///
    /// # Errors
    /// When that is no version of it, or one that is too old.
    pub fn of_output(output: &str) -> Result<Self, VersionError> {
        let found = output
            .trim()
            .strip_suffix("(Claude Code)")
            .and_then(|number| number.trim_end().parse().ok())
            .ok_or_else(|| VersionError::NotClaude {
                printed: output.trim().chars().take(80).collect(),
            })?;
        if found < OLDEST {
            return Err(VersionError::TooOld { found });
        }
        Ok(found)
    }
}

/// A text that is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("read a version of three numbers")]
pub struct NoVersion;

impl std::str::FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let mut numbers = text.split('.').map(str::parse::<u32>);
        let mut next = || numbers.next().and_then(Result::ok).ok_or(NoVersion);
        let version = Self {
            major: next()?,
            minor: next()?,
            patch: next()?,
        };
        match numbers.next() {
            None => Ok(version),
            Some(_) => Err(NoVersion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers_and_a_name() {
        let of = |output| Version::of_output(output).map(|version| version.to_string());
        assert_eq!(of("2.1.197 (Claude Code)\n"), Ok("2.1.197".to_owned()));
        assert_eq!(of("3.0.0 (Claude Code)"), Ok("3.0.0".to_owned()));
        for output in [
            "",
            "2.1.197",
            "2.1 (Claude Code)",
            "2.1.1.1 (Claude Code)",
            "2.1.x (Claude Code)",
            "v2.1.197 (Claude Code)",
            "codex 0.171.0",
        ] {
            let printed = output.to_owned();
            assert_eq!(of(output), Err(VersionError::NotClaude { printed }));
        }
        let error = of("2.0.76 (Claude Code)").map_err(|error| error.to_string());
        let expected = "use Claude Code 2.0.76, which is older than 2.1.0".to_owned();
        assert_eq!(error, Err(expected));
    }
}
