//! `plan`: what a revision would do, before it is accepted. No daemon, no network, and of the
//! database only what it says about now.

mod preview;

use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use jiff::Timestamp;
use preview::{Change, Step, changes_of};
use serde::Serialize;

use super::validate;
use crate::cli::args::SourceArgs;
use crate::cli::client;
use crate::cli::error::{CliResult, Exit, Kind, OrFail};
use crate::cli::form::Form;
use crate::cli::host::{Host, unusable};
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::daemon::source_of;
use crate::manifest::{self, Loaded, ManifestFile};
use crate::model::kind::Revision;
use crate::model::observed::Observed;
use crate::plan::judge::{Approval, Verdict, judge};
use crate::plan::render::Report;
use crate::plan::{PlanInput, plan};
use crate::process::estop;
use crate::source::Source;
use crate::store::Store;

/// Show what a revision would do: what it creates, changes and removes, and the first pass after it
///
/// It is held against what the data directory records, or against nothing. Exits with 1 when the
/// manifests are not valid.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Plan the manifests in this directory [default: the configured source]
    #[arg(value_name = "DIR", conflicts_with_all = ["source", "source_repo"])]
    directory: Option<PathBuf>,
    /// Plan what this commit, branch or tag of the repository at DIR holds
    #[arg(long, value_name = "REV", requires = "directory")]
    rev: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// Exit with 2 when anything would be done
    #[arg(long)]
    detailed_exitcode: bool,
}

/// What a revision would do.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preview {
    revision: Revision,
    /// Why it would be held, if it would be.
    held: Option<String>,
    changes: Vec<Change>,
    /// The first pass after it was accepted.
    pass: Report,
}

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let snapshot = source(args, host)?
        .snapshot(manifest::is_manifest_path)
        .or_fail(Kind::Usage, "failed to take in the source")?;
    let files: Vec<ManifestFile> = snapshot
        .files
        .into_iter()
        .map(|(path, bytes)| ManifestFile { path, bytes })
        .collect();
    let loaded = manifest::load(&files);
    if !loaded.is_valid() {
        validate::report(&files, &loaded, args.output, ui)?;
        return Ok(Exit::No);
    }
    let now = SystemClock.now();
    let observed = observe(&host.client()?, now, ui)?;
    let preview = look_ahead(&loaded, snapshot.revision, observed, now);
    match args.output {
        Form::Json => ui.json(&preview)?,
        Form::Text => ui.result(&text(&preview))?,
    }
    let is_idle = preview.changes.is_empty() && preview.pass.actions.is_empty();
    Ok(if args.detailed_exitcode && !is_idle {
        Exit::Changes
    } else {
        Exit::Fine
    })
}

fn source(args: &Args, host: &Host) -> CliResult<Source> {
    match (&args.directory, &args.rev) {
        (Some(repository), Some(rev)) => Ok(Source::Git {
            repository: repository.clone(),
            reference: rev.clone(),
            subdirectory: String::new(),
        }),
        (Some(directory), None) => Ok(Source::Directory {
            root: directory.clone(),
            subdirectory: String::new(),
        }),
        (None, _) => host
            .layers(args.source.settings())?
            .source()
            .map(|setting| source_of(&setting))
            .map_err(|error| unusable(Kind::Usage, &error)),
    }
}

/// What the data directory records; nothing when there is no database.
fn observe(paths: &config::Client, now: Timestamp, ui: &mut Ui) -> CliResult<Observed> {
    let database = paths.database();
    if !database.exists() {
        ui.say(format_args!(
            "note: {} holds no state; this is a plan against nothing",
            paths.data_dir.display()
        ));
        return Ok(Observed::default());
    }
    let unreadable = "failed to read what the daemon stored";
    let store = Store::open_read_only(&database).or_fail(Kind::Usage, unreadable)?;
    let observed = client::runtime()?.block_on(store.observe(now));
    let mut observed = observed.or_fail(Kind::Usage, unreadable)?;
    observed.estop = estop::read(&paths.data_dir)
        .or_fail(Kind::Usage, "failed to look at the emergency stop")?;
    // A daemon that answers drives its runs; without one, the next start reaps them.
    let is_driven = UnixStream::connect(&paths.socket).is_ok();
    for run in observed.live_runs.values_mut() {
        run.is_attached = is_driven;
    }
    Ok(observed)
}

/// Judges the revision, accepts it in memory, and plans the first pass after that.
fn look_ahead(
    loaded: &Loaded,
    revision: Revision,
    mut observed: Observed,
    now: Timestamp,
) -> Preview {
    let catalog = &loaded.catalog;
    let input = PlanInput {
        catalog,
        observed: &observed,
        now,
    };
    let (held, is_first_held) = match judge(&input, Approval::None) {
        Verdict::Accept {
            first_revision_held,
        } => (None, first_revision_held),
        Verdict::Hold { message, .. } => (Some(message), false),
    };
    let changes = changes_of(catalog, &observed);
    preview::accept(&mut observed, catalog, &revision, is_first_held, now);
    let input = PlanInput {
        catalog,
        observed: &observed,
        now,
    };
    let pass = Report::of(&input, &plan(&input));
    Preview {
        revision,
        held,
        changes,
        pass,
    }
}

fn text(preview: &Preview) -> String {
    let mut text = String::new();
    let count = |step| preview.changes.iter().filter(|it| it.step == step).count();
    let _infallible = writeln!(
        text,
        "revision {}: {} to create, {} to change, {} to remove",
        preview.revision.short(),
        count(Step::Create),
        count(Step::Change),
        count(Step::Remove)
    )
    .is_ok();
    for change in &preview.changes {
        let sign = match change.step {
            Step::Create => '+',
            Step::Change => '~',
            Step::Remove => '-',
        };
        let _infallible = writeln!(text, "  {sign} {}", change.object).is_ok();
    }
    if let Some(held) = &preview.held {
        let _infallible = writeln!(text, "it would be held: {held}").is_ok();
    }
    let _infallible = write!(text, "the first pass after it:\n{}", preview.pass).is_ok();
    text
}
