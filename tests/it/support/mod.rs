//! Servers that tests talk to.

pub(super) mod model_server;
