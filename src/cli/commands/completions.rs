//! `completions`, `man`: what shells and readers of manuals want to know, from the definition that
//! the help comes from.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::args::Cli;
use crate::cli::error::{CliResult, Exit, Kind, OrFail};
use crate::cli::ui::Ui;

/// Print completions for a shell
///
/// For bash: `source <(homeostat completions bash)`, or write it where your shell looks for them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print them for this shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual, or write a page for every command
#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// Write the pages to files in this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints completions.
pub(crate) fn run(args: &Args, ui: &mut Ui) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "homeostat", &mut script);
    ui.result(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Fine)
}

/// Prints the manual, or writes its pages.
pub(crate) fn man(args: &ManArgs, ui: &mut Ui) -> CliResult {
    let failed = "failed to write the manual";
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).or_fail(Kind::Usage, failed)?;
        clap_mangen::generate_to(Cli::command(), directory).or_fail(Kind::Usage, failed)?;
        ui.say(format_args!("pages are in {}", directory.display()));
        return Ok(Exit::Fine);
    }
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(Cli::command());
    manual.render(&mut page).or_fail(Kind::Internal, failed)?;
    ui.result(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Fine)
}
