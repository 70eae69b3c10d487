//! Logs: structured lines on standard error, for people or as JSON.
//!
//! It never logs by itself, and it never decides what is worth a line.

use std::io::{self, IsTerminal};

use thiserror::Error;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, fmt};

use crate::config::{Log, LogFormat, LogLevel};

/// Logging could not be set up.
#[derive(Debug, Error)]
#[error("failed to set up logging")]
pub struct TelemetryError {
    #[from]
    source: TryInitError,
}

/// Sends the process's events to standard error, as `log` says. Events of libraries are shown
/// from warnings on.
///
/// # Errors
/// When it was done before.
pub fn init(log: Log) -> Result<(), TelemetryError> {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter(log.level)))
        .try_init()?;
    Ok(())
}

fn filter(level: LogLevel) -> Targets {
    let own = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(own.min(LevelFilter::WARN))
        .with_target(env!("CARGO_CRATE_NAME"), own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn libraries_are_shown_from_warnings_on() {
        for (level, own_debug, foreign_debug, foreign_warn) in [
            (LogLevel::Error, false, false, false),
            (LogLevel::Info, false, false, true),
            (LogLevel::Debug, true, false, true),
        ] {
            let filter = filter(level);
            assert_eq!(
                filter.would_enable("homeostat::plan", &Level::DEBUG),
                own_debug
            );
            assert_eq!(filter.would_enable("hyper", &Level::DEBUG), foreign_debug);
            assert_eq!(filter.would_enable("hyper", &Level::WARN), foreign_warn);
        }
    }
}
