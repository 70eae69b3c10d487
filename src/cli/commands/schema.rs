//! `schema`: JSON Schemas of the kinds, for editors and other checkers.

use std::fs;
use std::path::PathBuf;

use super::select;
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::ui::Ui;
use crate::manifest::schema;

/// Print the JSON Schemas of the kinds
///
/// Without KIND: one schema that covers every kind, which an editor uses for any manifest.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print the schema of this kind
    #[arg(conflicts_with = "out")]
    kind: Option<String>,
    /// Write the schemas of all kinds to files in this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The schema of every kind at once.
const BUNDLE: &str = "homeostat.schema.json";

/// Prints or writes them.
pub(crate) fn run(args: &Args, ui: &mut Ui) -> CliResult {
    if let Some(directory) = &args.out {
        let failed = || format!("failed to write to {}", directory.display());
        fs::create_dir_all(directory).or_fail(Kind::Usage, failed())?;
        for (name, text) in schema::files() {
            let path = directory.join(&name);
            fs::write(&path, text).or_fail(Kind::Usage, failed())?;
            ui.line(path.display())?;
        }
        return Ok(Exit::Fine);
    }
    if let Some(kind) = &args.kind {
        ui.json(&schema::of_kind(select::kind(kind)?))?;
        return Ok(Exit::Fine);
    }
    let bundle = schema::files().into_iter().find(|(name, _)| name == BUNDLE);
    let (_, text) = bundle
        .ok_or_else(|| CliError::new(Kind::Internal, format!("{BUNDLE} is not generated")))?;
    ui.result(&text)?;
    Ok(Exit::Fine)
}
