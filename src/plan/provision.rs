//! Provisioning: each active space's root, its agents' overlay directories, and one worktree for
//! each repo of its allowlist, and for no other.

use super::cx::PlanCx;
use super::view::{SpaceView, View};
use crate::model::action::{Action, HoldSubject, TreeOrder};
use crate::model::id::{Uid, WorktreeId};
use crate::model::observed::TreePhase;
use crate::model::units::{BranchName, Name};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let view = cx.view;
    for reference in view.catalog.spaces.keys() {
        let state = view.observed.active(reference);
        let Some(space) = state.and_then(|state| view.spaces.get(&state.uid)) else {
            continue;
        };
        let wanted = missing(view, space);
        let subject = HoldSubject::Object(space.reference.clone());
        if wanted.is_empty() {
            continue;
        }
        if !view.standing.may_begin() {
            cx.hold_for_standing(subject);
            continue;
        }
        for action in wanted {
            cx.act(action, subject.clone());
        }
    }
}

/// What the space lacks, the root before anything in it.
pub(super) fn missing(view: &View<'_>, space: &SpaceView<'_>) -> Vec<Action> {
    let uid = space.state.uid;
    let wanted = view.overlays_wanted(space);
    let root = view.observed.roots.get(&uid);
    let is_leaving = root.is_some_and(|it| it.phase == TreePhase::Reclaiming);
    if wanted.is_empty() || is_leaving {
        return Vec::new();
    }
    let ready = view.ready_root(uid);
    let has_overlay = |agent: &Uid| ready.is_some_and(|it| it.overlays.contains_key(agent));
    let mut actions = Vec::new();
    if !wanted.iter().all(has_overlay) {
        actions.push(Action::EnsureSpaceRoot {
            workspace: space.workspace,
            space: uid,
            generation: space.state.generation,
            agents: wanted.into_iter().collect(),
        });
    }
    if ready.is_some() {
        actions.extend(missing_trees(view, space));
    }
    actions
}

fn missing_trees(view: &View<'_>, space: &SpaceView<'_>) -> Vec<Action> {
    let trees = &view.observed.worktrees;
    let uid = space.state.uid;
    let lacking = space.repos.iter().filter(|(_, repo)| {
        let tree = trees.get(&WorktreeId::of(uid, repo.state.uid));
        tree.is_none_or(|tree| tree.phase == TreePhase::Provisioning)
    });
    let orders = lacking.map(|(name, repo)| {
        let own = space.resource.spec.base_branch.as_ref();
        let base = own.or(repo.resource.spec.default_branch.as_ref());
        TreeOrder {
            worktree: WorktreeId::of(uid, repo.state.uid),
            workspace: space.workspace,
            space: uid,
            generation: space.state.generation,
            repo: repo.state.uid,
            repo_generation: repo.state.generation,
            repo_name: name.to_string(),
            source: repo.resource.spec.source.clone(),
            base_branch: base.cloned(),
            branch: branch_of(&space.reference.name),
        }
    });
    orders
        .map(|order| Action::ProvisionWorktree(Box::new(order)))
        .collect()
}

/// The space's own branch in each of its worktrees.
fn branch_of(space: &Name) -> BranchName {
    let text = format!("homeostat/{space}");
    text.parse()
        .expect("a name is a legal path component of a ref")
}
