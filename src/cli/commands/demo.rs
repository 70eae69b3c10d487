//! `demo`: the main job on a throw-away directory, offline.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::daemon;
use crate::cli::client::runtime;
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::host::{Host, unusable};
use crate::cli::run::perform_line;
use crate::cli::show;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::config::{Resolved, Setting};
use crate::daemon::{Daemon, Ended};
use crate::git::command::{Git, GitError};
use crate::model::condition::{ConditionStatus, ConditionType};
use crate::model::event::DomainEventType;
use crate::model::id::Uid;
use crate::model::observed::WorktreeBackend;
use crate::store::{OutboxEvent, Store, StoreError};
use crate::worktree::probe::probe;

/// Watch the main job once, offline, in a throw-away directory
///
/// Two sample repositories, a config repository and a daemon; two scripted agents make real
/// commits in worktrees of their own. One crosses its budget and is paused, one goes on.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Work in this directory, which is not there yet
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The config repository, as the examples have it.
const FLEET: [(&str, &str); 4] = [
    (
        "agents.yaml",
        include_str!("../../../examples/demo/agents.yaml"),
    ),
    (
        "fleet.yaml",
        include_str!("../../../examples/demo/fleet.yaml"),
    ),
    (
        "work.yaml",
        include_str!("../../../examples/demo/work.yaml"),
    ),
    (
        "workspace.yaml",
        include_str!("../../../examples/demo/workspace.yaml"),
    ),
];

/// The sample repositories that it declares.
const REPOSITORIES: [(&str, &[(&str, &str)]); 2] = [
    (
        "storefront",
        &[
            ("README.md", "# Storefront\n\nWhat customers see.\n"),
            (
                "src/cart.js",
                "export const total = (lines) => lines.reduce((s, l) => s + l.price, 0);\n",
            ),
            (
                "src/search.js",
                "export const search = (items, word) => items.filter((i) => i.name.includes(word));\n",
            ),
        ],
    ),
    (
        "inventory",
        &[
            ("README.md", "# Inventory\n\nWhat is in stock.\n"),
            ("stock.csv", "item,count\nteapot,3\ncup,12\n"),
        ],
    ),
];

/// It ends long before; this is for a machine that is stuck.
const TIME_MAX: Duration = Duration::from_secs(120);
/// Pause between two looks at the events.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the demo and leaves its directory behind, to be looked at.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let place = Place::make(args.dir.as_deref())?;
    ui.say(format!("demo: working in {}", place.root.display()));
    place.write_repositories()?;
    let config = place.settings(host, ui)?;
    let runtime = runtime()?;
    let (ended, told) = runtime.block_on(watch(&config, host, ui))?;
    ended.leave(runtime);
    let Some(last_run) = told? else {
        let message = format!("the demo did not finish within {} s", TIME_MAX.as_secs());
        return Err(CliError::new(Kind::Internal, message)
            .hint(format!("its state is in {}", place.root.display())));
    };
    place.show(&last_run, host, ui)
}

/// Starts the daemon, tells what happens, and stops it when all work is done. How it ended, and the
/// last run's id; none when time was up first.
async fn watch(
    config: &Resolved,
    host: &Host,
    ui: &mut Ui,
) -> CliResult<(Ended, CliResult<Option<String>>)> {
    let daemon = daemon::start(config, host).await?;
    ui.say(daemon.banner());
    let told = tell(&daemon, ui).await;
    let ended = daemon.stop().await;
    let told = told.or_fail(Kind::Internal, "failed to follow the daemon");
    Ok((ended, told))
}

