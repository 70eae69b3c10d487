//! The truth about processes: who is alive, who belongs to a run, and a stop that is confirmed.
//!
//! A run's first process is its shim. It is identified by pid, start time and boot, so that a
//! reused pid is never taken for it, and signalled through a pidfd, so that nothing can be reused in
//! between. What belongs to a run is found four ways, each of which covers what the others miss: the
//! shim itself, its descendants (it adopts orphans while it lives), processes that carry the run's id
//! in their environment (also after the shim was killed), and the members of the run's cgroup where
//! the host lets us have one.
//!
//! Everything here is synchronous and works without the daemon. "Could not look" is always an error
//! or [`Presence::Unknown`], never "gone". A process that has ended and waits to be reaped counts as
//! gone: it can do nothing any more.
//!
//! Read [`identity`] first, then [`stop`](mod@stop).

pub mod cgroup;
pub mod control;
pub mod deadline;
pub mod estop;
pub mod identity;
pub mod pidfd;
pub mod stop;
pub mod table;

pub use identity::{LookError, Presence, boot_id, identify, is_alive};
pub use pidfd::Pidfd;
pub use stop::{StopError, StopReport, StopTarget, stop};
pub use table::{descendants, sweep};
