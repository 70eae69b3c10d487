//! How a command ends: an exit code, and for an error also its words.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

/// What a command that could do its work found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Exit {
    /// All is fine.
    Fine,
    /// The answer is no: findings, a failed run, nothing found.
    No,
    /// `plan --detailed-exitcode` alone: there are changes.
    Changes,
    /// The time that was given ran out.
    TimedOut,
}

impl Exit {
    /// [`Exit::Fine`] when `is_fine`, else [`Exit::No`].
    pub(crate) const fn fine_if(is_fine: bool) -> Self {
        if is_fine { Self::Fine } else { Self::No }
    }

    /// The process's exit code (fixed).
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::No => 1,
            Self::Changes => 2,
            Self::TimedOut => 124,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Whose turn it is after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was asked for is not there.
    NotFound,
    /// It was asked wrongly, or it could not be looked.
    Usage,
    /// State or policy forbids it.
    Refused,
    /// No daemon answers.
    Unreachable,
    /// A bug of ours.
    Internal,
    /// The configuration cannot be used at first start.
    Configuration,
}

impl Kind {
    /// The process's exit code (fixed).
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::NotFound => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 5,
            Self::Internal => 70,
            Self::Configuration => 78,
        }
    }
}

/// A command that could not do its work: what failed, why, and what to try next.
#[derive(Debug)]
pub(crate) struct CliError {
    kind: Kind,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl CliError {
    /// An error that is its own cause. `message` is a lower-case fragment without a full stop.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// An error with the chain of `source` below it.
    pub(crate) fn caused(kind: Kind, message: impl Into<String>, source: &dyn Error) -> Self {
        Self::new(kind, message).because(source)
    }

    /// An error that says what `error` says.
    pub(crate) fn of(kind: Kind, error: &dyn Error) -> Self {
        let mut this = Self::new(kind, error.to_string());
        this.causes = chain(error.source());
        this
    }

    /// An error whose words, as modules write them, are read after "failed to".
    pub(crate) fn failed_to(kind: Kind, error: &dyn Error) -> Self {
        let mut this = Self::new(kind, format!("failed to {error}"));
        this.causes = chain(error.source());
        this
    }

    /// The same error with the chain of `source` as its cause.
    #[must_use]
    pub(crate) fn because(mut self, source: &dyn Error) -> Self {
        self.causes = chain(Some(source));
        self
    }

    /// The same error with one more thing to try: a sentence without a full stop.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Whose turn it is.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// What the terminal is told, a newline at the end.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("error: {}\n", self.message);
        for cause in &self.causes {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "  caused by: {cause}").is_ok();
        }
        for hint in &self.hints {
            let _infallible = writeln!(text, "hint: {hint}").is_ok();
        }
        text
    }
}

fn chain(mut source: Option<&dyn Error>) -> Vec<String> {
    let mut causes = Vec::new();
    while let Some(error) = source {
        causes.push(error.to_string());
        source = error.source();
    }
    causes
}

/// `Result` of a command.
pub(crate) type CliResult<T = Exit> = Result<T, CliError>;

/// Turns any error into one that a command may end with.
pub(crate) trait OrFail<T> {
    /// The error, of `kind`, under `message`.
    ///
    /// # Errors
    /// When `self` is one.
    fn or_fail(self, kind: Kind, message: impl Into<String>) -> CliResult<T>;
}

impl<T, E: Error> OrFail<T> for Result<T, E> {
    fn or_fail(self, kind: Kind, message: impl Into<String>) -> CliResult<T> {
        self.map_err(|error| CliError::caused(kind, message, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let exits = [Exit::Fine, Exit::No, Exit::Changes, Exit::TimedOut];
        assert_eq!(exits.map(Exit::code), [0, 1, 2, 124]);
        let kinds = [
            Kind::NotFound,
            Kind::Usage,
            Kind::Refused,
            Kind::Unreachable,
            Kind::Internal,
            Kind::Configuration,
        ];
        assert_eq!(kinds.map(Kind::code), [1, 2, 3, 5, 70, 78]);
    }

    #[test]
    fn an_error_says_what_why_and_what_next() {
        let cause = "x".parse::<u8>().expect_err("not a number");
        let error = CliError::caused(Kind::Usage, "failed to read 'x'", &cause).hint("try 7");
        assert_eq!(
            error.render(),
            "error: failed to read 'x'\n  caused by: invalid digit found in string\nhint: try 7\n"
        );
    }
}
