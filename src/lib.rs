//! homeostat: GitOps for coding agents, in one binary.
//!
//! An operator commits YAML that declares agents, budgets, spaces with their repo allowlists and
//! tickets. A daemon reads the commit, provisions isolated copy-on-write worktrees, wakes the
//! agents, bounds and records every run in SQLite, pauses whoever overspends, and can say of
//! anything that does not happen why it does not. Kill it at any instant and start it again:
//! nothing is lost and nothing runs twice.
//!
//! This page is the architecture. Read it, then the modules in the order of the map.
//!
//! # Bird's-eye view
//!
//! ```text
//! source ──hint──▶ trigger queue ──▶ load revision ──▶ decode and check ──▶ accept | reject
//!                                                             │
//!               observe (SQLite, disk, processes) ──▶ plan ──▶ execute ──▶ conditions, holds
//! ```
//!
//! Four questions say where a line of code belongs: *What is legal?* [`model`]. *What should
//! happen?* [`plan`]. *Make it happen:* [`execute`] and [`dispatch`]. *What happened?* [`store`].
//!
//! # Map, in reading order
//!
//! Ring 0, vocabulary, no I/O: [`model`] (nouns and their legal transitions), [`diagnostic`]
//! (findings with exact places), [`yaml`] (the spanned tree), [`clock`], [`task`].
//!
//! Ring 1, pure logic: [`manifest`] (YAML to a catalog, with every fault of every document),
//! [`plan`] (desired, observed, now → actions and holds), [`prompt`] (what an agent is told),
//! [`redact`] (secrets out of what a run says), [`price`] (tokens to money).
//!
//! Ring 2, edges, each hiding one outside thing: [`config`] (this host's settings), [`telemetry`],
//! [`git`], [`process`] and [`shim`] (how a run starts, and how its end is made sure), [`sandbox`],
//! [`source`] (where manifests come from), [`store`] (SQLite), [`credential`] (whose key a run's
//! model calls use), [`worktree`], [`host`], [`tool`] (what a run can call back for), [`gateway`]
//! (what a run reaches of the outside world), [`adapter`].
//!
//! Ring 3, drivers: [`dispatch`] (one run, from claim to close), [`execute`] (one action at a
//! time), [`reconcile`] (the loop).
//!
//! Ring 4, surfaces: [`api`], [`daemon`] (the composition root), [`cli`].
//!
//! # Invariants
//!
//! `cargo xtask tidy` holds the first five mechanically.
//!
//! 1. Modules import each other only along the table in `xtask/src/tidy`. There are no cycles.
//! 2. Rings 0 and 1 are synchronous and total: no I/O, no clock, no environment, no randomness.
//! 3. One module each names the YAML parser ([`yaml`]), SQL ([`store`]), git ([`git`]) and
//!    tokio's spawn ([`task`]).
//! 4. Every diagnostic code has a golden case, every action a plan script, every crash point a
//!    test.
//! 5. Generated files are fresh, and the list of long files and functions only shrinks.
//! 6. Why the loop woke never reaches the planner. Events are hints; the full scan is the truth.
//! 7. A plan leaves no choice to the executor, and equal input gives a byte-equal plan. Ids of what
//!    the planner creates are derived from their cause, so doing a thing twice is doing it once.
//! 8. A worktree, process or lease that exists outside the database has a row written before it is
//!    made and deleted after it is gone.
//! 9. Each refusal to act is a hold, a row with its reason: `homeostat why` reads it.
//! 10. A weaker way is never taken silently: no plain copy for a reflink, no other directory for
//!     a lost worktree. An error with a reason code instead.
//! 11. Text from git, agents and the network is hostile until checked, and everything is bounded.
//!
//! Deliberately absent: a second executor beside the daemon, retries inside an action (the next
//! pass plans again), state that only memory holds, and a plan that depends on event order.

pub mod adapter;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod credential;
pub mod daemon;
pub mod diagnostic;
pub mod dispatch;
pub mod execute;
pub mod gateway;
pub mod git;
pub mod host;
pub mod manifest;
pub mod model;
pub mod plan;
pub mod price;
pub mod process;
pub mod prompt;
pub mod reconcile;
pub mod redact;
pub mod sandbox;
pub mod shim;
pub mod source;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tool;
pub mod worktree;
pub mod yaml;
