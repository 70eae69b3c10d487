//! homeostat: GitOps for coding agents.

pub mod clock;
pub mod model;
pub mod process;
pub mod sandbox;
pub mod task;
