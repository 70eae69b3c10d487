//! `prompt`: exactly what a run was told.

use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::ui::Ui;

/// Show exactly what a run was told
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show this run: its id, or the beginning of it
    run: String,
    /// Choose the form of the result; text is the prompt to the byte
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let prompt = Reader::open(host, ui)?.prompt(&args.run)?;
    match args.output {
        Form::Json => ui.json(&prompt)?,
        Form::Text => ui.result(&prompt.prompt)?,
    }
    Ok(Exit::Fine)
}
