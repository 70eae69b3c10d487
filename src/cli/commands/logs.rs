//! `logs`: what a run emits, event by event.

use std::time::Duration;

use crate::api::dto::{RunEvent, RunEvents};
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::ui::Ui;
use crate::model::event::AgentEvent;

/// Show the events of a run
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show this run: its id, or the beginning of it
    run: String,
    /// Go on until the run is over
    #[arg(long, short)]
    follow: bool,
    /// Choose the form of the result; JSON is one event a line
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// How long one question to the daemon waits for the next event.
pub(crate) const FOLLOW_WAIT: Duration = Duration::from_secs(20);

/// Shows them.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let reader = Reader::open(host, ui)?;
    let follows = args.follow && reader.is_live();
    let mut after = None;
    loop {
        let wait = if follows { FOLLOW_WAIT } else { Duration::ZERO };
        let page = reader.run_events(&args.run, after, wait)?;
        print(&page, args.output, ui)?;
        let is_at_end = page.next == after;
        after = page.next;
        if page.is_over || ui.is_closed() || (is_at_end && !follows) {
            break;
        }
    }
    Ok(Exit::Fine)
}

fn print(page: &RunEvents, form: Form, ui: &mut Ui) -> CliResult<()> {
    for event in &page.events {
        match form {
            Form::Json => ui.json_line(event)?,
            Form::Text => ui.line(line(event))?,
        }
    }
    ui.flush()
}

fn line(event: &RunEvent) -> String {
    let words = match &event.event {
        AgentEvent::Thinking { text } | AgentEvent::Text { text } => text.clone(),
        AgentEvent::ToolCall { name, args, .. } => format!("{name} {args}"),
        AgentEvent::ToolResult {
            output,
            is_error: true,
            ..
        } => format!("failed: {output}"),
        AgentEvent::ToolResult { output, .. } => output.clone(),
        AgentEvent::Usage { usage, .. } => format!(
            "{} in, {} out, {}",
            usage.input_tokens,
            usage.output_tokens,
            show::cost(usage.cost_micros.map(i64::from))
        ),
        AgentEvent::Error { message, .. } | AgentEvent::Debug { message } => message.clone(),
        AgentEvent::SandboxViolation { operation, source } => format!("{operation} ({source})"),
        AgentEvent::Done {} => String::new(),
    };
    let at = show::time(event.at);
    let name = event.event.type_name();
    // Lines of one event stay together under its name.
    let words = printable(words.trim_end()).replace('\n', "\n    ");
    format!("{at} {name:<16} {words}").trim_end().to_owned()
}

/// Agents' words without what a terminal would act on.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn an_event_is_a_line_and_cannot_drive_the_terminal() {
        let event = |event| RunEvent {
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            event,
        };
        let text = AgentEvent::Text {
            text: "one\ntwo\u{1b}[2J\n".to_owned(),
        };
        assert_eq!(
            line(&event(text)),
            "1970-01-01T00:00:00Z text             one\n    two[2J"
        );
        assert_eq!(
            line(&event(AgentEvent::Done {})),
            "1970-01-01T00:00:00Z done"
        );
    }
}
