//! `version`: which program this is.

use serde::Serialize;

use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::ui::Ui;
use crate::model::kind::API_VERSION;

/// Print the version
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    api_version: &'static str,
}

/// Prints it.
pub(crate) fn run(args: &Args, ui: &mut Ui) -> CliResult {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        api_version: API_VERSION,
    };
    match args.output {
        Form::Text => ui.line(format_args!("homeostat {}", version.version))?,
        Form::Json => ui.json(&version)?,
    }
    Ok(Exit::Fine)
}
