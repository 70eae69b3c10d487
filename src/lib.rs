//! homeostat: GitOps for coding agents.

pub mod clock;
pub mod model;
pub mod task;
