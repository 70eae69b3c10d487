//! What the steps read: the input with the look-ups that several of them need.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::PlanInput;
use crate::model::action::{Action, HoldReason};
use crate::model::desired::Catalog;
use crate::model::id::{ConversationId, Uid, WorktreeId};
use crate::model::kind::{Kind, ObjectRef, Resource, Revision};
use crate::model::observed::{
    Backoff, ObjectState, Observed, OperatorPause, SpaceRoot, Takeover, TicketState, TreePhase,
    Worktree,
};
use crate::model::run::{LiveRun, RunTree};
use crate::model::spec::{AgentSpec, FleetSpec, Lifecycle, RepoSpec, SpaceSpec};
use crate::model::ticket::TicketStatus;
use crate::model::units::Name;
use crate::model::wake::Wake;

/// What stands over the whole fleet. The strictest applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: everything goes on.
    Running,
    /// The daemon is stopping; nothing new begins.
    Draining,
    /// Reconciling is suspended; nothing new begins and nothing is removed.
    Suspended,
    /// The emergency stop, in words.
    Stopped(String),
}

impl Standing {
    fn of(fleet: &FleetSpec, observed: &Observed) -> Self {
        if let Some(estop) = &observed.estop {
            let why = estop.reason.as_deref().unwrap_or("no reason given");
            return Self::Stopped(format!("the emergency stop was set by {}: {why}", estop.by));
        }
        if fleet.estop {
            return Self::Stopped("the Fleet declares estop: true".to_owned());
        }
        if fleet.suspend {
            return Self::Suspended;
        }
        if observed.is_draining {
            return Self::Draining;
        }
        Self::Running
    }

    /// Whether new work may begin.
    pub(super) fn may_begin(&self) -> bool {
        *self == Self::Running
    }

    /// Whether new wakes are recorded. Those of a stopped fleet wait where they can be seen; a
    /// suspended fleet does not look for any.
    pub(super) const fn may_record(&self) -> bool {
        match self {
            Self::Running | Self::Draining | Self::Stopped(_) => true,
            Self::Suspended => false,
        }
    }

    /// Whether what is not wanted any more may be removed. A stopping daemon still may.
    pub(super) const fn may_remove(&self) -> bool {
        match self {
            Self::Running | Self::Draining => true,
            Self::Suspended | Self::Stopped(_) => false,
        }
    }

    /// The hold of a thing that waits for it.
    pub(super) fn hold(&self) -> Option<(HoldReason, String)> {
        match self {
            Self::Running => None,
            Self::Draining => Some((HoldReason::Draining, "the daemon is stopping".to_owned())),
            Self::Suspended => Some((
                HoldReason::Suspended,
                "the Fleet declares suspend: true".to_owned(),
            )),
            Self::Stopped(why) => Some((HoldReason::Estop, why.clone())),
        }
    }
}

/// A repo that a space may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepoView<'a> {
    /// Its spec.
    pub(super) resource: &'a Resource<RepoSpec>,
    /// Its state.
    pub(super) state: &'a ObjectState,
}

/// A space that is not being removed.
#[derive(Clone, Debug)]
pub(super) struct SpaceView<'a> {
    /// Its name.
    pub(super) reference: &'a ObjectRef,
    /// Its spec.
    pub(super) resource: &'a Resource<SpaceSpec>,
    /// Its state.
    pub(super) state: &'a ObjectState,
    /// Its workspace.
    pub(super) workspace: Uid,
    /// Its workspace's name.
    pub(super) workspace_name: &'a Name,
    /// Its allowlist, by repo name.
    pub(super) repos: BTreeMap<&'a Name, RepoView<'a>>,
    /// Repos of its allowlist that are not there: removed, declared again, and not yet forgotten.
    pub(super) awaited: Vec<Name>,
}

impl SpaceView<'_> {
    /// Whether the repo is on the allowlist.
    pub(super) fn allows(&self, repo: Uid) -> bool {
        self.repos.values().any(|it| it.state.uid == repo)
    }
}

/// An agent that is not being removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentView<'a> {
    /// Its name.
    pub(super) reference: &'a ObjectRef,
    /// Its spec.
    pub(super) resource: &'a Resource<AgentSpec>,
    /// Its state.
    pub(super) state: &'a ObjectState,
}

impl AgentView<'_> {
    /// Whether git archived it.
    pub(super) fn is_archived(&self) -> bool {
        self.resource.spec.lifecycle == Some(Lifecycle::Archived)
    }
}

