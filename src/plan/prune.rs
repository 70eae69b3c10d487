//! Pruning: an object that no revision declares any more is forgotten when its finalizers are
//! done. Nothing of it may be left to observe: no run, no unsettled end, no wake, no worktree.
//!
//! | kind | waits for |
//! |---|---|
//! | Space | its runs, its wakes, its worktrees, its root |
//! | Repo | its worktrees |
//! | Agent, Ticket | its runs, its wakes |
//! | Dispatch, Schedule | its wakes |
//! | Workspace | every object in it |
//! | Fleet, Adapter, BudgetPolicy | nothing |

use std::collections::BTreeSet;

use super::cx::PlanCx;
use super::view::View;
use crate::model::action::{Action, HoldSubject};
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::units::Name;

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    let leaving = view.observed.objects.iter();
    let leaving = leaving.filter(|(_, state)| state.deletion_requested_at.is_some());
    let leaving: Vec<(&ObjectRef, Uid)> = leaving.map(|(it, state)| (it, state.uid)).collect();
    if leaving.is_empty() {
        return;
    }
    let needed = Needed::of(view);
    for (object, uid) in leaving {
        if needed.is_needed(object, uid) {
            continue;
        }
        let subject = HoldSubject::Object(object.clone());
        if view.standing.may_remove() {
            let object = object.clone();
            cx.act(Action::FinishDeletion { object, uid }, subject);
        } else {
            cx.hold_for_standing(subject);
        }
    }
}

/// What something observed still refers to.
struct Needed<'a> {
    /// Agents, spaces and tickets of live and unsettled runs and of waiting wakes, and the
    /// causes of those wakes.
    by_work: BTreeSet<Uid>,
    /// Repos and spaces of worktrees, and spaces of roots.
    by_trees: BTreeSet<Uid>,
    /// Workspaces that something is in.
    populated: BTreeSet<&'a Name>,
}

impl<'a> Needed<'a> {
    fn of(view: &View<'a>) -> Self {
        let observed = view.observed;
        let runs = observed.live_runs.values();
        let runs = runs.flat_map(|run| [Some(run.agent), Some(run.space), run.ticket]);
        let queued = observed.wakes.iter().map(|queued| &queued.wake);
        let wakes = queued.chain(observed.ended_runs.iter().map(|run| &run.wake));
        let wakes = wakes.flat_map(|it| [Some(it.agent), Some(it.space), it.ticket, it.cause]);
        let trees = observed.worktrees.values();
        let trees = trees.flat_map(|tree| [tree.repo, tree.space]);
        let objects = observed.objects.keys();
        Self {
            by_work: runs.chain(wakes).flatten().collect(),
            by_trees: trees.chain(observed.roots.keys().copied()).collect(),
            populated: objects.filter_map(|it| it.workspace.as_ref()).collect(),
        }
    }

    fn is_needed(&self, object: &ObjectRef, uid: Uid) -> bool {
        match object.kind {
            Kind::Workspace => self.populated.contains(&object.name),
            Kind::Space => self.by_work.contains(&uid) || self.by_trees.contains(&uid),
            Kind::Repo => self.by_trees.contains(&uid),
            Kind::Agent | Kind::Ticket | Kind::Dispatch | Kind::Schedule => {
                self.by_work.contains(&uid)
            }
            Kind::Fleet | Kind::Adapter | Kind::BudgetPolicy => false,
        }
    }
}
