//! From the command line to an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, Command};
use super::commands::{
    budget, completions, credentials, daemon, demo, describe, dispatch, doctor, estop, events,
    explain, get, init, login, logs, plan, prompt, runs, schema, send, steer, trace, transcript,
    validate, version, volume, wait, why,
};
use super::error::{CliError, CliResult, Exit, Kind, OrFail};
use super::host::Host;
use super::ui::Ui;
use crate::config::Environment;

/// Runs the command that `args` (the program's name first) asks for.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let environment = Environment::of_process();
    let is_colour_unwanted = environment.is_colour_unwanted();
    let mut ui = Ui::of_process(is_colour_unwanted);
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(answer) => return answer_of_parser(&answer, &mut ui),
    };
    // A result that could not be handed on was not given.
    let outcome = perform(cli, environment, &mut ui).and_then(|exit| ui.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => fail(&error, &mut ui),
    }
}

fn perform(cli: Cli, environment: Environment, ui: &mut Ui) -> CliResult {
    let host = Host::new(cli.host, environment);
    match &cli.command {
        Command::Demo(args) => demo::run(args, &host, ui),
        Command::Daemon(args) => daemon::run(args, &host, ui),
        Command::Init(args) => init::run(args, &host, ui),
        Command::Validate(args) => validate::run(args, &host, ui),
        Command::Plan(args) => plan::run(args, &host, ui),
        Command::Schema(args) => schema::run(args, ui),
        Command::Explain(args) => explain::run(args, ui),
        Command::Get(args) => get::run(args, &host, ui),
        Command::Describe(args) => describe::run(args, &host, ui),
        Command::Trace(args) => trace::run(args, &host, ui),
        Command::Why(args) => why::run(args, &host, ui),
        Command::Events(args) => events::run(args, &host, ui),
        Command::Runs(args) => runs::run(args, &host, ui),
        Command::Logs(args) => logs::run(args, &host, ui),
        Command::Transcript(args) => transcript::run(args, &host, ui),
        Command::Prompt(args) => prompt::run(args, &host, ui),
        Command::Budget(args) => budget::run(args, &host, ui),
        Command::Dispatch(args) => dispatch::run(args, &host, ui),
        Command::Send(args) => send::run(args, &host, ui),
        Command::Wait(args) => wait::run(args, &host, ui),
        Command::Steer(args) => steer::steer(args, &host, ui),
        Command::Stop(args) => steer::stop(args, &host, ui),
        Command::Takeover(args) => steer::takeover(args, &host, ui),
        Command::Handback(args) => steer::handback(args, &host, ui),
        Command::Pause(args) => steer::pause(args, &host, ui),
        Command::Resume(args) => steer::resume(args, &host, ui),
        Command::Reconcile(args) => steer::reconcile(args, &host, ui),
        Command::Approve(args) => steer::approve(args, &host, ui),
        Command::Estop(args) => estop::run(args, &host, ui),
        Command::Login(args) => login::login(args, &host, ui),
        Command::Logout(args) => login::logout(args, &host, ui),
        Command::Credentials(args) => credentials::run(args, &host, ui),
        Command::Doctor(args) => doctor::run(args, &host, ui),
        Command::Volume(args) => volume::run(args, &host, ui),
        Command::Completions(args) => completions::run(args, ui),
        Command::Man(args) => completions::man(args, ui),
        Command::Version(args) => version::run(args, ui),
    }
}

/// Performs one more command line, in the surroundings of `host`.
pub(super) fn perform_line(line: &[&str], host: &Host, ui: &mut Ui) -> CliResult {
    let cli = Cli::try_parse_from(line).or_fail(
        Kind::Internal,
        "failed to understand a command line of our own",
    )?;
    perform(cli, host.environment().clone(), ui)
}

fn fail(error: &CliError, ui: &mut Ui) -> ExitCode {
    ui.say(error.render().trim_end());
    ExitCode::from(error.kind().code())
}

/// Help and version are results; anything else that the parser says is an error of usage.
fn answer_of_parser(answer: &clap::Error, ui: &mut Ui) -> ExitCode {
    let text = answer.render();
    if answer.use_stderr() {
        ui.say(text.to_string().trim_end());
        return ExitCode::from(Kind::Usage.code());
    }
    let text = if ui.is_coloured() {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    match ui.result(&text).and_then(|()| ui.flush()) {
        Ok(()) => Exit::Fine.into(),
        Err(error) => fail(&error, ui),
    }
}
