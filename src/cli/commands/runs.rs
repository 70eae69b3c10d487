//! `runs`: what was done, newest first.

use jiff::Timestamp;
use serde_json::json;

use crate::api::dto::Run;
use crate::api::view::RunQuery;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::yaml;

/// List runs, newest first, or show one with all that is recorded of it
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show this run: its id, or the beginning of it
    #[arg(conflicts_with_all = ["agent", "space", "limit"])]
    run: Option<String>,
    /// Show only runs of this agent: NAME, or WORKSPACE/NAME
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Show only runs in this space: NAME, or WORKSPACE/NAME
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
    /// Show at most this many
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Lists them, or shows the one.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    if let Some(id) = &args.run {
        let run = Reader::open(host, ui)?.run(id)?;
        match args.output {
            Form::Json => ui.json(&run)?,
            Form::Text => ui.result(&yaml::emit(&json!(run)))?,
        }
        return Ok(Exit::Fine);
    }
    let query = RunQuery {
        agent: args.agent.clone(),
        space: args.space.clone(),
        limit: args.limit,
    };
    let list = Reader::open(host, ui)?.runs(&query)?;
    match args.output {
        Form::Json => ui.json(&list)?,
        Form::Text if list.runs.is_empty() => ui.say("no runs"),
        Form::Text => ui.result(&table(&list.runs, SystemClock.now()).render())?,
    }
    Ok(Exit::Fine)
}

/// Runs as a table.
pub(crate) fn table(runs: &[Run], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        "RUN", "AGENT", "SPACE", "WOKEN BY", "TRY", "OUTCOME", "COST", "AGE", "SUMMARY",
    ]);
    for run in runs {
        table.row([
            run.id.short(),
            run.agent_name.clone(),
            run.space_name.clone(),
            run.reason.to_string(),
            (run.attempt + 1).to_string(),
            show::outcome(run),
            show::cost(run.usage.cost_micros),
            show::age(run.started_at, now),
            first_line(run.summary.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

/// The first line, cut to what a table has room for.
fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= CHARS_MAX {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(CHARS_MAX - 1).collect();
    cut.push('…');
    cut
}