async fn tell(daemon: &Daemon, ui: &mut Ui) -> Result<Option<String>, StoreError> {
    let clock = SystemClock;
    let (store, started) = (daemon.store(), clock.monotonic());
    let (mut seen, mut last_run) = (0, None);
    loop {
        let elapsed = clock.monotonic().saturating_sub(started);
        for event in store.outbox_after(seen, 100).await? {
            seen = event.seq;
            if let Some(line) = line(store, &event).await? {
                ui.say(format!("{:>5.1}s  {line}", elapsed.as_secs_f64()));
            }
            if event.r#type == DomainEventType::AgentRunCompleted {
                last_run = Some(event.subject);
            }
        }
        if is_done(store, clock.now()).await? {
            return Ok(last_run);
        }
        if elapsed > TIME_MAX {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether every ticket is finished, nothing waits or runs, and the agent that a budget paused is
/// shown as paused.
async fn is_done(store: &Store, now: Timestamp) -> Result<bool, StoreError> {
    let observed = store.observe(now).await?;
    let is_idle = observed.wakes.is_empty()
        && observed.live_runs.is_empty()
        && observed.ended_runs.is_empty();
    let are_over = observed
        .tickets
        .values()
        .all(|ticket| ticket.status.is_terminal());
    let Some(paused) = observed.budget_pauses.keys().find_map(|scope| scope.uid) else {
        return Ok(false);
    };
    let is_shown = store.conditions(paused).await?.iter().any(|stored| {
        stored.condition.kind == ConditionType::Paused
            && stored.condition.status == ConditionStatus::True
    });
    Ok(is_idle && !observed.tickets.is_empty() && are_over && is_shown)
}

/// An event in words; none for what only programs care about.
async fn line(store: &Store, event: &OutboxEvent) -> Result<Option<String>, StoreError> {
    let payload = &event.payload;
    let name = |key: &'static str| name_of(store, payload.get(key));
    Ok(match event.r#type {
        DomainEventType::RevisionAccepted => Some(format!("revision accepted: {}", event.subject)),
        DomainEventType::SpaceProvisioned => {
            let space = name_of(store, Some(&Value::String(event.subject.clone()))).await?;
            Some(format!("worktree ready in {space}"))
        }
        DomainEventType::TicketAssigned => None,
        DomainEventType::AgentRunStarted => Some(format!(
            "{} starts in {}",
            name("agent").await?,
            name("space").await?
        )),
        DomainEventType::AgentRunCompleted => {
            let text = |key: &str| {
                payload
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or("-")
                    .to_owned()
            };
            let cost = show::cost(payload.get("costMicros").and_then(Value::as_i64));
            let (agent, summary) = (name("agent").await?, text("summary"));
            let (status, liveness) = (text("status"), text("liveness"));
            Some(format!(
                "{agent} ends: {status}/{liveness}, {cost}: {summary}"
            ))
        }
        DomainEventType::BudgetThresholdCrossed => {
            show::budget_event(event.r#type, payload).map(|it| format!("budget crossed: {it}"))
        }
        DomainEventType::RevisionRejected
        | DomainEventType::RevisionHeld
        | DomainEventType::MessageReceived
        | DomainEventType::TicketStatusChanged
        | DomainEventType::BudgetPauseLifted
        | DomainEventType::SpaceReclaimed => None,
    })
}

/// The name of the object that a payload's uid stands for.
async fn name_of(store: &Store, uid: Option<&Value>) -> Result<String, StoreError> {
    let uid = uid
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<Uid>().ok());
    let Some(uid) = uid else {
        return Ok("?".to_owned());
    };
    let reference = store.reference_of(uid).await?;
    Ok(reference.map_or_else(|| uid.short(), |reference| reference.name.to_string()))
}

/// The demo's directory.
struct Place {
    root: PathBuf,
}

impl Place {
    fn make(dir: Option<&Path>) -> CliResult<Self> {
        let root = match dir {
            Some(dir) => {
                fs::create_dir(dir)
                    .or_fail(Kind::Usage, format!("failed to make {}", dir.display()))?;
                fs::canonicalize(dir)
                    .or_fail(Kind::Usage, format!("failed to find {}", dir.display()))?
            }
            None => tempfile::Builder::new()
                .prefix("homeostat-demo-")
                .tempdir()
                .or_fail(Kind::Usage, "failed to make a temporary directory")?
                .keep(),
        };
        // A root daemon's agents are another user, who passes through here.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))
            .or_fail(Kind::Usage, format!("failed to open {}", root.display()))?;
        Ok(Self { root })
    }

    fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }

    fn write_repositories(&self) -> CliResult<()> {
        let fleet: &[(&str, &str)] = &FLEET;
        for (name, files) in REPOSITORIES.into_iter().chain([("fleet", fleet)]) {
            let directory = self.root.join(name);
            let failed = || format!("failed to write {}", directory.display());
            for (path, text) in files {
                let path = directory.join(path);
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent).or_fail(Kind::Usage, failed())?;
                }
                fs::write(path, text).or_fail(Kind::Usage, failed())?;
            }
            commit(&directory).or_fail(Kind::Usage, failed())?;
        }
        Ok(())
    }

    /// Settings for a daemon here; the git backend where the directory can't reflink, said aloud.
    fn settings(&self, host: &Host, ui: &mut Ui) -> CliResult<Resolved> {
        let backend = match probe(&self.root) {
            Ok(()) => WorktreeBackend::Reflink,
            Err(refusal) => {
                ui.say(format!(
                    "this directory can't clone files copy-on-write ({}), so the demo declares \
                     --worktree-backend git: ordinary checkouts",
                    refusal.reason
                ));
                WorktreeBackend::Git
            }
        };
        let text = |path: PathBuf| Some(path.to_string_lossy().into_owned());
        let flags = vec![
            (Setting::DataDir, text(self.data_dir())),
            (
                Setting::Socket,
                text(self.data_dir().join("homeostat.sock")),
            ),
            (Setting::SourceRepo, text(self.root.join("fleet"))),
            (Setting::SourceRef, Some("main".to_owned())),
            (Setting::WorktreeBackend, Some(backend.to_string())),
        ];
        host.layers(flags)?
            .daemon()
            .map_err(|error| unusable(Kind::Usage, &error))
    }

    /// The tables, each under the command that shows it, then what to try next.
    fn show(&self, last_run: &str, host: &Host, ui: &mut Ui) -> CliResult {
        let data_dir = self.data_dir().to_string_lossy().into_owned();
        for command in [
            &["get", "agents"][..],
            &["get", "tickets"],
            &["runs"],
            &["budget"],
        ] {
            ui.line(format!("\n$ homeostat {}", command.join(" ")))?;
            let mut line = vec!["homeostat", "--data-dir", &data_dir];
            line.extend(command);
            let _shown = perform_line(&line, host, ui)?;
        }
        ui.line(format!(
            "\nTry next:\n  \
             homeostat --data-dir {data_dir} why agent/shop/max\n  \
             homeostat --data-dir {data_dir} transcript {last_run}\n  \
             homeostat init my-fleet"
        ))?;
        Ok(Exit::Fine)
    }
}

/// Makes the directory a repository with one commit of all that is in it.
fn commit(directory: &Path) -> Result<(), GitError> {
    Git::new(directory, "init")
        .args(["--quiet", "--initial-branch=main"])
        .run()?;
    Git::new(directory, "add").arg("--all").run()?;
    Git::new(directory, "commit")
        .args(["--quiet", "--message", "Begin"])
        .setting("user.name=homeostat demo")
        .setting("user.email=demo@homeostat.invalid")
        .run()?;
    Ok(())
}
