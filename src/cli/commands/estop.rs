//! `estop`: stop everything now, whether or not the daemon is well.
//!
//! The file comes first: from then on nothing starts. Then the daemon, if it answers, gets a little
//! time to end its runs with a proper record. What is left then, by the records in the database, is
//! ended from here, and confirmed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::dto::Empty;
use crate::cli::client::{self, Client};
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::host::Host;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::model::chain::chain;
use crate::model::id::RunId;
use crate::model::observed::Estop;
use crate::model::run::EndReason;
use crate::process::{self, StopTarget, estop};
use crate::store::{Effect, RunProcess, Store};

/// Stop every run and every start, also when the daemon is sick or down
///
/// It holds until it is cleared. Exits with 0 when every recorded run is confirmed to have ended.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Say why
    #[arg(long, value_name = "TEXT", conflicts_with = "clear")]
    reason: Option<String>,
    /// Let runs start again
    #[arg(long)]
    clear: bool,
}

/// What the daemon gets to answer: one that hangs is not waited for.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// What the daemon gets to end its runs by itself.
const DAEMON_GRACE: Duration = Duration::from_secs(5);
/// How often is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What an agent gets to end by itself when it is ended from here.
const AGENT_GRACE: Duration = Duration::from_secs(1);

/// Sets or clears it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let paths = host.client()?;
    if !paths.data_dir.is_dir() {
        let message = format!("{} is no data directory", paths.data_dir.display());
        return Err(CliError::new(Kind::Usage, message).hint("pass the daemon's --data-dir"));
    }
    let daemon = Client::new(paths.socket.clone())?;
    if args.clear {
        let was_set = estop::clear(&paths.data_dir)
            .or_fail(Kind::Usage, "failed to clear the emergency stop")?;
        poke(&daemon);
        ui.say(if was_set {
            "runs may start again"
        } else {
            "it was not set"
        });
        return Ok(Exit::Fine);
    }
    let stop = Estop {
        by: host.user(),
        reason: args.reason.clone(),
    };
    estop::set(&paths.data_dir, &stop, SystemClock.now())
        .or_fail(Kind::Usage, "failed to set the emergency stop")?;
    ui.say("nothing starts any more");
    let is_answering = poke(&daemon);
    let grace = if is_answering {
        DAEMON_GRACE
    } else {
        Duration::ZERO
    };
    let left = still_live(&paths, grace)?;
    let mut is_confirmed = true;
    let mut ended = Vec::new();
    for run in &left {
        match end(run) {
            Ok(()) => {
                ended.push(run.run);
                ui.line(format_args!("run {} was ended from here", run.run))?;
            }
            Err(error) => {
                is_confirmed = false;
                ui.say(format_args!(
                    "run {} is not confirmed to have ended: {error}",
                    run.run
                ));
            }
        }
    }
    if let Err(error) = record(&paths.database(), &ended, &stop.by) {
        ui.say(format_args!(
            "it is not on record why they ended, so they may be tried again: {error}"
        ));
    }
    if is_confirmed {
        ui.say("no run is left; `homeostat estop --clear` lets runs start again");
    }
    Ok(Exit::fine_if(is_confirmed))
}

/// Tells the daemon to look; whether it answered.
fn poke(daemon: &Client) -> bool {
    let answer = daemon.post_within::<_, Empty>("/v1/poke", &Empty {}, ANSWER_MAX);
    answer.is_ok()
}

/// Runs whose row is live when none is left or `grace` is over.
fn still_live(paths: &config::Client, grace: Duration) -> CliResult<Vec<RunProcess>> {
    let database: PathBuf = paths.database();
    if !database.exists() {
        return Ok(Vec::new());
    }
    let unreadable = "failed to read which runs are live";
    let store = Store::open_read_only(&database).or_fail(Kind::Usage, unreadable)?;
    let begun = SystemClock.monotonic();
    client::runtime()?.block_on(async {
        loop {
            let live = store
                .live_processes()
                .await
                .or_fail(Kind::Usage, unreadable)?;
            let passed = SystemClock.monotonic().saturating_sub(begun);
            if live.is_empty() || passed >= grace {
                return Ok(live);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
}

fn end(run: &RunProcess) -> Result<(), String> {
    let target = StopTarget {
        identity: run.identity.clone(),
        run: run.run,
        cgroup: run.cgroup.as_ref().map(PathBuf::from),
    };
    match process::stop(&target, AGENT_GRACE) {
        Ok(_ended) => Ok(()),
        Err(error) => Err(chain(&error)),
    }
}

/// Records that the emergency stop ended the runs: one that was merely lost would be tried again
/// once it is cleared. It comes after their end, which waits for no database.
fn record(database: &Path, ended: &[RunId], by: &str) -> Result<(), String> {
    if ended.is_empty() {
        return Ok(());
    }
    let store = Store::open(database).map_err(|error| chain(&error))?;
    let runtime = client::runtime().map_err(|_no_room| "no room for an event loop".to_owned())?;
    runtime.block_on(async {
        for run in ended {
            let (by, now) = (by.to_owned(), SystemClock.now());
            let asked = store.request_stop(*run, EndReason::Estop, by, now).await;
            match asked.map_err(|error| chain(&error))? {
                // A row that closed meanwhile is not tried again.
                Effect::Applied | Effect::Unchanged | Effect::Stale(_) => {}
            }
        }
        Ok(())
    })
}
