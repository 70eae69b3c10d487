//! The composition root: builds everything in order, runs until told to stop, and stops within its
//! deadlines.
//!
//! Start order: the data directory and its lock, the database, what this host can do, the last good
//! revision, then the loop, the watcher and the socket. Nothing before the loop has an effect that a
//! crash could leave half done.

mod boot;
#[cfg(feature = "test-support")]
pub mod fault;
mod levers;
mod lock;
mod stop;

pub use boot::{BootError, Daemon, Surroundings, source_of};
pub use stop::{Ended, StopSignals};
