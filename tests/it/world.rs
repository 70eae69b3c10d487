//! A world in memory that plans are applied to: what the store, the disk and the processes would
//! be. Every action is applied as an executor would, idempotently and only while it still fits,
//! and what must never happen is asserted at each step.

use std::collections::{BTreeMap, BTreeSet};

use homeostat::model::action::{Action, Plan, TicketChange, TreeOrder};
use homeostat::model::budget::{BudgetPause, Incident, Reservation, ScopeKey, Spend, Totals};
use homeostat::model::desired::Catalog;
use homeostat::model::id::{ConversationId, MessageId, RunId, Uid, WakeId};
use homeostat::model::kind::{Kind, ObjectRef, Revision};
use homeostat::model::observed::{
    ObjectState, Observed, ProviderPause, SpaceRoot, TicketState, TreePhase, Worktree,
    WorktreeBackend,
};
use homeostat::model::run::{
    EndReason, EndedRun, ErrorFamily, LiveRun, Liveness, ProviderAsk, RunOrder, RunStatus,
};
use homeostat::model::spec::{BudgetScopeKind, Lifecycle, Priority};
use homeostat::model::ticket::TicketStatus;
use homeostat::model::units::Name;
use homeostat::model::wake::{Delivery, QueuedWake, Wake, WakeReason};
use homeostat::model::window::Window;
use homeostat::plan::{PlanInput, plan};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How a run ends.
pub(crate) type Ending = (RunStatus, Liveness, EndReason);

/// The world.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) catalog: Catalog,
    pub(crate) observed: Observed,
    pub(crate) now: Timestamp,
    /// Month-to-date spend by budget: what the ledger would sum up.
    pub(crate) spent: BTreeMap<ObjectRef, (String, Totals)>,
    /// The wakes that live runs serve.
    claimed: BTreeMap<RunId, Wake>,
    /// The Adapter of every run.
    adapters: BTreeMap<RunId, String>,
    /// What is set aside for live runs, and in which scopes.
    reserved: BTreeMap<RunId, (Reservation, Vec<ScopeKey>)>,
    /// Every wake ever recorded: recording one again changes nothing.
    recorded: BTreeSet<WakeId>,
    sequence: i64,
    /// How often each object was minted, so that a deleted and created one is another.
    minted: BTreeMap<ObjectRef, u32>,
    revisions: u32,
}

impl World {
    pub(crate) fn at(now: &str) -> Self {
        Self {
            catalog: Catalog::default(),
            observed: Observed {
                backend: Some(WorktreeBackend::Reflink),
                ..Observed::default()
            },
            now: now.parse().unwrap(),
            spent: BTreeMap::new(),
            claimed: BTreeMap::new(),
            adapters: BTreeMap::new(),
            reserved: BTreeMap::new(),
            recorded: BTreeSet::new(),
            sequence: 0,
            minted: BTreeMap::new(),
            revisions: 0,
        }
    }

    /// Accepts a revision, as the store does.
    pub(crate) fn accept(&mut self, catalog: Catalog, holds_first: bool) -> Revision {
        self.revisions += 1;
        let revision = Revision::new(format!("rev{}", self.revisions));
        let is_first = self.observed.revision.is_none();
        let index = catalog.index();
        for (reference, it) in &index {
            if let Some(state) = self.observed.objects.get_mut(reference)
                && state.spec_hash != it.spec_hash
            {
                it.spec_hash.clone_into(&mut state.spec_hash);
                state.generation += 1;
                state.revision = revision.clone();
                state.generation_since = self.now;
            }
        }
        for (reference, state) in &mut self.observed.objects {
            if !index.contains_key(reference) && state.deletion_requested_at.is_none() {
                state.deletion_requested_at = Some(self.now);
            }
        }
        drop(index);
        self.catalog = catalog;
        self.observed.revision = Some(revision.clone());
        self.mint(is_first && holds_first);
        revision
    }

    /// Gives an identity to every declared object that has none. One that was declared again
    /// while it was being removed gets a new one when the old is forgotten.
    fn mint(&mut self, holds_first: bool) {
        let revision = self.observed.revision.clone().unwrap();
        for (reference, it) in self.catalog.index() {
            if self.observed.objects.contains_key(&reference) {
                continue;
            }
            let minted = self.minted.entry(reference.clone()).or_default();
            *minted += 1;
            let uid = Uid::derived(&[&reference.to_string(), &minted.to_string()]);
            let is_held = holds_first && reference.kind.is_run_once();
            let state = ObjectState {
                uid,
                generation: 1,
                spec_hash: it.spec_hash.to_owned(),
                revision: revision.clone(),
                created_at: self.now,
                generation_since: self.now,
                dispatched_generation: None,
                first_revision_generation: is_held.then_some(1),
                deletion_requested_at: None,
            };
            self.observed.objects.insert(reference, state);
        }
    }

