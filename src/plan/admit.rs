//! Admission: waiting wakes become runs in queue order, or are held with the gate that stopped
//! them.
//!
//! One live run a conversation, one writer a worktree, and the caps of fleet, workspace, repo and
//! agent, counting the runs that this plan admits. Within a conversation the earliest wake goes
//! first; a wake whose agent takes no work is not in line, so it keeps nobody else waiting. The
//! next attempt of a lost run has the lost run's place, which was before everything that waits; a
//! message that interrupts comes next.
//!
//! An agent whose provider asked to be left alone takes no work until then, whoever's run was told:
//! its wakes wait beside the line, so that agents of other providers go on. A next attempt that only
//! backs off keeps its place in line: that takes minutes at most.

use std::collections::BTreeMap;

use super::cx::PlanCx;
use super::gates::{Gates, Terms};
use super::provision::missing;
use super::settle::next_attempt;
use super::view::{AgentView, SpaceView, View};
use crate::model::action::{Action, HoldReason, HoldSubject};
use crate::model::backoff::{RETRY_AFTER_MAX, to_come};
use crate::model::budget::Reservation;
use crate::model::id::{ConversationId, RunId, Uid, WakeId};
use crate::model::kind::{Kind, ObjectRef, Resource};
use crate::model::observed::{Backoff, ObjectState, ProviderPause};
use crate::model::run::{RunOrder, RunTree, Teammate};
use crate::model::spec::{AdapterSpec, AgentSpec, GitIdentity, Lifecycle};
use crate::model::units::SilenceTimeout;
use crate::model::wake::{Delivery, QueuedWake, Wake, WakeReason};

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let mut wakes: Vec<&QueuedWake> = cx.view.observed.wakes.iter().collect();
    wakes.sort_by_key(|queued| {
        let is_recovery = queued.wake.reason == WakeReason::Recovery;
        let interrupts = queued.wake.delivery == Delivery::Interrupt;
        (
            !is_recovery,
            !interrupts,
            queued.wake.priority,
            queued.sequence,
        )
    });
    let mut lanes = Lanes::of(cx.view);
    let mut gates = Gates::of(cx.view);
    wakes.retain(|queued| !cx.is_told(queued.wake.id));
    for queued in wakes {
        admit(cx, &mut lanes, &mut gates, &queued.wake);
    }
}

/// A hold in the making.
type Gate = (HoldReason, String);

/// What is taken, by live runs and by those that this plan admits.
#[derive(Debug, Default)]
struct Lanes {
    /// The first wake in line of each conversation.
    first: BTreeMap<ConversationId, WakeId>,
    /// The ended run of each conversation whose next attempt is not recorded yet.
    lost: BTreeMap<ConversationId, RunId>,
    /// Who writes each worktree, by space and repo.
    writers: BTreeMap<(Uid, Uid), RunId>,
    fleet: u32,
    by_workspace: BTreeMap<Uid, u32>,
    by_repo: BTreeMap<Uid, u32>,
    by_agent: BTreeMap<Uid, u32>,
}

impl Lanes {
    fn of(view: &View<'_>) -> Self {
        let mut lanes = Self::default();
        for run in view.observed.live_runs.values() {
            lanes.take(run.id, run.workspace, run.agent, run.space, &run.repos);
        }
        for run in &view.observed.ended_runs {
            if next_attempt(view, run).is_some() {
                lanes.lost.insert(run.wake.conversation, run.id);
            }
        }
        lanes
    }

    fn take(&mut self, run: RunId, workspace: Uid, agent: Uid, space: Uid, repos: &[Uid]) {
        self.fleet += 1;
        *self.by_workspace.entry(workspace).or_default() += 1;
        *self.by_agent.entry(agent).or_default() += 1;
        for repo in repos {
            *self.by_repo.entry(*repo).or_default() += 1;
            self.writers.insert((space, *repo), run);
        }
    }
}

