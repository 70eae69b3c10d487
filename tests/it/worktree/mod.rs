//! Worktrees on real file systems, from real repositories, with the real git.

mod fixture;
mod inspect;
mod provision;
mod refusal;
mod salvage;
mod trash;
mod volume;
