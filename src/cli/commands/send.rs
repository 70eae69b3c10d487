//! `send`: say something in a space.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::IntoEnumIterator;

use super::dispatch::text;
use crate::api::dto::{MessageAccepted, MessageRequest};
use crate::cli::client::Client;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::ui::Ui;
use crate::model::wake::Delivery;

/// Say something in a space, and wake the agent that is meant
///
/// `@NAME` means an agent of the space; without it, the space's first agent answers.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Say it in this space: NAME, or WORKSPACE/NAME
    space: String,
    /// Say this; `-` reads it from standard input
    text: String,
    /// Choose what becomes of it while a run of the space is live: tell the run, wait for a run of
    /// its own, or end the run and have the next one
    #[arg(long, value_name = "HOW", default_value = "steer", value_parser = deliveries())]
    delivery: Delivery,
    /// Be answered again, not heard again, when the same key comes twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// What may be typed.
fn deliveries() -> impl TypedValueParser<Value = Delivery> {
    let words = Delivery::iter().map(<&'static str>::from);
    PossibleValuesParser::new(words).try_map(|text| text.parse::<Delivery>())
}

/// Says it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let request = MessageRequest {
        space: args.space.clone(),
        text: text(&args.text)?,
        delivery: args.delivery,
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
