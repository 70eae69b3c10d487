//! `send`: say something in a space.

use super::dispatch::text;
use crate::api::dto::{MessageAccepted, MessageRequest};
use crate::cli::client::Client;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::ui::Ui;

/// Say something in a space, and wake the agent that is meant
///
/// `@NAME` means an agent of the space; without it, the space's first agent answers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Say it in this space: NAME, or WORKSPACE/NAME
    space: String,
    /// Say this; `-` reads it from standard input
    text: String,
    /// Be answered again, not heard again, when the same key comes twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Says it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let request = MessageRequest {
        space: args.space.clone(),
        text: text(&args.text)?,
        idempotency_key: args.idempotency_key.clone(),
    };
    let client = Client::new(host.client()?.socket)?;
    let accepted: MessageAccepted = client.post("/v1/messages", &request)?;
    match (args.output, accepted.run_id) {
        (Form::Json, _) => ui.json(&accepted)?,
        (Form::Text, Some(run)) => ui.line(run)?,
        (Form::Text, None) => ui.say("saved; no agent serves this space, so that nobody answers"),
    }
    Ok(Exit::Fine)
}
