//! From the command line to an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use super::args::{Cli, Command};
use super::commands::{schema, validate, version};
use super::error::{CliError, CliResult, Exit, Kind};
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
    let outcome = perform(cli, &mut ui).and_then(|exit| ui.flush().map(|()| exit));
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => fail(&error, &mut ui),
    }
}

fn perform(cli: Cli, ui: &mut Ui) -> CliResult {
    match cli.command {
        Command::Validate(args) => validate::run(&args, ui),
        Command::Schema(args) => schema::run(&args, ui),
        Command::Version(args) => version::run(&args, ui),
    }
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
