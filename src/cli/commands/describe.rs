//! `describe`: one object, with everything that is known of it.

use std::fmt::Write as _;

use super::select;
use crate::api::dto::{Object, Run, Why};
use crate::api::view::RunQuery;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::model::kind::Kind as ObjectKind;
use crate::yaml;

/// Show one object with its status, its holds and its latest runs
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show this object: KIND/NAME, or KIND/WORKSPACE/NAME
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Runs that are shown.
const RUNS: u32 = 5;

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let (kind, name) = select::subject(&args.object)?;
    let reader = Reader::open(host, ui)?;
    let object = select::one(reader.objects(Some(kind))?.objects, name)?;
    let why = reader.why(&object.reference())?;
    if args.output == Form::Json {
        ui.json(&why)?;
        return Ok(Exit::Fine);
    }
    let runs = match kind {
        ObjectKind::Agent => latest(&reader, Some(object.uid.to_string()), None)?,
        ObjectKind::Space => latest(&reader, None, Some(object.uid.to_string()))?,
        ObjectKind::Fleet
        | ObjectKind::Workspace
        | ObjectKind::Repo
        | ObjectKind::Adapter
        | ObjectKind::BudgetPolicy
        | ObjectKind::Ticket
        | ObjectKind::Dispatch
        | ObjectKind::Schedule => Vec::new(),
    };
    ui.result(&text(&object, &why, &runs))?;
    Ok(Exit::Fine)
}

fn latest(reader: &Reader, agent: Option<String>, space: Option<String>) -> CliResult<Vec<Run>> {
    let query = RunQuery {
        agent,
        space,
        limit: RUNS,
    };
    Ok(reader.runs(&query)?.runs)
}

fn text(object: &Object, why: &Why, runs: &[Run]) -> String {
    let now = SystemClock.now();
    let mut text = String::new();
    let mut facts = vec![
        ("Object", object.reference()),
        ("Uid", object.uid.to_string()),
        ("Generation", object.generation.to_string()),
        ("Revision", object.revision.to_string()),
        ("Created", show::time(object.created_at)),
    ];
    if let Some(origin) = &object.origin {
        facts.push(("Written in", format!("{}:{}", origin.path, origin.line)));
    }
    if let Some(at) = object.deletion_requested_at {
        facts.push(("Removed", format!("{}, finishing", show::time(at))));
    }
    if let Some(ticket) = object.ticket {
        facts.push(("Ticket", ticket.to_string()));
    }
    facts.push(("Why", why.answer.clone()));
    for (name, value) in facts {
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "{name:<12}{value}").is_ok();
    }
    let mut conditions = Table::new(&["CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"]);
    for condition in &object.conditions {
        conditions.row(show::condition(condition, now));
    }
    section(&mut text, "Conditions", &conditions);
    section(&mut text, "Waiting", &super::why::wakes(&why.wakes, now));
    section(&mut text, "Latest runs", &super::runs::table(runs, now));
    if let Some(spec) = object.manifest.as_ref().and_then(|it| it.get("spec")) {
        text.push_str("\nSpec\n");
        for line in yaml::emit(spec).lines() {
            let _infallible = writeln!(text, "  {line}").is_ok();
        }
    }
    text
}

fn section(text: &mut String, title: &str, table: &Table) {
    if table.is_empty() {
        return;
    }
    let _infallible = writeln!(text, "\n{title}").is_ok();
    for line in table.render().lines() {
        let _infallible = writeln!(text, "  {line}").is_ok();
    }
}