fn admit(cx: &mut PlanCx<'_>, lanes: &mut Lanes, gates: &mut Gates<'_>, wake: &Wake) {
    let view = cx.view;
    let subject = HoldSubject::Wake(wake.id);
    if let Some(because) = view.lost_by(wake) {
        if view.standing.may_remove() {
            cx.act(
                Action::CancelWake {
                    wake: wake.id,
                    because,
                },
                subject,
            );
        } else {
            cx.hold_for_standing(subject);
        }
        return;
    }
    match order_for(view, lanes, gates, wake) {
        Err((reason, message)) => cx.hold(subject, reason, message),
        Ok(order) => {
            let repos: Vec<Uid> = order.trees.iter().map(|tree| tree.repo).collect();
            let run = order.run;
            let terms = Terms {
                reservation: order.reservation,
                guards: order.guards.clone(),
            };
            if cx.act(Action::StartRun(Box::new(order)), subject) {
                lanes.take(run, wake.workspace, wake.agent, wake.space, &repos);
                gates.take(&terms);
            }
        }
    }
}

/// Passes the wake through every gate, in the order in which they are explained to people.
fn order_for(
    view: &View<'_>,
    lanes: &mut Lanes,
    gates: &Gates<'_>,
    wake: &Wake,
) -> Result<RunOrder, Gate> {
    if let Some(gate) = view.standing.hold() {
        return Err(gate);
    }
    let absent = |what: &str| {
        let message = format!("the accepted revision does not declare its {what}");
        (HoldReason::NotProvisioned, message)
    };
    let agent = view
        .agents
        .get(&wake.agent)
        .ok_or_else(|| absent("agent"))?;
    let space = view
        .spaces
        .get(&wake.space)
        .ok_or_else(|| absent("space"))?;
    let adapter = ObjectRef {
        kind: Kind::Adapter,
        workspace: None,
        name: agent.resource.spec.adapter.clone(),
    };
    let known = view.observed.active(&adapter);
    let adapter = view.catalog.adapters.get(&adapter).zip(known);
    let adapter = adapter.ok_or_else(|| absent("agent's adapter"))?;
    lifecycle(view, agent)?;
    provider(view, agent)?;
    taken_over(view, space)?;
    in_line(view, lanes, wake)?;
    delayed(view, wake)?;
    let room = provisioned(view, space, wake)?;
    unwritten(lanes, wake.space, &room.trees)?;
    below_caps(view, lanes, agent, space, &room.trees)?;
    let repos: Vec<Uid> = room.trees.iter().map(|tree| tree.repo).collect();
    let terms = gates.pass(view, wake, &repos)?;
    let order = order(view, wake, agent, space, adapter, room);
    Ok(RunOrder {
        reservation: terms.reservation,
        guards: terms.guards,
        ..order
    })
}

/// An agent paused by git or by an operator, or archived, is dispatched on no path.
pub(super) fn lifecycle(view: &View<'_>, agent: &AgentView<'_>) -> Result<(), Gate> {
    let name = agent.reference;
    match agent.resource.spec.lifecycle {
        Some(Lifecycle::Archived) => {
            return Err((HoldReason::AgentArchived, format!("{name} is archived")));
        }
        Some(Lifecycle::Paused) => {
            let message = format!("{name} declares lifecycle: paused");
            return Err((HoldReason::PausedByGit, message));
        }
        Some(Lifecycle::Active) | None => {}
    }
    let Some(pause) = view.operator_pause(agent.state.uid) else {
        return Ok(());
    };
    let why = pause.reason.as_deref().unwrap_or("no reason given");
    let until = pause
        .until
        .map_or_else(String::new, |at| format!(" until {at}"));
    let message = format!("{name} was paused by {}{until}: {why}", pause.by);
    Err((HoldReason::PausedByOperator, message))
}

/// A provider that asked to be left alone is asked by no run of the agent's adapter.
fn provider(view: &View<'_>, agent: &AgentView<'_>) -> Result<(), Gate> {
    let adapter = &agent.resource.spec.adapter;
    let pause = view.observed.provider_pauses.get(adapter.as_str());
    let Some((pause, until)) =
        pause.and_then(|it| Some((it, to_come(it.until, RETRY_AFTER_MAX, view.now)?)))
    else {
        return Ok(());
    };
    let ProviderPause { status, run, .. } = pause;
    let message = format!(
        "the provider of Adapter/{adapter} asked to be left alone until {until}: status {status} in \
         run {}",
        run.short()
    );
    Err((HoldReason::PausedByProvider, message))
}

