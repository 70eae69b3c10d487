//! `why`: why something has not started, was kept, or ended as it did.

use jiff::Timestamp;

use crate::api::dto::{Wake, Why};
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};

/// Say why something waits, runs, was refused or ended
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Ask about this: KIND/NAME, or the id of a wake or a run, or the beginning of one
    subject: String,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Says it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let why = Reader::open(host, ui)?.why(&args.subject)?;
    match args.output {
        Form::Json => ui.json(&why)?,
        Form::Text => ui.result(&text(&why, SystemClock.now()))?,
    }
    Ok(Exit::Fine)
}

fn text(why: &Why, now: Timestamp) -> String {
    let mut text = format!("{}: {}\n", why.subject, why.answer);
    let mut conditions = Table::new(&["CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"]);
    for condition in why.object.iter().flat_map(|object| &object.conditions) {
        conditions.row(show::condition(condition, now));
    }
    for table in [conditions, wakes(&why.wakes, now)] {
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table.render());
        }
    }
    text
}

/// Wakes with what holds them.
pub(crate) fn wakes(wakes: &[Wake], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        "WAKE", "REASON", "STATE", "RUN", "HELD BY", "FOR", "MESSAGE",
    ]);
    for wake in wakes {
        let hold = wake.hold.as_ref();
        table.row([
            wake.id.short(),
            wake.reason.to_string(),
            wake.state.to_string(),
            wake.run_id.short(),
            hold.map(|it| it.reason.to_string()).unwrap_or_default(),
            hold.map(|it| show::age(it.since, now)).unwrap_or_default(),
            hold.map(|it| it.message.clone()).unwrap_or_default(),
        ]);
    }
    table
}
