//! `dispatch`: ask for one run.

use std::collections::BTreeMap;
use std::io::Read;

use super::wait;
use crate::api::dto::{Accepted, DispatchRequest};
use crate::cli::client::Client;
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::ui::Ui;
use crate::model::spec::Priority;
use crate::model::units::Span;

/// Ask for one run of an agent in a space
///
/// The answer comes at once, when the request is durable; the run starts when nothing holds it.
/// `homeostat why RUN` says what does. With `--wait`, exits with 0 only when the run delivered or
/// answered.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run this agent: NAME, or WORKSPACE/NAME
    #[arg(long, value_name = "NAME")]
    agent: String,
    /// Run it in this space: NAME, or WORKSPACE/NAME
    #[arg(long, value_name = "NAME")]
    space: String,
    /// Run it in this side conversation of the space
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
    /// Say which ticket it is about
    #[arg(long, value_name = "NAME")]
    ticket: Option<String>,
    /// Choose its place in the queue: urgent, high, medium, low or none
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::None)]
    priority: Priority,
    /// Add a variable to its environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Be answered again, not dispatched again, when the same key comes twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the run is over
    #[arg(long)]
    wait: bool,
    /// Wait at most this long
    #[arg(long, value_name = "DURATION", requires = "wait")]
    timeout: Option<Span>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// Tell the agent this; `-` reads it from standard input
    prompt: String,
}

/// Asks for it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let request = DispatchRequest {
        agent: args.agent.clone(),
        space: args.space.clone(),
        conversation: args.conversation.clone(),
        ticket: args.ticket.clone(),
        prompt: text(&args.prompt)?,
        priority: args.priority,
        env: args.env.iter().cloned().collect::<BTreeMap<_, _>>(),
        git_identity: None,
        idempotency_key: args.idempotency_key.clone(),
    };
    let client = Client::new(host.client()?.socket)?;
    let accepted: Accepted = client.post("/v1/dispatch", &request)?;
    let run = accepted.run_id.to_string();
    if !args.wait {
        match args.output {
            Form::Json => ui.json(&accepted)?,
            Form::Text => ui.line(run)?,
        }
        return Ok(Exit::Fine);
    }
    ui.say(format_args!("waiting for run {run}"));
    let waited = wait::until_over(&client, &run, args.timeout)?;
    wait::report(&run, &waited, args.output, ui)
}

/// The text itself, or standard input for `-`.
///
/// # Errors
/// When standard input cannot be read, or is not UTF-8.
pub(crate) fn text(argument: &str) -> CliResult<String> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .take(BYTES_MAX)
        .read_to_string(&mut text)
        .or_fail(Kind::Usage, "failed to read standard input")?;
    if text.trim().is_empty() {
        return Err(CliError::new(Kind::Usage, "standard input holds no text"));
    }
    Ok(text)
}

/// More than the daemon takes: it says so itself.
const BYTES_MAX: u64 = 1 << 20;

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
