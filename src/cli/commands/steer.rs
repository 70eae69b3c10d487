//! `stop`, `steer`, `pause`, `resume`, `reconcile`, `approve`: one request each.

use super::dispatch::text;
use super::wait::patiently;
use crate::api::dto::{
    Empty, HandedBack, PauseRequest, Paused, Reconciling, Resumed, SourceRead, SourceStatus,
    SteerAccepted, SteerOutcome, SteerRequest, TakenOver, TakeoverRequest,
};
use crate::cli::client::Client;
use crate::cli::error::{CliError, CliResult, Exit, Kind};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::escape;
use crate::cli::show;
use crate::cli::ui::Ui;
use crate::model::units::Span;

/// End a run; one that has not started yet never will
#[derive(clap::Args, Debug)]
pub(crate) struct StopArgs {
    /// End this run: its id, or the beginning of it
    run: String,
}

/// Say something to the agent of a live run, which goes on
///
/// An agent that can't be told while it works answers afterwards, in a run of its own.
#[derive(clap::Args, Debug)]
pub(crate) struct SteerArgs {
    /// Say it to this run's agent: the run's id, or the beginning of it
    run: String,
    /// Say this; `-` reads it from standard input
    text: String,
    /// Be answered again, not heard again, when the same key comes twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Hold an agent's wakes; its live runs go on
#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    /// Pause this agent: NAME, or WORKSPACE/NAME
    agent: String,
    /// Pause it for this long; else until it is resumed
    #[arg(long = "for", value_name = "DURATION")]
    for_: Option<Span>,
    /// Say why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Take back operators' pauses of an agent, and nothing else
#[derive(clap::Args, Debug)]
pub(crate) struct ResumeArgs {
    /// Resume this agent: NAME, or WORKSPACE/NAME
    agent: String,
}

/// Look at the source and at everything else now
///
/// What failed is tried again at once, also what waited for a change of its manifest. With --wait it
/// exits with 0 when the source's revision is accepted, with 1 when it is rejected or held, with 2
/// when the source can't be read, with 124 when the time ran out.
#[derive(clap::Args, Debug)]
pub(crate) struct ReconcileArgs {
    /// Wait until the source as it is now was read, and print what became of its revision
    #[arg(long)]
    wait: bool,
    /// Wait at most this long
    #[arg(long, value_name = "DURATION", requires = "wait")]
    timeout: Option<Span>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Work in a space yourself: its runs end, and none starts until you hand it back
#[derive(clap::Args, Debug)]
pub(crate) struct TakeoverArgs {
    /// Take this space over: NAME, or WORKSPACE/NAME
    space: String,
    /// Say why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Hand a space back to its agents, who are told what changed
#[derive(clap::Args, Debug)]
pub(crate) struct HandbackArgs {
    /// Hand this space back: NAME, or WORKSPACE/NAME
    space: String,
}

/// Let a held revision pass
#[derive(clap::Args, Debug)]
pub(crate) struct ApproveArgs {
    /// Approve this revision: its id, or the beginning of it
    revision: String,
}

/// Ends a run.
pub(crate) fn stop(args: &StopArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let path = format!("/v1/runs/{}/stop", escape(&args.run));
    let Empty {} = client(host)?.post(&path, &Empty {})?;
    ui.say(format_args!("run {} is being stopped", args.run));
    Ok(Exit::Fine)
}

/// Steers a run. What it prints is the id by which the answering run can be asked for.
pub(crate) fn steer(args: &SteerArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let request = SteerRequest {
        text: text(&args.text)?,
        idempotency_key: args.idempotency_key.clone(),
    };
    let path = format!("/v1/runs/{}/steer", escape(&args.run));
    let accepted: SteerAccepted = client(host)?.post(&path, &request)?;
    if args.output == Form::Json {
        ui.json(&accepted)?;
        return Ok(Exit::Fine);
    }
    ui.say(match accepted.outcome {
        SteerOutcome::Steering => "the agent is told",
        SteerOutcome::QueuedAsFollowUp => {
            "queued as a follow-up: the agent takes no messages while it works"
        }
    });
    ui.line(accepted.run_id)?;
    Ok(Exit::Fine)
}

/// Pauses an agent.
pub(crate) fn pause(args: &PauseArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let request = PauseRequest {
        for_secs: args.for_.map(Span::secs),
        reason: args.reason.clone(),
    };
    let path = format!("/v1/agents/{}/pause", escape(&args.agent));
    let paused: Paused = client(host)?.post(&path, &request)?;
    match paused.until {
        Some(until) => ui.say(format_args!(
            "{} is paused until {}",
            paused.agent,
            show::time(until)
        )),
        None => ui.say(format_args!(
            "{} is paused until it is resumed",
            paused.agent
        )),
    }
    Ok(Exit::Fine)
}

/// Resumes an agent.
pub(crate) fn resume(args: &ResumeArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let path = format!("/v1/agents/{}/resume", escape(&args.agent));
    let resumed: Resumed = client(host)?.post(&path, &Empty {})?;
    let agent = &resumed.agent;
    match resumed.removed {
        0 => ui.say(format_args!("no operator had paused {agent}")),
        1 => ui.say(format_args!("1 pause of {agent} was taken back")),
        count => ui.say(format_args!("{count} pauses of {agent} were taken back")),
    }
    ui.say(format_args!(
        "`homeostat why {agent}` says whether anything else holds it"
    ));
    Ok(Exit::Fine)
}

/// Takes a space over. What it prints are the paths of its worktrees.
pub(crate) fn takeover(args: &TakeoverArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let request = TakeoverRequest {
        reason: args.reason.clone(),
    };
    let path = format!("/v1/spaces/{}/takeover", escape(&args.space));
    let taken: TakenOver = client(host)?.post(&path, &request)?;
    let space = &taken.space;
    match taken.ending.len() {
        0 => ui.say(format_args!("{space} is yours")),
        count => ui.say(format_args!(
            "{space} is yours once its live run{} ended",
            if count == 1 { " has" } else { "s have" }
        )),
    }
    for tree in &taken.trees {
        ui.line(tree)?;
    }
    Ok(Exit::Fine)
}

/// Hands a space back.
pub(crate) fn handback(args: &HandbackArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let path = format!("/v1/spaces/{}/handback", escape(&args.space));
    let handed: HandedBack = client(host)?.post(&path, &Empty {})?;
    ui.line(&handed.message)?;
    Ok(Exit::Fine)
}

/// Asks for a pass, and waits for the source's revision if that is wanted.
pub(crate) fn reconcile(args: &ReconcileArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let client = client(host)?;
    let Reconciling { reading } = client.post("/v1/reconcile", &Empty {})?;
    ui.say("the daemon is looking");
    if !args.wait {
        return Ok(Exit::Fine);
    }
    let read = patiently(args.timeout, |patience| {
        let path = format!("/v1/source?reading={reading}&waitSecs={}", patience.seconds);
        let read: SourceRead = client.get_waiting(&path, patience.ask)?;
        let is_known = read.status != SourceStatus::Pending;
        Ok((read, is_known))
    })?;
    if args.output == Form::Json {
        ui.json(&read)?;
    } else if let Some(revision) = &read.revision {
        ui.line(format_args!("{revision} {}", read.status))?;
    }
    let reason = read.reason.unwrap_or_default();
    match read.status {
        SourceStatus::Accepted => Ok(Exit::Fine),
        SourceStatus::Rejected | SourceStatus::Held => {
            ui.say(reason);
            Ok(Exit::No)
        }
        SourceStatus::Unreadable => {
            let message = format!("the source is {reason}");
            Err(CliError::new(Kind::Usage, message))
        }
        SourceStatus::Pending => {
            ui.say("the source was not read in time");
            Ok(Exit::TimedOut)
        }
    }
}

/// Approves a revision.
pub(crate) fn approve(args: &ApproveArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let path = format!("/v1/revisions/{}/approve", escape(&args.revision));
    let Empty {} = client(host)?.post(&path, &Empty {})?;
    ui.say(format_args!("revision {} is approved", args.revision));
    Ok(Exit::Fine)
}

fn client(host: &Host) -> CliResult<Client> {
    Client::new(host.client()?.socket)
}
