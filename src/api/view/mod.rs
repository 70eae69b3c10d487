//! What the API answers, made from the store: the same for a daemon's clients and for a command
//! line that reads the database itself.
//!
//! Views read and never write. People name things loosely (a name without its workspace, the
//! beginning of an id); [`name`] makes one thing of it, or says why it can't.

mod budget;
mod name;
mod object;
mod run;
mod trace;
mod why;

pub use budget::budgets;
pub(super) use name::find;
pub use object::{object, objects};
pub use run::{RunQuery, events, prompt, run, run_events, runs, transcript};
pub(super) use run::{Sought, sought, waited};
pub use trace::trace;
pub use why::why;
