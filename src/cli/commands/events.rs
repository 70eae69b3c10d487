//! `events`: what happened in the fleet.

use std::time::Duration;

use super::logs::FOLLOW_WAIT;
use crate::api::dto::DomainEvent;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::ui::Ui;

/// Show what happened in the fleet, oldest first
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Begin behind the event of this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    after: i64,
    /// Go on until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Choose the form of the result; JSON is one event a line
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Shows them.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let reader = Reader::open(host, ui)?;
    let follows = args.follow && reader.is_live();
    let mut after = args.after;
    loop {
        let wait = if follows { FOLLOW_WAIT } else { Duration::ZERO };
        let page = reader.events(after, wait)?;
        for event in &page.events {
            match args.output {
                Form::Json => ui.json_line(event)?,
                Form::Text => ui.line(line(event))?,
            }
        }
        ui.flush()?;
        let is_at_end = page.next == after;
        after = page.next;
        if ui.is_closed() || (is_at_end && !follows) {
            return Ok(Exit::Fine);
        }
    }
}

fn line(event: &DomainEvent) -> String {
    let DomainEvent {
        seq,
        at,
        kind,
        subject,
        payload,
    } = event;
    let time = show::time(*at);
    match show::budget_event(*kind, payload) {
        Some(words) => format!("{seq:<6} {time} {kind} {words}"),
        None => format!("{seq:<6} {time} {kind} {subject} {payload}"),
    }
}
