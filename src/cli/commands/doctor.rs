//! `doctor`: what this host can do, and what to do about what it can't.

use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::adapters::{Declared, declared};
use crate::cli::args::SourceArgs;
use crate::cli::client::runtime;
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::surroundings::Surroundings;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::host::{
    AdapterFinding, AdapterProbe, AdapterReport, AdapterVerdict, Finding, HostReport, Smoke,
    probe_host,
};
use crate::sandbox::RunIdentity;

/// Check what this host can do, by trying, and say what to do about what it cannot
///
/// Nothing is changed. Exits with 1 when the daemon could not do its main job here.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Check this repository as a repo's source
    #[arg(long, value_name = "PATH")]
    repo: Vec<PathBuf>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Debug, Subcommand)]
enum Part {
    Adapters(AdaptersArgs),
}

/// Check whether runs on the Adapters could start: program, version, options and credential
///
/// Programs are asked as the user that runs have. What is checked are the types, and the Adapters
/// of the daemon, its database or a source. Exits with 1 when an Adapter can't be used, or without
/// any, a type.
#[derive(clap::Args, Debug)]
struct AdaptersArgs {
    /// Have each agent take one turn, in an empty HOME, with a model of our own on loopback
    #[arg(long)]
    smoke: bool,
    #[command(flatten)]
    source: SourceArgs,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// All of it as programs read it.
#[derive(Serialize)]
struct Whole<'a> {
    host: &'a HostReport,
    adapters: &'a AdapterReport,
}

/// Checks it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    if let Some(Part::Adapters(args)) = &args.part {
        return adapters(args, host, ui);
    }
    let paths = host.client()?;
    let report = probe_host(&paths.data_dir, &args.repo, host.search_path());
    let declared = declared(&SourceArgs::default(), host, ui).unwrap_or_else(|error| {
        // A sick database is no reason to say nothing of the host.
        ui.say(error.render().trim_end());
        Vec::new()
    });
    let adapters = look(&declared, Turns::None, host, ui)?;
    match args.output {
        Form::Json => ui.json(&Whole {
            host: &report,
            adapters: &adapters,
        })?,
        Form::Text => {
            ui.result(&text(&report))?;
            ui.line("")?;
            ui.result(&adapters_text(&adapters))?;
        }
    }
    // What is there of agents is for whoever wants to use them to say.
    let has_bad_adapter = !declared.is_empty() && !adapters.is_good();
    Ok(Exit::fine_if(report.is_good() && !has_bad_adapter))
}

fn adapters(args: &AdaptersArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let declared = declared(&args.source, host, ui)?;
    let turns = if args.smoke { Turns::One } else { Turns::None };
    let report = look(&declared, turns, host, ui)?;
    match args.output {
        Form::Json => ui.json(&report)?,
        Form::Text => ui.result(&adapters_text(&report))?,
    }
    Ok(Exit::fine_if(report.is_good()))
}

/// How many turns an agent takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    None,
    One,
}

fn look(declared: &[Declared], turns: Turns, host: &Host, ui: &mut Ui) -> CliResult<AdapterReport> {
    let surroundings = Surroundings::look(host)?;
    if !surroundings.is_daemons {
        ui.say("note: PATH and environment are this command's; a daemon's may be others");
    }
    let group = rustix::process::getegid().as_raw();
    let identity = RunIdentity::resolve(host.environment().uid, group, surroundings.run_uid);
    let identity = identity.map_err(|error| CliError::failed_to(Kind::Refused, &error))?;
    let shim = std::env::current_exe().or_fail(Kind::Usage, "failed to find this program")?;
    let data_dir = host.client()?.data_dir;
    let probe = AdapterProbe {
        shim: &shim,
        identity,
        search_path: &surroundings.search_path,
        process: &surroundings.variables,
        data_dir: &data_dir,
        now: SystemClock.now(),
    };
    let no_room = "failed to make a directory to try the Adapters in";
    let mut report = probe.probe(declared).or_fail(Kind::Usage, no_room)?;
    if turns == Turns::One {
        let smoke = probe.smoke(declared, &mut report);
        runtime()?.block_on(smoke).or_fail(Kind::Usage, no_room)?;
    }
    Ok(report)
}

fn text(report: &HostReport) -> String {
    let mut table = Table::new(&["CHECK", "VERDICT", "FOUND", "REMEDY"]);
    for Finding {
        check,
        verdict,
        detail,
        remedy,
    } in &report.findings
    {
        table.row([
            check.to_string(),
            verdict.to_string(),
            detail.clone(),
            remedy.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

fn adapters_text(report: &AdapterReport) -> String {
    let mut table = Table::new(&[
        "ADAPTER",
        "TYPE",
        "VERDICT",
        "VERSION",
        "PROGRAM",
        "CREDENTIAL",
        "TURN",
    ]);
    for finding in &report.findings {
        let program = finding.program.as_ref();
        table.row([
            finding.adapter.clone().unwrap_or_default(),
            finding.r#type.to_string(),
            verdict(finding.verdict).to_owned(),
            finding.version.clone().unwrap_or_default(),
            program
                .map(|it| it.display().to_string())
                .unwrap_or_default(),
            finding.credential.clone().unwrap_or_default(),
            finding.smoke.as_ref().map(turn).unwrap_or_default(),
        ]);
    }
    let problems = report.findings.iter().flat_map(problems);
    table.render() + &problems.collect::<String>()
}

const fn verdict(verdict: AdapterVerdict) -> &'static str {
    match verdict {
        AdapterVerdict::Good => "good",
        AdapterVerdict::Warning => "warning",
        AdapterVerdict::NotInstalled => "not installed",
        AdapterVerdict::Bad => "bad",
    }
}

fn turn(smoke: &Smoke) -> String {
    let Smoke {
        start_ms,
        turn_ms,
        input_tokens,
        output_tokens,
    } = smoke;
    format!(
        "asked after {start_ms} ms, over after {turn_ms} ms, {input_tokens}+{output_tokens} tokens metered"
    )
}

/// Each with its remedy.
fn problems(finding: &AdapterFinding) -> impl Iterator<Item = String> {
    let subject = match &finding.adapter {
        Some(name) => format!("Adapter/{name}"),
        None => finding.r#type.to_string(),
    };
    finding
        .problems
        .iter()
        .map(move |each| format!("{subject}: {}\n  remedy: {}\n", each.problem, each.remedy))
}
