//! `trace`: which commit, file and line made a run.

use std::fmt::Write as _;

use crate::api::dto::{Trace, TracedObject};
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::table::Table;
use crate::cli::ui::Ui;

/// Show which commit, file and line made a run
///
/// Files and lines are those of the revision that serves now.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Trace this run: its id, or the beginning of it
    run: String,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let trace = Reader::open(host, ui)?.trace(&args.run)?;
    match args.output {
        Form::Json => ui.json(&trace)?,
        Form::Text => ui.result(&text(&trace))?,
    }
    Ok(Exit::Fine)
}

fn text(trace: &Trace) -> String {
    let Trace { run, revision, .. } = trace;
    let mut woken = run.reason.to_string();
    if let Some(by) = &run.requested_by {
        woken.push_str(&format_by(by));
    }
    let mut commit = revision.revision.to_string();
    if let Some(author) = &revision.author {
        commit.push_str(&format_by(author));
    }
    if let Some(at) = revision.committed_at {
        commit.push_str(", ");
        commit.push_str(&show::time(at));
    }
    if !revision.is_current {
        commit.push_str(" (another one serves now)");
    }
    let mut text = String::new();
    for (name, value) in [
        ("Run", format!("{}, {}", run.id, show::outcome(run))),
        ("Woken by", woken),
        ("Revision", commit),
    ] {
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "{name:<10}{value}").is_ok();
    }
    let mut table = Table::new(&["ROLE", "OBJECT", "WRITTEN IN", "SINCE REVISION", "NOTE"]);
    for object in &trace.objects {
        table.row(row(object));
    }
    text.push('\n');
    text.push_str(&table.render());
    text
}

fn format_by(person: &str) -> String {
    format!(", {person}")
}

fn row(object: &TracedObject) -> [String; 5] {
    let origin = object.origin.as_ref();
    let note = match (object.has_changed, origin) {
        (_, None) => "being removed",
        (true, Some(_)) => "changed since the run began",
        (false, Some(_)) => "",
    };
    [
        object.role.clone(),
        object.object.clone(),
        origin.map_or_else(String::new, |it| format!("{}:{}", it.path, it.line)),
        object.revision.short().to_owned(),
        note.to_owned(),
    ]
}
