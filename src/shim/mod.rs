//! The hidden subcommand that every agent runs under: one small, single-threaded process between
//! the daemon and an agent, without tokio, clap, configuration or log.
//!
//! It leads a session of its own, adopts every orphan that its agent makes, gives up its privileges
//! before it is told anything secret, and does not end before everything that it started has.
//! Neither does the agent outlive its daemon: when the control socket closes, the shim ends it.
//! The agent has the same user as the shim, so that it can kill it; then the kernel kills the agent,
//! and what has escaped from that is found by [`stop`](crate::process::stop()).
//!
//! The conversation is described in [`control`](crate::process::control). Read `run` first.

mod agent;
mod link;
mod privileges;
mod run;
mod setup;
mod signals;
mod supervise;

pub use run::main;
