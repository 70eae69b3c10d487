//! The store through its public API, on real files.

mod admission;
mod effects;
#[cfg(feature = "test-support")]
mod faults;
mod files;
mod observed;
mod provider;
mod reservations;
mod revisions;
mod runs;
mod status;
mod told;
mod tools;
mod world;
