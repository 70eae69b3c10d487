//! `plan`: what a revision would do, before it is accepted. No daemon, no network but for a remote
//! source, and of the database only what it says about now.

mod fields;
mod preview;

use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use preview::{Change, Documents, Step, changes_of};
use serde::Serialize;
use serde_json::Value;

use super::validate;
use crate::cli::args::SourceArgs;
use crate::cli::client;
use crate::cli::committed;
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::form::Form;
use crate::cli::host::{Host, snapshot, unusable};
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::config::{self, SourceSetting};
use crate::git::objects::Objects;
use crate::manifest::{self, Loaded, ManifestFile};
use crate::model::kind::Revision;
use crate::model::observed::Observed;
use crate::plan::judge::{Approval, Verdict, judge};
use crate::plan::render::Report;
use crate::plan::{PlanInput, plan};
use crate::process::estop;
use crate::store::Store;

/// Show what a revision would do: what it creates, changes and removes, and the first pass after it
///
/// It is held against what the data directory records, or against nothing; with `--rev A..B` B is
/// held against A, as if A served and nothing had run yet. Exits with 1 when the manifests are not
/// valid.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Plan the manifests in this directory [default: the configured source]
    #[arg(value_name = "DIR", conflicts_with_all = ["source", "source_repo"])]
    directory: Option<PathBuf>,
    /// Plan what this commit, branch or tag of the repository at DIR holds; `A..B` holds B against A
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
    /// The first pass after it was accepted; absent where it is held against a revision, about whose
    /// runs and worktrees nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<Report>,
}

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let now = SystemClock.now();
    let range = args.rev.as_deref().and_then(|rev| rev.split_once(".."));
    let (target, base) = match (&args.directory, range) {
        (Some(repository), Some((from, to))) => {
            let to = if to.is_empty() { "HEAD" } else { to };
            (commit(repository, to)?, Some(commit(repository, from)?))
        }
        _ => (source(args, host)?, None),
    };
    let (revision, files) = take_in(&target, host)?;
    let loaded = manifest::load(&files);
    if !loaded.is_valid() {
        validate::report(&files, &loaded, args.output.into(), ui)?;
        return Ok(Exit::No);
    }
    let before = match &base {
        Some(base) => as_if_served(base, host, now)?,
        None => Before::of_records(&host.client()?, now, ui)?,
    };
    let preview = look_ahead(&loaded, revision, before, now)?;
    match args.output {
        Form::Json => ui.json(&preview)?,
        Form::Text => ui.result(&text(&preview))?,
    }
    let acts = |pass: &Report| !pass.actions.is_empty();
    let is_idle = preview.changes.is_empty() && !preview.pass.as_ref().is_some_and(acts);
    Ok(if args.detailed_exitcode && !is_idle {
        Exit::Changes
    } else {
        Exit::Fine
    })
}

fn source(args: &Args, host: &Host) -> CliResult<SourceSetting> {
    match (&args.directory, &args.rev) {
        (Some(repository), Some(rev)) => commit(repository, rev),
        (Some(directory), None) => Ok(SourceSetting::Directory {
            path: directory.clone(),
            inside: None,
        }),
        (None, _) => host
            .layers(args.source.settings())?
            .source()
            .map_err(|error| unusable(Kind::Usage, &error)),
    }
}

/// The commit that `rev` stands for now.
fn commit(repository: &Path, rev: &str) -> CliResult<SourceSetting> {
    let unreadable = "failed to look for the revision";
    let objects = Objects::open(repository).or_fail(Kind::Usage, unreadable)?;
    let commit = committed::commit(&objects, repository, rev)?;
    Ok(SourceSetting::Repository {
        path: repository.to_owned(),
        reference: commit.to_string(),
        inside: None,
    })
}

fn take_in(source: &SourceSetting, host: &Host) -> CliResult<(Revision, Vec<ManifestFile>)> {
    let snapshot = snapshot(source, host)?;
    let files = snapshot.files.into_iter();
    let files = files.map(|(path, bytes)| ManifestFile { path, bytes });
    Ok((snapshot.revision, files.collect()))
}

