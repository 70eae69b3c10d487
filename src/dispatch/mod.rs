//! One run of one agent, from the claimed wake to the closed row.
//!
//! [`Runs`] is the registry of the runs that this daemon drives. [`Runs::start`] claims a wake (the
//! one conditional update at the exec boundary) and spawns the task in `runner`. What a run is
//! launched with is resolved in `prepare`; the released agent is followed in `live`, which hears it,
//! tells it what people say, and ends it; what it emits goes through `record` into the run log, the
//! transcript and the database; how it ended is the pure [`classify`]. A run that no task drives any
//! more, because the daemon died, goes through `recover` instead: killed, confirmed, and closed from
//! what its log says.
//!
//! Never here: a choice (the order has them all), or a second try (the planner's).

mod allowance;
pub mod classify;
mod close;
mod handback;
mod ingest;
mod live;
mod log;
mod model;
mod prepare;
mod provider;
mod reach;
mod record;
mod recover;
mod registry;
mod runner;
mod stream;
mod tools;
pub mod transcript;

pub use handback::TreeChange;
pub use log::LogError;
pub use registry::{DispatchError, OnChange, RunSettings, Runs, Started, built_in_prices};
pub use tools::RecordTools;
