//! homeostat: GitOps for coding agents.

pub mod adapter;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod diagnostic;
pub mod dispatch;
pub mod execute;
pub mod git;
pub mod host;
pub mod manifest;
pub mod model;
pub mod plan;
pub mod process;
pub mod prompt;
pub mod sandbox;
pub mod shim;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod worktree;
pub mod yaml;
