//! What should happen: `(catalog, observed, now) → actions and holds`.
//!
//! The planner is a pure, total function. It reads no clock, has no randomness and cannot fail;
//! equal input gives a byte-identical plan. It needs no source of ids either: whatever it creates
//! has an id that is *derived* from its cause ([`model::id`](crate::model::id)), so planning a
//! thing twice, before and after a crash, names the same row. Why the loop woke never gets here.
//!
//! Every choice is made here and none by the executor. What should happen and cannot yet is a
//! hold, with its reason as data. A wake is recorded in one pass and admitted in a later one, when
//! it is observed as durable; likewise an object is forgotten only once nothing of it is observed.
//!
//! Start with [`plan`]; `view` is what the steps read and `cx` is what they write.
//! [`conditions()`](conditions::conditions) says what a plan means for each object,
//! [`judge()`](judge::judge) whether a revision may be accepted at all, and [`render`] how people
//! see a plan.

mod cx;
mod view;

mod overrides;
mod settle;

mod budgets;

mod reap;

mod provision;

mod dispatches;
mod schedules;
mod tickets;

mod admit;
mod converse;
mod gates;

mod prune;
mod reclaim;

pub mod conditions;
pub mod judge;
pub mod render;

use jiff::Timestamp;

use crate::model::action::Plan;
use crate::model::desired::Catalog;
use crate::model::observed::Observed;
use cx::PlanCx;
use view::View;

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// What the accepted revision declares.
    pub catalog: &'a Catalog,
    /// What exists.
    pub observed: &'a Observed,
    /// The instant that is planned for.
    pub now: Timestamp,
}

/// Plans one pass.
///
/// The order is the order of importance: stop what must stop, draw the consequences of what
/// ended, and only then start something new; removal comes last, when it is known what is used.
pub fn plan(input: &PlanInput<'_>) -> Plan {
    let view = View::of(input);
    let mut cx = PlanCx::new(&view);
    overrides::step(&mut cx); //  an emergency stop ends every live run
    settle::step(&mut cx); //     ended runs: the next attempt, the ticket's status
    budgets::step(&mut cx); //    crossings are recorded, pauses set and lifted
    reap::step(&mut cx); //       orphans are confirmed dead, removed things' runs stopped
    provision::step(&mut cx); //  roots, overlays and worktrees of active spaces
    tickets::step(&mut cx); //    assignments wake, running work is in progress
    dispatches::step(&mut cx); // one wake a generation
    schedules::step(&mut cx); //  one wake a slot
    converse::step(&mut cx); //   messages reach the runs of their conversations
    admit::step(&mut cx); //      waiting wakes become runs, or are held
    reclaim::step(&mut cx); //    worktrees and roots that nothing wants
    prune::step(&mut cx); //      objects whose finalizers are done are forgotten
    cx.finish()
}
