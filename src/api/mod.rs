//! The local API: HTTP and JSON over a UNIX socket.
//!
//! [`dto`] is the wire format and nothing else is; [`view`] makes its answers from the store, also
//! for a command line that reads the database itself. Who speaks is what the kernel says of the
//! peer ([`peer`]), never what the peer says of itself. An answer of failure is a [`dto::Problem`].
//!
//! Start with [`server`]: the routes on one screen.

mod act;
pub mod control;
pub mod dto;
mod look;
mod peer;
pub mod problem;
pub mod server;
pub mod view;