/// The input, indexed.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) observed: &'a Observed,
    pub(super) now: Timestamp,
    /// The fleet's settings, or their defaults.
    pub(super) fleet: FleetSpec,
    pub(super) standing: Standing,
    /// Active spaces by uid.
    pub(super) spaces: BTreeMap<Uid, SpaceView<'a>>,
    /// Active agents by uid, archived ones included.
    pub(super) agents: BTreeMap<Uid, AgentView<'a>>,
    /// Every known object by uid, those being removed included.
    objects: BTreeMap<Uid, (&'a ObjectRef, &'a ObjectState)>,
    worktrees_by_space: BTreeMap<Uid, Vec<&'a Worktree>>,
    runs_by_space: BTreeMap<Uid, Vec<&'a LiveRun>>,
    runs_by_ticket: BTreeMap<Uid, Vec<&'a LiveRun>>,
    runs_by_conversation: BTreeMap<ConversationId, &'a LiveRun>,
    agents_waiting_in: BTreeMap<Uid, BTreeSet<Uid>>,
    operator_pauses: BTreeMap<Uid, &'a OperatorPause>,
}

impl<'a> View<'a> {
    pub(super) fn of(input: &PlanInput<'a>) -> Self {
        let PlanInput {
            catalog,
            observed,
            now,
        } = *input;
        let fleet = catalog.fleet_spec();
        let standing = Standing::of(&fleet, observed);
        let objects = observed
            .objects
            .iter()
            .map(|(reference, state)| (state.uid, (reference, state)))
            .collect();
        let mut view = Self {
            catalog,
            observed,
            now,
            fleet,
            standing,
            spaces: BTreeMap::new(),
            agents: BTreeMap::new(),
            objects,
            worktrees_by_space: BTreeMap::new(),
            runs_by_space: BTreeMap::new(),
            runs_by_ticket: BTreeMap::new(),
            runs_by_conversation: BTreeMap::new(),
            agents_waiting_in: BTreeMap::new(),
            operator_pauses: BTreeMap::new(),
        };
        view.index_catalog();
        view.index_observed();
        view
    }

    fn index_catalog(&mut self) {
        let (catalog, observed) = (self.catalog, self.observed);
        for (reference, resource) in &catalog.agents {
            if let Some(state) = observed.active(reference) {
                let agent = AgentView {
                    reference,
                    resource,
                    state,
                };
                self.agents.insert(state.uid, agent);
            }
        }
        for (reference, resource) in &catalog.spaces {
            let (Some(state), Some(workspace), Some(workspace_name)) = (
                observed.active(reference),
                self.workspace_of(reference),
                &reference.workspace,
            ) else {
                continue;
            };
            let names = catalog.repos_of_space(reference);
            let mut repos = BTreeMap::new();
            let mut awaited = Vec::new();
            for name in names {
                let sought = sibling(reference, Kind::Repo, &name);
                let declared = catalog.repos.get_key_value(&sought);
                match (declared, observed.active(&sought)) {
                    (Some((found, resource)), Some(state)) => {
                        repos.insert(&found.name, RepoView { resource, state });
                    }
                    _ => awaited.push(name),
                }
            }
            let space = SpaceView {
                reference,
                resource,
                state,
                workspace,
                workspace_name,
                repos,
                awaited,
            };
            self.spaces.insert(state.uid, space);
        }
    }

    fn index_observed(&mut self) {
        let observed = self.observed;
        for tree in observed.worktrees.values() {
            let trees = self.worktrees_by_space.entry(tree.space).or_default();
            trees.push(tree);
        }
        for run in observed.live_runs.values() {
            self.runs_by_space.entry(run.space).or_default().push(run);
            if let Some(ticket) = run.ticket {
                self.runs_by_ticket.entry(ticket).or_default().push(run);
            }
            self.runs_by_conversation.insert(run.conversation, run);
        }
        for queued in &observed.wakes {
            let waiting = self.agents_waiting_in.entry(queued.wake.space).or_default();
            waiting.insert(queued.wake.agent);
        }
        for pause in &observed.operator_pauses {
            if pause.until.is_none_or(|until| until > self.now) {
                self.operator_pauses.entry(pause.target).or_insert(pause);
            }
        }
    }

    /// The object's name and state, also while it is being removed.
    pub(super) fn object(&self, uid: Uid) -> Option<(&'a ObjectRef, &'a ObjectState)> {
        self.objects.get(&uid).copied()
    }

    /// Whether the object is known and not being removed.
    pub(super) fn is_active(&self, uid: Uid) -> bool {
        self.object(uid)
            .is_some_and(|(_, state)| state.deletion_requested_at.is_none())
    }

    /// The object's name for people; its uid when it is gone.
    pub(super) fn name(&self, uid: Uid) -> String {
        self.object(uid)
            .map_or_else(|| uid.to_string(), |(reference, _)| reference.to_string())
    }

    /// The uid of the active workspace that `reference` belongs to.
    pub(super) fn workspace_of(&self, reference: &ObjectRef) -> Option<Uid> {
        let name = reference.workspace.clone()?;
        let workspace = ObjectRef {
            kind: Kind::Workspace,
            workspace: None,
            name,
        };
        self.observed.active(&workspace).map(|state| state.uid)
    }

    /// The uid of the active object of `kind` that `beside`'s workspace calls `name`.
    pub(super) fn uid_beside(&self, beside: &ObjectRef, kind: Kind, name: &Name) -> Option<Uid> {
        let state = self.observed.active(&sibling(beside, kind, name))?;
        Some(state.uid)
    }

