//! What may be typed. The doc comments are the help texts.

use clap::{Args, Parser, Subcommand};

use super::commands::{
    budget, completions, credentials, daemon, demo, describe, dispatch, doctor, estop, events,
    explain, get, init, login, logs, plan, prompt, runs, schema, send, steer, trace, transcript,
    validate, version, volume, wait, why,
};

/// GitOps for coding agents: keep a fleet of agents where a git repository says.
#[derive(Debug, Parser)]
#[command(
    name = "homeostat",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Settings of this host.
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Settings of this host that every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Host settings")]
pub(crate) struct HostArgs {
    /// Read settings from this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<String>,
    /// Keep, or look for, the daemon's state here
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Listen, or reach the daemon, on this UNIX socket
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<String>,
}

/// Where the manifests are.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SourceArgs {
    /// Read manifests from this directory
    #[arg(long, value_name = "DIR", conflicts_with = "source_repo")]
    pub(crate) source: Option<String>,
    /// Read manifests from this git repository
    #[arg(long, value_name = "PATH-OR-URL")]
    pub(crate) source_repo: Option<String>,
    /// Follow this ref of the repository [default: HEAD]
    #[arg(long, value_name = "REF", requires = "source_repo")]
    pub(crate) source_ref: Option<String>,
    /// Read only this directory within the source
    #[arg(long, value_name = "DIR")]
    pub(crate) source_path: Option<String>,
}

/// The subcommands, in the order that help shows them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Daemon(Box<daemon::Args>),
    Init(init::Args),
    Validate(validate::Args),
    Plan(plan::Args),
    Schema(schema::Args),
    Explain(explain::Args),
    Get(get::Args),
    Describe(describe::Args),
    Why(why::Args),
    Trace(trace::Args),
    Events(events::Args),
    Runs(runs::Args),
    Logs(logs::Args),
    Transcript(transcript::Args),
    Prompt(prompt::Args),
    Budget(budget::Args),
    Dispatch(Box<dispatch::Args>),
    Send(send::Args),
    Wait(wait::Args),
    Steer(steer::SteerArgs),
    Stop(steer::StopArgs),
    Takeover(steer::TakeoverArgs),
    Handback(steer::HandbackArgs),
    Pause(steer::PauseArgs),
    Resume(steer::ResumeArgs),
    Reconcile(steer::ReconcileArgs),
    Approve(steer::ApproveArgs),
    Estop(estop::Args),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Credentials(credentials::Args),
    Doctor(doctor::Args),
    Volume(volume::Args),
    Completions(completions::Args),
    Man(completions::ManArgs),
    Version(version::Args),
}
