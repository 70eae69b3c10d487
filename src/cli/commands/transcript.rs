//! `transcript`: what a run said and did, folded.

use super::logs::printable;
use crate::api::dto::{Segment, ToolState, Transcript};
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::ui::Ui;

/// Show what a run said and did
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show this run: its id, or the beginning of it
    run: String,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let transcript = Reader::open(host, ui)?.transcript(&args.run)?;
    match args.output {
        Form::Json => ui.json(&transcript)?,
        Form::Text => ui.result(&text(&transcript))?,
    }
    Ok(Exit::Fine)
}

fn text(transcript: &Transcript) -> String {
    let mut text = String::new();
    for segment in &transcript.segments {
        text.push_str(&block(segment));
        text.push('\n');
    }
    printable(&text)
}

/// One segment: a title and its words beneath, or the words alone when the agent says them.
fn block(segment: &Segment) -> String {
    match segment {
        Segment::Text { text } => format!("{}\n", text.trim_end()),
        Segment::Reasoning { text } => titled("thinking", text),
        Segment::Tool {
            name,
            args,
            output,
            output_dropped,
            state,
            ..
        } => {
            let name = name.as_deref().unwrap_or("a tool");
            let state = match state {
                ToolState::Ok => "",
                ToolState::Error => " (failed)",
                ToolState::Running => " (running)",
                ToolState::Interrupted => " (interrupted)",
            };
            let dropped = match output_dropped {
                0 => String::new(),
                bytes => format!(" ({bytes} bytes left out)"),
            };
            let title = format!("{name} {args}{state}{dropped}");
            titled(&title, output)
        }
        Segment::Error { message, .. } => titled("error", message),
        Segment::Violation { operation, source } => titled(
            "denied by the operating system",
            &format!("{operation} ({source})"),
        ),
        Segment::Truncated { bytes } => titled("cut", &format!("{bytes} bytes are missing")),
    }
}

fn titled(title: &str, words: &str) -> String {
    let mut block = format!("[{title}]\n");
    for line in words.trim_end().lines() {
        block.push_str("    ");
        block.push_str(line);
        block.push('\n');
    }
    block
}
