//! homeostat: GitOps for coding agents.

pub mod model;
