//! `wait`: until a run is over.

use std::time::Duration;

use crate::api::dto::{WaitStatus, Waited};
use crate::cli::client::Client;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::escape;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::model::units::Span;

/// Wait until a run is over
///
/// Exits with 0 only when the run delivered or answered, with 1 when it ended in any other way,
/// with 124 when the time ran out, which touches nothing.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Wait for this run: its id, or the beginning of it
    run: String,
    /// Wait at most this long
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// How long one question to the daemon waits.
const ASK: Duration = Duration::from_secs(20);

/// Waits.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let client = Client::new(host.client()?.socket)?;
    let waited = until_over(&client, &args.run, args.timeout)?;
    report(&args.run, &waited, args.output, ui)
}

/// Asks until the run is over or the time is up.
///
/// # Errors
/// When no daemon answers, or there is no such run.
pub(crate) fn until_over(client: &Client, run: &str, timeout: Option<Span>) -> CliResult<Waited> {
    patiently(timeout, |patience| {
        let path = format!(
            "/v1/runs/{}/wait?waitSecs={}",
            escape(run),
            patience.seconds
        );
        let waited: Waited = client.get_waiting(&path, patience.ask)?;
        let is_over = waited.status != WaitStatus::Timeout;
        Ok((waited, is_over))
    })
}

/// How long one question may wait for its answer.
pub(crate) struct Patience {
    /// So long.
    pub(crate) ask: Duration,
    /// In whole seconds, as the daemon waits: a rest of less is waited for as one.
    pub(crate) seconds: u64,
}

/// Asks until the answer is a final one or the time is up; the last answer.
pub(crate) fn patiently<T>(
    timeout: Option<Span>,
    mut ask: impl FnMut(Patience) -> CliResult<(T, bool)>,
) -> CliResult<T> {
    let begun = SystemClock.monotonic();
    loop {
        let passed = SystemClock.monotonic().saturating_sub(begun);
        let left = timeout.map(|timeout| timeout.duration().saturating_sub(passed));
        let wait = left.map_or(ASK, |left| left.min(ASK));
        let (answer, is_final) = ask(Patience {
            ask: wait,
            seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
        })?;
        if is_final || left.is_some_and(|left| left <= ASK) {
            return Ok(answer);
        }
    }
}

/// Hands on what came of it.
pub(crate) fn report(run: &str, waited: &Waited, form: Form, ui: &mut Ui) -> CliResult {
    match form {
        Form::Json => ui.json(waited)?,
        Form::Text => {
            let liveness = waited
                .liveness
                .map(|it| format!(", {it}"))
                .unwrap_or_default();
            let error = waited
                .error
                .as_ref()
                .map(|it| format!(": {it}"))
                .unwrap_or_default();
            ui.line(format_args!("{run} {}{liveness}{error}", waited.status))?;
        }
    }
    Ok(match waited.status {
        WaitStatus::Ok => Exit::Fine,
        WaitStatus::Error => Exit::No,
        WaitStatus::Timeout => Exit::TimedOut,
    })
}