/// A next attempt that waits for its provider to recover.
fn delayed(view: &View<'_>, wake: &Wake) -> Result<(), Gate> {
    let Some(delay) = &wake.delay else {
        return Ok(());
    };
    match to_come(delay.until, RETRY_AFTER_MAX, view.now) {
        Some(until) => {
            let message = format!("{}; next try at {until}", delay.because);
            Err((HoldReason::UpstreamRetry, message))
        }
        None => Ok(()),
    }
}

/// Nothing runs in a space that a person took over.
fn taken_over(view: &View<'_>, space: &SpaceView<'_>) -> Result<(), Gate> {
    match view.takeover(space.state.uid) {
        Some(takeover) => {
            let message = format!("{} is {takeover}", space.reference);
            Err((HoldReason::TakenOver, message))
        }
        None => Ok(()),
    }
}

fn in_line(view: &View<'_>, lanes: &mut Lanes, wake: &Wake) -> Result<(), Gate> {
    let first = *lanes.first.entry(wake.conversation).or_insert(wake.id);
    if first != wake.id {
        let message = format!("wake {} of the same conversation goes first", first.short());
        return Err((HoldReason::Queued, message));
    }
    if let Some(run) = view.run_in(wake.conversation) {
        let agent = view.name(run.agent);
        let message = format!(
            "run {} of {agent} is live in the conversation",
            run.id.short()
        );
        return Err((HoldReason::ConversationBusy, message));
    }
    if let Some(run) = lanes.lost.get(&wake.conversation) {
        let message = format!("run {} is tried once more first", run.short());
        return Err((HoldReason::ConversationBusy, message));
    }
    Ok(())
}

/// What a run finds in its space.
struct Room {
    /// The agent's overlay directory.
    overlay: String,
    /// The worktrees, in repo-name order.
    trees: Vec<RunTree>,
}

/// The space's worktrees and the agent's overlay, if they are all there.
fn provisioned(view: &View<'_>, space: &SpaceView<'_>, wake: &Wake) -> Result<Room, Gate> {
    let uid = space.state.uid;
    let root = view.ready_root(uid);
    let overlay = root.and_then(|it| it.overlays.get(&wake.agent));
    let mut lacking = Vec::new();
    if root.is_none() {
        lacking.push("its root".to_owned());
    } else if overlay.is_none() {
        lacking.push(format!("the overlay of {}", view.name(wake.agent)));
    }
    let mut trees = Vec::new();
    for (name, repo) in &space.repos {
        match view.ready_tree(uid, repo.state.uid) {
            Some(tree) => trees.push(tree),
            None => lacking.push(format!("the worktree of {name}")),
        }
    }
    for name in &space.awaited {
        lacking.push(format!("{name}, which is being removed and declared again"));
    }
    if let (Some(overlay), true) = (overlay, lacking.is_empty()) {
        let overlay = overlay.clone();
        return Ok(Room { overlay, trees });
    }
    let name = space.reference;
    let lacking = lacking.join(", ");
    let wanted = missing(view, space);
    match wanted.iter().find_map(|action| view.failure_of(action)) {
        Some(Backoff { code, message, .. }) => {
            let message = format!("{name} lacks {lacking}: {code}: {message}");
            Err((HoldReason::ProvisionFailed, message))
        }
        None => Err((
            HoldReason::NotProvisioned,
            format!("{name} lacks {lacking}"),
        )),
    }
}

/// No two runs write one worktree, whatever their conversations.
fn unwritten(lanes: &Lanes, space: Uid, trees: &[RunTree]) -> Result<(), Gate> {
    for tree in trees {
        if let Some(run) = lanes.writers.get(&(space, tree.repo)) {
            let message = format!(
                "run {} writes the worktree of {}",
                run.short(),
                tree.repo_name
            );
            return Err((HoldReason::WorktreeBusy, message));
        }
    }
    Ok(())
}

