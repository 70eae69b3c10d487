//! Reclaiming: worktrees and roots that nothing wants any more, once no run uses them.
//!
//! A worktree is wanted while its space and its repo are there and the repo is on the space's
//! allowlist. A person who has taken the space over keeps what is there until it is handed back.
//! Salvage is the executor's: it happens inside the action, before anything moves.

use super::cx::PlanCx;
use super::view::View;
use crate::model::action::{Action, HoldReason, HoldSubject};
use crate::model::id::Uid;
use crate::model::observed::{TreePhase, Worktree};
use crate::model::run::LiveRun;

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    for tree in view.observed.worktrees.values() {
        if tree.phase == TreePhase::Reclaiming || !is_wanted(view, tree) {
            let action = Action::ReclaimWorktree { worktree: tree.id };
            let what = format!("the worktree of {}", tree.repo_name);
            reclaim(cx, tree.space, action, &what, user_of(view, tree));
        }
    }
    for (space, root) in &view.observed.roots {
        let is_leaving = root.phase == TreePhase::Reclaiming || !view.spaces.contains_key(space);
        if is_leaving && view.trees_of(*space).is_empty() {
            let action = Action::ReclaimSpaceRoot {
                workspace: root.workspace,
                space: *space,
            };
            let run = view.runs_in_space(*space).first().copied();
            reclaim(cx, *space, action, "its root", run);
        }
    }
}

fn is_wanted(view: &View<'_>, tree: &Worktree) -> bool {
    let space = view.spaces.get(&tree.space);
    space.is_some_and(|space| space.allows(tree.repo))
}

/// The run that keeps the worktree: one that writes it, or, in a space that is leaving, any.
fn user_of<'a>(view: &View<'a>, tree: &Worktree) -> Option<&'a LiveRun> {
    if view.spaces.contains_key(&tree.space) {
        view.run_using(tree)
    } else {
        view.runs_in_space(tree.space).first().copied()
    }
}

fn reclaim(cx: &mut PlanCx<'_>, space: Uid, action: Action, what: &str, user: Option<&LiveRun>) {
    let view = cx.view;
    let standing = &view.standing;
    let Some((reference, _)) = view.object(space) else {
        // Nothing is left that could be held for it.
        if user.is_none() && standing.may_remove() {
            cx.push(action);
        }
        return;
    };
    let subject = HoldSubject::Object(reference.clone());
    if let Some(run) = user {
        let agent = view.name(run.agent);
        let message = format!("run {} of {agent} uses {what}", run.id.short());
        cx.hold(subject, HoldReason::RunLive, message);
    } else if let Some(takeover) = view.takeover(space) {
        let message = format!("{what} stays: the space is {takeover}");
        cx.hold(subject, HoldReason::TakenOver, message);
    } else if standing.may_remove() {
        cx.act(action, subject);
    } else {
        cx.hold_for_standing(subject);
    }
}
