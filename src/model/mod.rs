//! The vocabulary: what is legal. Nouns, their quantities and their legal transitions.
//!
//! Nothing here does I/O, reads a clock or fails for an outside reason. Start with
//! [`kind`] and [`spec`] (what an operator writes), then [`observed`] and [`action`] (what the
//! planner reads and asks for).

pub mod action;
pub mod backoff;
pub mod budget;
pub mod chain;
pub mod condition;
pub mod crash;
pub mod cron;
pub mod desired;
pub mod event;
pub mod id;
pub mod kind;
pub mod observed;
pub mod price;
pub mod process;
pub mod remote;
pub mod run;
pub mod spec;
pub mod ticket;
pub mod tool;
pub mod units;
pub mod wake;
pub mod window;
pub mod worktree;
pub mod zone;
