//! Gateways: what a run reaches of the outside world goes through one of these, in the daemon.
//!
//! A gateway belongs to one run. It serves an already bound listener, so that only the place of the
//! bind changes when a run has a network of its own; it knows its run by a token that is worth
//! nothing elsewhere, and it holds what the run must not: the real key, and on whose behalf it acts.
//! It reports what it sees through a channel and never touches the database.
//!
//! There are two as yet: [`ModelGateway`] for a run's model, and [`McpGateway`] for the daemon's own
//! tools. Read `listener`, then `model` and `mcp`.

mod listener;
mod mcp;
mod model;

pub use listener::{CONNECTIONS_MAX, ListenError, RunToken, TokenError};
pub use mcp::{MCP_REQUEST_BYTES_MAX, McpGateway, McpSpec};
pub use model::{
    ANTHROPIC_PATHS, Client, GatewayError, GatewaySpec, KeyError, KeyVerdict, MeteredUsage,
    ModelGateway, Notice, REQUEST_BYTES_MAX, Sink, Timeouts, TroubleKind, UpstreamKey,
    UpstreamTrouble,
};
