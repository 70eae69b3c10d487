//! What this host can do, asked by trying: for `init`, `doctor` and the daemon's first line.
//!
//! Every finding has a remedy. Nothing here changes the host.

mod probe;

pub use probe::{CheckName, Finding, HostReport, Verdict, probe_host};
