//! Worktrees: one self-contained repository per repo of a space, cloned copy-on-write.
//!
//! The operator's source is only ever read. What we keep of it is a bare [`cache`] (fetched), from
//! it frozen checkouts of one tree each ([`seed`]), and from those the worktrees that agents write
//! ([`provision`]). Every path is decided in [`layout`]; every directory that we made carries a
//! [`marker`] that its user cannot write, and only what carries the right one is ever moved or
//! removed ([`trash`]), after its work was saved ([`salvage`]).
//!
//! Never here: a byte copy where a clone was asked for, a write to the source, git over a tree
//! that an agent wrote (that is [`crate::git::confined`]), a link followed.
//!
//! Everything is synchronous; callers bring the threads and the time. Start with
//! [`provision::provision`].

pub mod cache;
pub mod inspect;
pub mod layout;
pub mod marker;
pub mod probe;
pub mod provision;
pub mod reason;
pub mod salvage;
pub mod seed;
pub mod session;
pub mod source;
pub mod space;
pub mod trash;
pub mod unlock;
pub mod volume;

mod engine;
mod lock;
mod readable;
mod run_as;
