//! What a failed action's error means for the next try.

use std::time::Duration;

use jiff::Timestamp;

use super::Attempt;
use crate::dispatch::DispatchError;
use crate::model::backoff;
use crate::model::chain::chain;
use crate::model::observed::Backoff;
use crate::store::StoreError;
use crate::task::TaskError;

/// What an error means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// It may pass.
    Transient,
    /// It stays until the spec changes.
    Terminal,
    /// It was planned against older rows.
    Stale,
    /// It is our mistake.
    Bug,
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The rows have moved on since the plan.
    #[error("act on older rows: {what}")]
    Stale {
        /// What moved.
        what: String,
    },
    /// The database.
    #[error("use the database")]
    Store(#[from] StoreError),
    /// A run.
    #[error("drive a run")]
    Dispatch(#[from] DispatchError),
    /// A blocking step panicked.
    #[error("finish a step")]
    Task(#[from] TaskError),
    /// A worktree could not be made or reclaimed.
    #[error("{message}; {remedy}")]
    Worktree {
        /// The reason code.
        code: String,
        /// What went wrong.
        message: String,
        /// What to try.
        remedy: String,
        /// Whether trying again may help.
        is_transient: bool,
    },
}

/// First wait after a failure; it doubles (design §4).
const BACKOFF_FIRST: Duration = Duration::from_secs(1);

impl ExecuteError {
    /// What it means for the next try.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Stale { .. } => ErrorClass::Stale,
            Self::Store(_) | Self::Dispatch(_) => ErrorClass::Transient,
            Self::Task(_) => ErrorClass::Bug,
            Self::Worktree {
                is_transient: true, ..
            } => ErrorClass::Transient,
            Self::Worktree {
                is_transient: false,
                ..
            } => ErrorClass::Terminal,
        }
    }

    /// The reason code that conditions and holds show.
    fn code(&self) -> &str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Store(_) => "database",
            Self::Dispatch(_) => "dispatch",
            Self::Task(_) => "bug",
            Self::Worktree { code, .. } => code,
        }
    }
}

/// The wait that follows. None where nothing failed: the plan was of older rows.
pub(super) fn backoff(error: &ExecuteError, attempt: &Attempt, now: Timestamp) -> Option<Backoff> {
    let wait = match error.class() {
        ErrorClass::Stale => return None,
        ErrorClass::Transient | ErrorClass::Bug => Some(backoff::backoff(
            BACKOFF_FIRST,
            attempt.failures,
            &attempt.key,
        )),
        ErrorClass::Terminal => None,
    };
    Some(Backoff {
        failures: attempt.failures.saturating_add(1),
        not_before: wait.map(|wait| now.saturating_add(wait).unwrap_or(Timestamp::MAX)),
        generation: attempt.generation,
        code: error.code().to_owned(),
        message: chain(error),
    })
}

#[cfg(test)]
mod tests {
    use super::{Attempt, ErrorClass, ExecuteError, backoff};
    use jiff::Timestamp;

    #[test]
    fn acting_on_older_rows_is_no_failure() {
        let attempt = Attempt {
            key: "k".to_owned(),
            generation: 3,
            failures: 2,
        };
        let what = "the wake is claimed".to_owned();
        let stale = ExecuteError::Stale { what };
        assert_eq!(backoff(&stale, &attempt, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn a_terminal_error_waits_for_the_spec() {
        let error = ExecuteError::Worktree {
            code: "reflinkUnsupported".to_owned(),
            message: "clone".to_owned(),
            remedy: "move".to_owned(),
            is_transient: false,
        };
        assert_eq!(error.class(), ErrorClass::Terminal);
        let attempt = Attempt {
            key: "k".to_owned(),
            generation: 3,
            failures: 0,
        };
        let backoff = backoff(&error, &attempt, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            (backoff.not_before, backoff.failures, backoff.generation),
            (None, 1, 3)
        );
    }
}