/// What a revision is held against.
#[derive(Default)]
struct Before {
    observed: Observed,
    documents: Documents,
    /// Whether it is what really is, rather than a revision alone.
    is_recorded: bool,
}

/// A revision that was accepted on an empty record, and under which nothing has run.
fn as_if_served(source: &SourceSetting, host: &Host, now: Timestamp) -> CliResult<Before> {
    let (revision, files) = take_in(source, host)?;
    let loaded = manifest::load(&files);
    if !loaded.is_valid() {
        let message = format!("revision {} is not valid itself", revision.short());
        return Err(CliError::new(Kind::Usage, message)
            .hint("nothing can be held against it; `homeostat validate` says what is wrong"));
    }
    let mut observed = Observed::default();
    preview::accept(&mut observed, &loaded.catalog, &revision, false, now);
    Ok(Before {
        observed,
        documents: documents_of(&loaded)?,
        is_recorded: false,
    })
}

/// The documents of a revision that was read.
fn documents_of(loaded: &Loaded) -> CliResult<Documents> {
    let documents = loaded.documents.iter();
    documents
        .map(|it| Ok((it.reference.clone(), document(&it.json)?)))
        .collect()
}

fn document(json: &str) -> CliResult<Value> {
    serde_json::from_str(json).or_fail(Kind::Internal, "failed to read a canonical document")
}

impl Before {
    /// What the data directory records; nothing when there is no database.
    fn of_records(paths: &config::Client, now: Timestamp, ui: &mut Ui) -> CliResult<Self> {
        let database = paths.database();
        if !database.exists() {
            ui.say(format_args!(
                "note: {} holds no state; this is a plan against nothing",
                paths.data_dir.display()
            ));
            return Ok(Self {
                is_recorded: true,
                ..Self::default()
            });
        }
        let unreadable = "failed to read what the daemon stored";
        let store = Store::open_read_only(&database).or_fail(Kind::Usage, unreadable)?;
        let runtime = client::runtime()?;
        let mut observed = runtime
            .block_on(store.observe(now))
            .or_fail(Kind::Usage, unreadable)?;
        let objects = runtime
            .block_on(store.objects(None))
            .or_fail(Kind::Usage, unreadable)?;
        let mut documents = Documents::new();
        for object in objects {
            if let Some(json) = &object.json {
                documents.insert(object.reference, document(json)?);
            }
        }
        observed.estop = estop::read(&paths.data_dir)
            .or_fail(Kind::Usage, "failed to look at the emergency stop")?;
        // A daemon that answers drives its runs; without one, the next start reaps them.
        let is_driven = UnixStream::connect(&paths.socket).is_ok();
        for run in observed.live_runs.values_mut() {
            run.is_attached = is_driven;
        }
        Ok(Self {
            observed,
            documents,
            is_recorded: true,
        })
    }
}

/// Judges the revision, accepts it in memory, and plans the first pass after that.
fn look_ahead(
    loaded: &Loaded,
    revision: Revision,
    before: Before,
    now: Timestamp,
) -> CliResult<Preview> {
    let Before {
        mut observed,
        documents,
        is_recorded,
    } = before;
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
    let changes = changes_of(catalog, &observed, [&documents, &documents_of(loaded)?]);
    preview::accept(&mut observed, catalog, &revision, is_first_held, now);
    let input = PlanInput {
        catalog,
        observed: &observed,
        now,
    };
    let pass = is_recorded.then(|| Report::of(&input, &plan(&input)));
    Ok(Preview {
        revision,
        held,
        changes,
        pass,
    })
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
        for field in &change.fields {
            let _infallible = writeln!(text, "      {field}").is_ok();
        }
    }
    if let Some(held) = &preview.held {
        let _infallible = writeln!(text, "it would be held: {held}").is_ok();
    }
    if let Some(pass) = &preview.pass {
        let _infallible = write!(text, "the first pass after it:\n{pass}").is_ok();
    }
    text
}
