//! `daemon`: the program itself.

use crate::cli::args::SourceArgs;
use crate::cli::client::runtime;
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::host::{Host, unusable};
use crate::cli::ui::Ui;
use crate::config::{Resolved, Setting};
#[cfg(feature = "test-support")]
use crate::daemon::fault;
use crate::daemon::{BootError, Daemon, Ended, StopSignals, Surroundings};
#[cfg(feature = "test-support")]
use crate::model::crash::CrashPoint;
use crate::telemetry;

/// Run the daemon in the foreground
///
/// It stops on TERM or INT: nothing new starts, live runs may finish, and a second signal does not
/// wait for them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where the manifests are.
    #[command(flatten)]
    source: SourceArgs,
    /// Make worktrees by copy-on-write clones, or by git on hosts that cannot
    #[arg(long, value_name = "BACKEND", value_parser = ["reflink", "git"])]
    worktree_backend: Option<String>,
    /// Wrap runs where a sandbox is proved, or nowhere
    #[arg(long, value_name = "SWITCH", value_parser = ["on", "off"])]
    sandbox: Option<String>,
    /// Run agents as this user when the daemon is root
    #[arg(long, value_name = "UID")]
    run_uid: Option<String>,
    /// Log as text or as JSON
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    /// Log this and what is graver
    #[arg(long, value_name = "LEVEL", value_parser = ["error", "warn", "info", "debug", "trace"])]
    log_level: Option<String>,
    /// Wait this many milliseconds for the source to be quiet
    #[arg(long, value_name = "MS")]
    debounce_ms: Option<String>,
    /// Look at everything this often, in seconds, with or without a reason
    #[arg(long, value_name = "SECS")]
    resync_secs: Option<String>,
    /// Scan a directory source this often, in seconds
    #[arg(long, value_name = "SECS")]
    scan_secs: Option<String>,
    /// Look at a remote source this often, in seconds [default: 60]
    #[arg(long, value_name = "SECS")]
    poll_secs: Option<String>,
    /// Die on purpose, for tests.
    #[cfg(feature = "test-support")]
    #[command(flatten)]
    faults: Faults,
}

/// Ways to die on purpose.
#[cfg(feature = "test-support")]
#[derive(clap::Args, Debug)]
struct Faults {
    /// Die at the nth pass of a crash point: POINT:N
    #[arg(long, hide = true, value_name = "POINT:N")]
    crash_at: Option<String>,
    /// Panic at the nth pass of a crash point: POINT:N
    #[arg(long, hide = true, value_name = "POINT:N", conflicts_with = "crash_at")]
    panic_at: Option<String>,
    /// Fail the nth write to the database, once
    #[arg(long, hide = true, value_name = "N")]
    fail_write: Option<u64>,
}

/// Runs until it is told to stop.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let config = settings(args, host)?;
    telemetry::init(config.log).or_fail(Kind::Internal, "failed to set up the log")?;
    #[cfg(feature = "test-support")]
    args.faults.arm()?;
    let runtime = runtime()?;
    let (ended, error) = runtime.block_on(serve(&config, host, ui))?;
    for task in &ended.stuck {
        ui.say(format!(
            "{task} did not stop in time; the next start looks after it"
        ));
    }
    ended.leave(runtime);
    error.map_or(Ok(Exit::Fine), Err)
}

/// Starts a daemon and serves; how it ended, and the error that it ended with.
async fn serve(
    config: &Resolved,
    host: &Host,
    ui: &mut Ui,
) -> CliResult<(Ended, Option<CliError>)> {
    let signals = StopSignals::listen().or_fail(Kind::Internal, "failed to listen to signals")?;
    let daemon = start(config, host).await?;
    ui.say(daemon.banner());
    if let Some(why) = daemon.unusable_source().await {
        let error = CliError::new(Kind::Configuration, why)
            .hint("`homeostat validate` shows every fault of a source with its place");
        return Ok((daemon.stop().await, Some(error)));
    }
    let ended = daemon.serve(signals).await;
    let error = ended.failure.as_ref().map(|why| {
        CliError::new(
            Kind::Internal,
            format!("the daemon stopped by itself: {why}"),
        )
        .hint("start it again: it goes on where it was")
    });
    Ok((ended, error))
}

/// Starts a daemon of this program.
pub(crate) async fn start(config: &Resolved, host: &Host) -> CliResult<Daemon> {
    let program = std::env::current_exe().or_fail(Kind::Internal, "failed to find this program")?;
    let surroundings = Surroundings {
        program,
        path: host.search_path().to_string_lossy().into_owned(),
        variables: host.environment().variables.clone(),
    };
    Daemon::start(config, surroundings)
        .await
        .map_err(|error| refuse(&error))
}

fn settings(args: &Args, host: &Host) -> CliResult<Resolved> {
    let mut flags = args.source.settings();
    flags.extend([
        (Setting::WorktreeBackend, args.worktree_backend.clone()),
        (Setting::Sandbox, args.sandbox.clone()),
        (Setting::RunUid, args.run_uid.clone()),
        (Setting::LogFormat, args.log_format.clone()),
        (Setting::LogLevel, args.log_level.clone()),
        (Setting::DebounceMs, args.debounce_ms.clone()),
        (Setting::ResyncSecs, args.resync_secs.clone()),
        (Setting::ScanSecs, args.scan_secs.clone()),
        (Setting::PollSecs, args.poll_secs.clone()),
    ]);
    host.layers(flags)?
        .daemon()
        .map_err(|error| unusable(Kind::Usage, &error))
}

/// A start that was refused is not one that failed.
fn refuse(error: &BootError) -> CliError {
    let kind = match error {
        _ if error.is_refusal() => Kind::Refused,
        _ => Kind::Usage,
    };
    CliError::caused(kind, "the daemon does not start", error)
}

#[cfg(feature = "test-support")]
impl Faults {
    fn arm(&self) -> CliResult<()> {
        if let Some(nth) = self.fail_write {
            fault::fail_write(nth);
        }
        if let Some(text) = &self.crash_at {
            let (point, nth) = place(text)?;
            fault::die_at(point, nth);
        }
        if let Some(text) = &self.panic_at {
            let (point, nth) = place(text)?;
            fault::panic_at(point, nth);
        }
        Ok(())
    }
}

#[cfg(feature = "test-support")]
fn place(text: &str) -> CliResult<(CrashPoint, u32)> {
    let wrong = || CliError::new(Kind::Usage, format!("{text:?} is not POINT:N"));
    let (point, nth) = text.split_once(':').ok_or_else(wrong)?;
    let point = point.parse().map_err(|_unknown| wrong())?;
    let nth = nth.parse().map_err(|_no_number| wrong())?;
    Ok((point, nth))
}
