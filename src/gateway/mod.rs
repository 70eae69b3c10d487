//! Gateways: what a run reaches of the outside world goes through one of these, in the daemon.
//!
//! A gateway belongs to one run. It serves an already bound listener, so that only the place of the
//! bind changes when a run has a network of its own; it knows its run by a token that is worth
//! nothing elsewhere, and it holds what the run must not: the real key. It reports what it sees
//! through a channel and never touches the database.
//!
//! There is one as yet, for a run's model: [`ModelGateway`]. Read `listener`, then `model`.

mod listener;
mod model;

pub use listener::{CONNECTIONS_MAX, ListenError, RunToken, TokenError};
pub use model::{
    ANTHROPIC_PATHS, Client, GatewayError, GatewaySpec, KeyError, MeteredUsage, ModelGateway,
    Notice, REQUEST_BYTES_MAX, Sink, Timeouts, TroubleKind, UpstreamKey, UpstreamTrouble,
};