    /// The revision that is planned against.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.observed.revision.clone()
    }

    /// What is remembered of a ticket; one that is new is open and nobody's.
    pub(super) fn ticket_state(&self, ticket: Uid) -> TicketState {
        let known = self.observed.tickets.get(&ticket);
        known.cloned().unwrap_or(TicketState {
            status: TicketStatus::Open,
            assignee: None,
            assignments: 0,
        })
    }

    /// The operator's pause that holds the agent now.
    pub(super) fn operator_pause(&self, agent: Uid) -> Option<&'a OperatorPause> {
        self.operator_pauses.get(&agent).copied()
    }

    /// Who has taken the space over, since when and why, for people; none when nobody has.
    pub(super) fn takeover(&self, space: Uid) -> Option<String> {
        let Takeover {
            by, since, reason, ..
        } = self.observed.takeovers.get(&space)?;
        let why = reason.as_deref().unwrap_or("no reason given");
        Some(format!("taken over by {by} since {since}: {why}"))
    }

    /// Live runs in the space.
    pub(super) fn runs_in_space(&self, space: Uid) -> &[&'a LiveRun] {
        self.runs_by_space.get(&space).map_or(&[], Vec::as_slice)
    }

    /// Live runs about the ticket.
    pub(super) fn runs_of_ticket(&self, ticket: Uid) -> &[&'a LiveRun] {
        self.runs_by_ticket.get(&ticket).map_or(&[], Vec::as_slice)
    }

    /// The live run of the conversation.
    pub(super) fn run_in(&self, conversation: ConversationId) -> Option<&'a LiveRun> {
        self.runs_by_conversation.get(&conversation).copied()
    }

    /// The live run that may write the worktree.
    pub(super) fn run_using(&self, tree: &Worktree) -> Option<&'a LiveRun> {
        let mut runs = self.runs_in_space(tree.space).iter().copied();
        runs.find(|run| run.repos.contains(&tree.repo))
    }

    /// Worktrees of the space, wanted or not.
    pub(super) fn trees_of(&self, space: Uid) -> &[&'a Worktree] {
        let trees = self.worktrees_by_space.get(&space);
        trees.map_or(&[], Vec::as_slice)
    }

    /// The complete worktree of the repo in the space, as a run is told of it.
    pub(super) fn ready_tree(&self, space: Uid, repo: Uid) -> Option<RunTree> {
        let tree = self.observed.worktrees.get(&WorktreeId::of(space, repo))?;
        let base = tree.base.clone()?;
        (tree.phase == TreePhase::Ready).then(|| RunTree {
            id: tree.id,
            repo: tree.repo,
            repo_name: tree.repo_name.clone(),
            path: tree.path.clone(),
            branch: tree.branch.clone(),
            base,
        })
    }

    /// The complete root of the space.
    pub(super) fn ready_root(&self, space: Uid) -> Option<&'a SpaceRoot> {
        let root = self.observed.roots.get(&space)?;
        (root.phase == TreePhase::Ready).then_some(root)
    }

    /// The agents that need an overlay directory in the space: those that serve it and those that
    /// have a wake waiting in it, archived ones excepted.
    pub(super) fn overlays_wanted(&self, space: &SpaceView<'_>) -> BTreeSet<Uid> {
        let serving = space.resource.spec.agents.iter();
        let serving =
            serving.filter_map(|name| self.uid_beside(space.reference, Kind::Agent, name));
        let waiting = self.agents_waiting_in.get(&space.state.uid);
        serving
            .chain(waiting.into_iter().flatten().copied())
            .filter(|uid| self.agents.get(uid).is_some_and(|it| !it.is_archived()))
            .collect()
    }

    /// The failure that keeps `action` from being tried now.
    pub(super) fn failure_of(&self, action: &Action) -> Option<&'a Backoff> {
        if self.observed.backoffs.is_empty() {
            return None;
        }
        let failure = self.observed.backoffs.get(&action.key())?;
        let is_current = failure.generation == action.generation();
        (is_current && failure.waits(self.now)).then_some(failure)
    }

    /// What of the wake's agent, space, ticket and cause went away, if anything did.
    pub(super) fn lost_by(&self, wake: &Wake) -> Option<String> {
        let needed = [Some(wake.agent), Some(wake.space), wake.ticket, wake.cause];
        let lost = needed
            .into_iter()
            .flatten()
            .find(|it| !self.is_active(*it))?;
        Some(match self.object(lost) {
            Some((reference, _)) => format!("{reference} is being removed"),
            None => format!("{lost} was removed"),
        })
    }
}

/// The reference of the object of `kind` that `beside`'s workspace calls `name`.
pub(super) fn sibling(beside: &ObjectRef, kind: Kind, name: &Name) -> ObjectRef {
    ObjectRef {
        kind,
        workspace: beside.workspace.clone(),
        name: name.clone(),
    }
}
