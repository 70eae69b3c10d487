//! The one integration binary, one module an area: linking once is what keeps it quick. A module
//! that is not listed here is a fault of `cargo xtask tidy`. What a test cannot do on this host it
//! says on stderr as `SKIP <test>: <reason>`, which `cargo xtask ci` repeats at its end.
#![cfg(test)]

mod api;
mod bench;
mod claude;
mod cli;
#[cfg(feature = "test-support")]
mod crash;
mod credentials;
mod doctor;
mod e2e;
mod env;
mod fleet;
mod gateway;
mod plan;
mod process;
mod remote;
mod report;
mod schemas;
mod sim;
mod source;
mod store;
mod stream;
mod support;
mod validate;
mod worktree;
mod world;