    /// Every wake ever recorded.
    pub(crate) const fn recorded(&self) -> &BTreeSet<WakeId> {
        &self.recorded
    }

    pub(crate) fn input(&self) -> PlanInput<'_> {
        PlanInput {
            catalog: &self.catalog,
            observed: &self.observed,
            now: self.now,
        }
    }

    pub(crate) fn plan(&mut self) -> Plan {
        if self.observed.revision.is_some() {
            self.mint(false);
        }
        self.observe_spend();
        plan(&self.input())
    }

    pub(crate) fn uid(&self, reference: &ObjectRef) -> Uid {
        let state = self.observed.objects.get(reference);
        state.unwrap_or_else(|| panic!("no {reference}")).uid
    }

    /// The spend of every budget in its current window.
    fn observe_spend(&mut self) {
        let window = Window::containing(self.now, &TimeZone::UTC).unwrap();
        self.observed.spend.clear();
        for (reference, scope) in self.budget_scopes() {
            let spent = self.spent.get(&reference);
            let spent = spent.filter(|(label, _)| *label == window.label);
            let spend = Spend {
                scope,
                window: window.clone(),
                spent: spent.map_or_else(Totals::default, |(_, totals)| *totals),
                reserved: self.reserved_in(scope),
                unpriced_runs: 0,
                uncounted_runs: 0,
            };
            self.observed.spend.insert(reference, spend);
        }
    }

    fn reserved_in(&self, scope: ScopeKey) -> Totals {
        let held = self.reserved.values();
        held.filter(|(_, scopes)| scopes.contains(&scope)).fold(
            Totals::default(),
            |sum, (reservation, _)| {
                sum.saturating_add(Totals {
                    money: reservation.money.unwrap_or_default(),
                    tokens: reservation.tokens.unwrap_or_default(),
                })
            },
        )
    }

    fn budget_scopes(&self) -> Vec<(ObjectRef, ScopeKey)> {
        let uid_of = |kind, workspace: Option<&Name>, name: &Name| {
            let reference = ObjectRef {
                kind,
                workspace: workspace.cloned(),
                name: name.clone(),
            };
            self.observed.active(&reference).map(|state| state.uid)
        };
        let policies = self.catalog.budget_policies.iter();
        let policies = policies.filter_map(|(reference, policy)| {
            let workspace = reference.workspace.as_ref();
            let scope = &policy.spec.scope;
            let name = || scope.name.as_ref();
            let uid = match scope.kind {
                BudgetScopeKind::Fleet => None,
                BudgetScopeKind::Workspace => Some(uid_of(Kind::Workspace, None, workspace?)?),
                BudgetScopeKind::Agent => Some(uid_of(Kind::Agent, workspace, name()?)?),
                BudgetScopeKind::Space => Some(uid_of(Kind::Space, workspace, name()?)?),
                BudgetScopeKind::Repo => Some(uid_of(Kind::Repo, workspace, name()?)?),
            };
            let kind = scope.kind;
            Some((reference.clone(), ScopeKey { kind, uid }))
        });
        let own = self.catalog.agents.iter().filter_map(|(reference, agent)| {
            agent.spec.budget.as_ref()?;
            let uid = Some(self.observed.active(reference)?.uid);
            let kind = BudgetScopeKind::Agent;
            Some((reference.clone(), ScopeKey { kind, uid }))
        });
        policies.chain(own).collect()
    }

    /// Records a wake, once.
    fn record(&mut self, wake: Wake) {
        if self.recorded.insert(wake.id) {
            self.sequence += 1;
            let sequence = self.sequence;
            self.observed.wakes.push(QueuedWake { sequence, wake });
            let place = |it: &QueuedWake| (it.wake.priority, it.sequence);
            self.observed.wakes.sort_by_key(place);
        }
    }

    /// A person's message in a space.
    pub(crate) fn message(
        &mut self,
        space: &ObjectRef,
        agent: &ObjectRef,
        text: &str,
        delivery: Delivery,
    ) {
        let workspace = ObjectRef {
            kind: Kind::Workspace,
            workspace: None,
            name: space.workspace.clone().unwrap(),
        };
        let ordinal = self.recorded.len().to_string();
        let space = self.uid(space);
        self.record(Wake {
            id: WakeId::derived(&["message", &ordinal]),
            reason: WakeReason::UserMessage,
            workspace: self.uid(&workspace),
            agent: self.uid(agent),
            space,
            conversation: ConversationId::main_of(space),
            ticket: None,
            message: Some(MessageId::derived(&[&ordinal])),
            cause: None,
            previous_run: None,
            attempt: 0,
            continuation: None,
            delay: None,
            prompt: text.to_owned(),
            requested_by: Some("ada".to_owned()),
            env: BTreeMap::new(),
            git_identity: None,
            delivery,
            priority: Priority::None,
            revision: self.observed.revision.clone(),
            created_at: self.now,
        });
    }

    /// A live run ends.
    pub(crate) fn end(&mut self, run: RunId, (status, liveness, end_reason): Ending) {
        if self.observed.live_runs.remove(&run).is_none() {
            return;
        }
        self.reserved.remove(&run);
        let wake = self.claimed.remove(&run).expect("a live run serves a wake");
        let is_lost = liveness == Liveness::Dead;
        self.observed.ended_runs.push(EndedRun {
            id: run,
            wake,
            status,
            liveness,
            family: is_lost.then_some(ErrorFamily::ProcessLost),
            error_code: None,
            end_reason,
            is_retryable: end_reason.is_retryable(),
            provider: None,
            continuation: is_lost.then(|| "it had begun".to_owned()),
            ended_at: self.now,
        });
    }

    /// A live run ends because its model's provider failed it. What the provider asks for is on record,
    /// and every run of the Adapter's to heed if it is shared.
    pub(crate) fn end_upstream(&mut self, run: RunId, code: &str, ask: Option<ProviderAsk>) {
        let adapter = self.adapters[&run].clone();
        let failed = (RunStatus::Error, Liveness::Failed, EndReason::AgentFinished);
        self.end(run, failed);
        let ended = self.observed.ended_runs.last_mut().expect("it has ended");
        ended.family = Some(ErrorFamily::TransientUpstream);
        ended.error_code = Some(code.to_owned());
        ended.is_retryable = code != "authentication_error";
        ended.provider = ask;
        if let Some(ask) = ask.filter(|ask| ask.is_shared) {
            let pause = ProviderPause {
                until: ask.until,
                status: ask.status,
                run,
            };
            let pauses = &mut self.observed.provider_pauses;
            pauses.insert(adapter, pause);
        }
    }

    /// The daemon dies: no task drives a run any more.
    pub(crate) fn lose_daemon(&mut self) {
        for run in self.observed.live_runs.values_mut() {
            run.is_attached = false;
            run.is_listening = false;
        }
    }

    /// Performs one action.
    pub(crate) fn apply(&mut self, action: &Action) {
        self.observed.backoffs.remove(&action.key());
        match action {
            Action::StopRun { run, reason } => {
                if let Some(run) = self.observed.live_runs.get_mut(run) {
                    run.stop_requested = Some(*reason);
                }
            }
            Action::ReapRun { run } => {
                let live = self.observed.live_runs.get(run);
                if live.is_some_and(|it| !it.is_attached) {
                    let (dead, lost) = (Liveness::Dead, EndReason::DaemonLost);
                    self.end(*run, (RunStatus::Error, dead, lost));
                }
            }
            Action::SettleRun { run, retry, ticket } => {
                let before = self.observed.ended_runs.len();
                self.observed.ended_runs.retain(|it| it.id != *run);
                if self.observed.ended_runs.len() < before {
                    retry.iter().for_each(|wake| self.record((**wake).clone()));
                    ticket.iter().for_each(|change| self.change_ticket(change));
                }
            }
            Action::RecordIncident { incident, pause } => self.incident(incident, *pause),
            Action::LiftBudgetPause { scope, .. } => {
                self.observed.budget_pauses.remove(scope);
            }
            Action::EnsureSpaceRoot {
                workspace,
                space,
                agents,
                ..
            } => self.make_root(*workspace, *space, agents),
            Action::ProvisionWorktree(order) => self.make_tree(order),
            Action::ReclaimWorktree { worktree } => {
                if let Some(tree) = self.observed.worktrees.remove(worktree) {
                    let mut runs = self.observed.live_runs.values();
                    let user =
                        runs.find(|it| it.space == tree.space && it.repos.contains(&tree.repo));
                    assert_eq!(user, None, "a tree was taken from under a run: {tree:?}");
                }
            }
            Action::ReclaimSpaceRoot { space, .. } => {
                self.observed.roots.remove(space);
                let mut runs = self.observed.live_runs.values();
                assert!(
                    runs.all(|run| run.space != *space),
                    "a root in use: {space}"
                );
                let mut trees = self.observed.worktrees.values();
                assert!(
                    trees.all(|tree| tree.space != *space),
                    "a full root: {space}"
                );
            }
            Action::AssignTicket { .. }
            | Action::ChangeTicket(_)
            | Action::DispatchOnce { .. }
            | Action::FireSchedule { .. } => self.advance(action),
            Action::CancelWake { wake, .. } => {
                self.observed.wakes.retain(|queued| queued.wake.id != *wake);
            }
            Action::StartRun(order) => self.start(order),
            Action::TellRun { run, wake } => self.tell(*run, *wake),
            Action::FinishDeletion { object, uid } => {
                let state = self.observed.objects.remove(object);
                let state = state.expect("only what is known is forgotten");
                assert_eq!(state.uid, *uid);
                assert!(
                    state.deletion_requested_at.is_some(),
                    "{object} is declared"
                );
            }
        }
    }

    fn advance(&mut self, action: &Action) {
        let wake = match action {
            Action::AssignTicket {
                ticket,
                assignee,
                assignments,
                wake,
            } => {
                let state = self.ticket(*ticket);
                state.assignee = *assignee;
                state.assignments = *assignments;
                wake.as_deref()
            }
            Action::DispatchOnce {
                dispatch,
                generation,
                wake,
            } => {
                let mut objects = self.observed.objects.values_mut();
                let state = objects.find(|it| it.uid == *dispatch).unwrap();
                state.dispatched_generation = Some(*generation);
                Some(&**wake)
            }
            Action::FireSchedule {
                schedule,
                slot,
                wake,
            } => {
                self.observed.schedule_slots.insert(*schedule, *slot);
                wake.as_deref()
            }
            Action::ChangeTicket(change) => {
                self.change_ticket(change);
                None
            }
            other => panic!("{other:?} advances nothing"),
        };
        wake.into_iter().for_each(|wake| self.record(wake.clone()));
    }

    fn ticket(&mut self, uid: Uid) -> &mut TicketState {
        self.observed.tickets.entry(uid).or_insert(TicketState {
            status: TicketStatus::Open,
            assignee: None,
            assignments: 0,
        })
    }

    fn change_ticket(&mut self, change: &TicketChange) {
        assert!(change.from.may_become(change.to), "illegal: {change:?}");
        let state = self.ticket(change.ticket);
        if state.status == change.from {
            state.status = change.to;
        }
    }

    fn incident(&mut self, incident: &Incident, pause: bool) {
        let Incident {
            scope,
            window,
            kind,
            spent,
            ceiling,
            ..
        } = incident.clone();
        self.observed
            .incidents
            .insert((scope, window.clone(), kind));
        if pause {
            let pause = BudgetPause {
                scope,
                window,
                spent,
                ceiling,
                since: self.now,
            };
            self.observed.budget_pauses.insert(scope, pause);
        }
    }

    /// The name of an object, for paths.
    fn name_of(&self, uid: Uid) -> String {
        let mut objects = self.observed.objects.iter();
        let found = objects.find(|(_, state)| state.uid == uid);
        found.map_or_else(|| uid.to_string(), |(it, _)| it.name.to_string())
    }

    fn make_root(&mut self, workspace: Uid, space: Uid, agents: &[Uid]) {
        let path = format!("/spaces/{}", self.name_of(space));
        let overlay = |uid: &Uid| (*uid, format!("{path}/agents/{}", self.name_of(*uid)));
        let overlays: Vec<_> = agents.iter().map(overlay).collect();
        let root = self.observed.roots.entry(space).or_insert(SpaceRoot {
            workspace,
            path,
            phase: TreePhase::Ready,
            overlays: BTreeMap::new(),
        });
        root.phase = TreePhase::Ready;
        root.overlays.extend(overlays);
    }

    fn make_tree(&mut self, order: &TreeOrder) {
        let root = self.observed.roots.get(&order.space);
        let root = root.expect("a worktree is made under its space's root");
        let tree = Worktree {
            id: order.worktree,
            workspace: order.workspace,
            space: order.space,
            repo: order.repo,
            repo_name: order.repo_name.clone(),
            path: format!("{}/{}", root.path, order.repo_name),
            branch: order.branch.to_string(),
            base: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            backend: WorktreeBackend::Reflink,
            phase: TreePhase::Ready,
        };
        self.observed.worktrees.insert(tree.id, tree);
    }

    /// Claims the wake and starts its run; a claimed wake starts nothing again.
    fn start(&mut self, order: &RunOrder) {
        let wakes = &mut self.observed.wakes;
        let Some(at) = wakes.iter().position(|it| it.wake.id == order.wake) else {
            return;
        };
        let wake = wakes.remove(at).wake;
        self.assert_admissible(order);
        let run = LiveRun {
            id: order.run,
            wake: order.wake,
            status: RunStatus::Running,
            workspace: order.workspace,
            agent: order.agent,
            space: order.space,
            conversation: order.conversation,
            ticket: order.ticket,
            cause: wake.cause,
            repos: order.trees.iter().map(|tree| tree.repo).collect(),
            stop_requested: None,
            started_at: self.now,
            is_attached: true,
            is_listening: true,
        };
        self.adapters.insert(order.run, order.adapter_name.clone());
        self.claimed.insert(order.run, wake);
        let scopes = order.guards.iter().map(|guard| guard.scope).collect();
        self.reserved.insert(order.run, (order.reservation, scopes));
        self.observed.live_runs.insert(order.run, run.clone());
        self.assert_caps(&run);
    }

    /// The run takes the wake in, if both are still there and it hears.
    fn tell(&mut self, run: RunId, wake: WakeId) {
        let wakes = &mut self.observed.wakes;
        let at = wakes.iter().position(|it| it.wake.id == wake);
        let live = self.observed.live_runs.get(&run);
        let hears = live.filter(|run| run.is_listening && run.stop_requested.is_none());
        if let (Some(at), Some(run)) = (at, hears) {
            let wake = wakes.remove(at).wake;
            assert_eq!(wake.agent, run.agent);
            assert_eq!(wake.conversation, run.conversation);
        }
    }

    /// What must hold whenever a run starts, whatever the planner thought.
    fn assert_admissible(&self, order: &RunOrder) {
        let observed = &self.observed;
        let agent = &self.catalog.agents[&order.agent_ref];
        let lifecycle = agent.spec.lifecycle.unwrap_or(Lifecycle::Active);
        assert_eq!(lifecycle, Lifecycle::Active, "{}", order.agent_ref);
        let is_paused = observed
            .operator_pauses
            .iter()
            .any(|pause| pause.target == order.agent && pause.until.is_none_or(|at| at > self.now));
        assert!(!is_paused, "{} is paused", order.agent_ref);
        assert!(!observed.takeovers.contains_key(&order.space));
        let fleet = self.catalog.fleet_spec();
        assert!(observed.estop.is_none() && !fleet.estop && !fleet.suspend);
        assert!(!observed.is_draining);
        for guard in &order.guards {
            let spent = self.spent.get(&guard.budget);
            let spent = spent.filter(|(label, _)| *label == guard.window.label);
            let spent = spent.map_or_else(Totals::default, |(_, totals)| *totals);
            let meter = guard.ceiling.meter();
            let taken = self
                .reserved_in(guard.scope)
                .saturating_add(spent)
                .of(meter);
            let reserved = order.reservation.of(meter).unwrap();
            let total = taken.count() + reserved.count();
            assert!(
                total <= guard.ceiling.count(),
                "{total} of {}",
                guard.ceiling
            );
        }
        for run in observed.live_runs.values() {
            assert_ne!(
                run.conversation, order.conversation,
                "two runs in one conversation"
            );
            let is_same_space = run.space == order.space;
            let shares = order
                .trees
                .iter()
                .any(|tree| run.repos.contains(&tree.repo));
            assert!(!is_same_space || !shares, "two writers of one worktree");
        }
        for tree in &order.trees {
            assert_eq!(observed.worktrees[&tree.id].phase, TreePhase::Ready);
        }
        for uid in [order.agent, order.space, order.workspace] {
            let mut objects = observed.objects.values();
            let state = objects.find(|state| state.uid == uid).expect("it is known");
            assert_eq!(
                state.deletion_requested_at, None,
                "a run for a removed thing"
            );
        }
    }

    /// The run that just started exceeds no cap.
    fn assert_caps(&self, run: &LiveRun) {
        let caps = self.catalog.fleet_spec().concurrency;
        let below = |cap: u32, counts: &dyn Fn(&LiveRun) -> bool| {
            let runs = self.observed.live_runs.values();
            let count = runs.filter(|it| counts(it)).count();
            assert!(
                cap == 0 || count <= usize::try_from(cap).unwrap(),
                "{count} > {cap}"
            );
        };
        below(caps.fleet, &|_| true);
        below(caps.per_workspace, &|it| it.workspace == run.workspace);
        for repo in &run.repos {
            below(caps.per_repo, &|it| it.repos.contains(repo));
        }
        let mut agents = self.catalog.agents.iter();
        let agent = agents.find(|(it, _)| self.uid(it) == run.agent);
        let (_, agent) = agent.expect("the agent is declared");
        below(agent.spec.concurrency, &|it| it.agent == run.agent);
    }
}
