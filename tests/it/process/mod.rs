//! Shim, sandbox port and confirmed stop, with real processes. As root they really change user; as
//! anybody else they run as that.

mod launch;
mod refusal;
mod rig;
mod stop;