fn below_caps(
    view: &View<'_>,
    lanes: &Lanes,
    agent: &AgentView<'_>,
    space: &SpaceView<'_>,
    trees: &[RunTree],
) -> Result<(), Gate> {
    let caps = &view.fleet.concurrency;
    let count = |counts: &BTreeMap<Uid, u32>, uid| counts.get(&uid).copied().unwrap_or(0);
    let check = |reason, live: u32, cap: u32, whose: &str| {
        if cap != 0 && live >= cap {
            return Err((reason, format!("{live} of {cap} runs of {whose} are live")));
        }
        Ok(())
    };
    check(HoldReason::FleetCap, lanes.fleet, caps.fleet, "the fleet")?;
    let live = count(&lanes.by_workspace, space.workspace);
    let workspace = view.name(space.workspace);
    check(
        HoldReason::WorkspaceCap,
        live,
        caps.per_workspace,
        &workspace,
    )?;
    for tree in trees {
        let live = count(&lanes.by_repo, tree.repo);
        check(
            HoldReason::RepoCap,
            live,
            caps.per_repo,
            &view.name(tree.repo),
        )?;
    }
    let live = count(&lanes.by_agent, agent.state.uid);
    let name = agent.reference.to_string();
    check(
        HoldReason::AgentCap,
        live,
        agent.resource.spec.concurrency,
        &name,
    )
}

fn order(
    view: &View<'_>,
    wake: &Wake,
    agent: &AgentView<'_>,
    space: &SpaceView<'_>,
    (adapter, adapter_state): (&Resource<AdapterSpec>, &ObjectState),
    room: Room,
) -> RunOrder {
    let spec = &agent.resource.spec;
    let Room { overlay, trees } = room;
    let cwd = match trees.as_slice() {
        [only] => only.path.clone(),
        _ => overlay,
    };
    RunOrder {
        run: RunId::of(wake.id),
        wake: wake.id,
        reason: wake.reason,
        attempt: wake.attempt,
        workspace: space.workspace,
        workspace_name: space.workspace_name.to_string(),
        agent: wake.agent,
        agent_ref: agent.reference.clone(),
        agent_title: spec.title.clone(),
        persona: spec.persona.clone(),
        skills: spec.skills.iter().map(ToString::to_string).collect(),
        space: wake.space,
        space_name: space.reference.name.to_string(),
        roster: roster(view, space, wake.agent),
        mode: space.resource.spec.mode,
        conversation: wake.conversation,
        ticket: wake.ticket,
        adapter_name: spec.adapter.to_string(),
        adapter: adapter.spec.clone(),
        adapter_generation: adapter_state.generation,
        model: spec.model.clone(),
        effort: spec.effort,
        cwd,
        trees,
        identity: identity(view, wake, wake.agent, spec),
        silence: spec
            .silence_timeout
            .unwrap_or(SilenceTimeout::DEFAULT)
            .duration(),
        reservation: Reservation::default(),
        guards: Vec::new(),
        revision: view
            .revision()
            .unwrap_or_else(|| agent.state.revision.clone()),
        generation: agent.state.generation,
    }
}

/// The other agents of the space, in the order in which it names them.
fn roster(view: &View<'_>, space: &SpaceView<'_>, agent: Uid) -> Vec<Teammate> {
    let names = space.resource.spec.agents.iter();
    let others = names.filter_map(|name| {
        let uid = view.uid_beside(space.reference, Kind::Agent, name)?;
        let other = view.agents.get(&uid).filter(|_| uid != agent)?;
        Some(Teammate {
            name: name.to_string(),
            title: other.resource.spec.title.clone(),
        })
    });
    others.collect()
}

/// The caller's identity wins over the agent's own, and that over the derived one.
fn identity(view: &View<'_>, wake: &Wake, agent: Uid, spec: &AgentSpec) -> GitIdentity {
    let given = wake.git_identity.as_ref().or(spec.git_identity.as_ref());
    given.cloned().unwrap_or_else(|| {
        // A title is free text; git's author line is not.
        let is_legal = |c: &char| !matches!(c, '<' | '>') && !c.is_control();
        let title: String = spec.title.chars().filter(is_legal).collect();
        GitIdentity {
            name: format!("{} (agent)", title.trim()),
            email: format!("{agent}@{}", view.fleet.identity_domain),
        }
    })
}
