//! The real program from end to end: a config repository is committed to, the daemon follows, and
//! the program's own commands say what became of it.

mod budget;
mod claude;
mod commit;
mod converse;
mod deaf;
mod demo;
mod estop;
mod flood;
mod login;
mod refusal;
mod revision;
mod rig;
mod shutdown;
mod silence;
mod source;
mod space;
mod takeover;
mod talk;
mod turned;
