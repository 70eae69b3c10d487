//! What this host can do, asked by trying: for `init`, `doctor`, `credentials` and the daemon's
//! first line.
//!
//! Every finding has a remedy. Nothing here changes the host. Start with `probe`, then `adapters`.

mod adapters;
mod key;
mod probe;

pub use adapters::{
    AdapterFinding, AdapterProbe, AdapterReport, AdapterVerdict, Problem, Smoke, SmokeError,
};
pub use key::{KeyError, KeyVerdict, try_key};
pub use probe::{CheckName, Finding, HostReport, Verdict, probe_host};
