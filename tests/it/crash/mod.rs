//! Dying anywhere loses and doubles nothing: a small backlog of work goes on through every named
//! crash point, failed writes and SIGKILLs, and what is left afterwards is held against what the
//! agents themselves have marked. `cargo xtask crash` runs the long form.

mod check;
mod fleet;
mod kills;
mod long;
mod points;
mod records;
mod rig;
mod writes;
