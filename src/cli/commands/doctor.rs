//! `doctor`: what this host can do, and what to do about what it can't.

use std::path::PathBuf;

use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::host::{HostReport, probe_host};

/// Check what this host can do, by trying, and say what to do about what it cannot
///
/// Nothing is changed. Exits with 1 when the daemon could not do its main job here.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Check this repository as a repo's source
    #[arg(long, value_name = "PATH")]
    repo: Vec<PathBuf>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Checks it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let paths = host.client()?;
    let report = probe_host(&paths.data_dir, &args.repo, host.search_path());
    match args.output {
        Form::Json => ui.json(&report)?,
        Form::Text => ui.result(&text(&report))?,
    }
    Ok(Exit::fine_if(report.is_good()))
}

fn text(report: &HostReport) -> String {
    let mut table = Table::new(&["CHECK", "VERDICT", "FOUND", "REMEDY"]);
    for finding in &report.findings {
        table.row([
            finding.check.to_string(),
            finding.verdict.to_string(),
            finding.detail.clone(),
            finding.remedy.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}
