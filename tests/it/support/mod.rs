//! What several groups of tests stand on: file systems, and servers to talk to.

pub(super) mod disk;
pub(super) mod git_http;
pub(super) mod model_server;
