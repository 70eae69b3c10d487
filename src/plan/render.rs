//! A plan as people and programs read it: names for ids, one line an action, one line a hold.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::PlanInput;
use super::view::View;
use crate::model::action::{Action, HoldReason, HoldSubject, Plan, TicketChange};
use crate::model::budget::{Incident, IncidentKind, ScopeKey};
use crate::model::id::{RunId, Uid, WakeId, WorktreeId};
use crate::model::kind::{ObjectRef, Revision};
use crate::model::run::RunOrder;
use crate::model::wake::Wake;

/// A plan in words. `Display` is the text form, `Serialize` the JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The accepted revision.
    pub revision: Option<Revision>,
    /// What would be done, in order.
    pub actions: Vec<ActionLine>,
    /// What waits.
    pub holds: Vec<HoldLine>,
    /// When time alone changes the plan.
    pub wake_at: Option<Timestamp>,
}

/// One action in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionLine {
    /// The action's name, such as `provisionWorktree`.
    pub action: &'static str,
    /// The object that it is done for, as `Kind/workspace/name`.
    pub object: Option<String>,
    /// What is done.
    pub detail: String,
}

/// One hold in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldLine {
    /// Why.
    pub reason: HoldReason,
    /// What waits: an object, or a wake by its reason, agent and space.
    pub subject: String,
    /// In words.
    pub message: String,
}

impl Report {
    /// Puts `plan`, which `input` led to, into words.
    pub fn of(input: &PlanInput<'_>, plan: &Plan) -> Self {
        let view = View::of(input);
        let actions = plan.actions.iter().map(|action| ActionLine {
            action: action.into(),
            object: object_of(&view, action).map(ToString::to_string),
            detail: detail_of(&view, action),
        });
        let holds = plan.holds.iter().map(|hold| HoldLine {
            reason: hold.reason,
            subject: match &hold.subject {
                HoldSubject::Object(reference) => reference.to_string(),
                HoldSubject::Wake(wake) => wake_name(&view, *wake),
            },
            message: hold.message.clone(),
        });
        Self {
            revision: view.revision(),
            actions: actions.collect(),
            holds: holds.collect(),
            wake_at: plan.wake_at,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.actions.is_empty() && self.holds.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        for line in &self.actions {
            write!(f, "do    {}", line.action)?;
            if let Some(object) = &line.object {
                write!(f, "  {object}")?;
            }
            writeln!(f, "  {}", line.detail)?;
        }
        for line in &self.holds {
            writeln!(
                f,
                "hold  {}  {}  {}",
                line.reason, line.subject, line.message
            )?;
        }
        match self.wake_at {
            Some(at) => writeln!(f, "next  {at}"),
            None => Ok(()),
        }
    }
}

/// The object that an action is done for.
pub(super) fn object_of<'a>(view: &View<'a>, action: &'a Action) -> Option<&'a ObjectRef> {
    let named = |uid: Uid| view.object(uid).map(|(reference, _)| reference);
    match action {
        Action::StopRun { run, .. } | Action::ReapRun { run } | Action::SettleRun { run, .. } => {
            named(agent_of_run(view, *run)?)
        }
        Action::RecordIncident { incident, .. } => Some(&incident.budget),
        Action::LiftBudgetPause { scope, .. } => named(scope.uid?),
        Action::EnsureSpaceRoot { space, .. } | Action::ReclaimSpaceRoot { space, .. } => {
            named(*space)
        }
        Action::ProvisionWorktree(order) => named(order.space),
        Action::ReclaimWorktree { worktree } => named(view.observed.worktrees.get(worktree)?.space),
        Action::AssignTicket { ticket, .. } => named(*ticket),
        Action::ChangeTicket(change) => named(change.ticket),
        Action::DispatchOnce { dispatch, .. } => named(*dispatch),
        Action::FireSchedule { schedule, .. } => named(*schedule),
        Action::CancelWake { wake, .. } | Action::TellRun { wake, .. } => {
            named(wake_of(view, *wake)?.agent)
        }
        Action::StartRun(order) => Some(&order.agent_ref),
        Action::FinishDeletion { object, .. } => Some(object),
    }
}

fn agent_of_run(view: &View<'_>, run: RunId) -> Option<Uid> {
    let observed = view.observed;
    let live = observed.live_runs.get(&run).map(|it| it.agent);
    let ended = || observed.ended_runs.iter().find(|it| it.id == run);
    live.or_else(|| ended().map(|it| it.wake.agent))
}

fn wake_of<'a>(view: &View<'a>, wake: WakeId) -> Option<&'a Wake> {
    let observed = view.observed;
    let queued = observed.wakes.iter().map(|queued| &queued.wake);
    let ended = observed.ended_runs.iter().map(|run| &run.wake);
    queued.chain(ended).find(|it| it.id == wake)
}

fn wake_name(view: &View<'_>, wake: WakeId) -> String {
    let live = || {
        view.observed
            .live_runs
            .values()
            .find(|run| run.wake == wake)
    };
    if let Some(it) = wake_of(view, wake) {
        let (agent, space) = (view.name(it.agent), view.name(it.space));
        return format!(
            "wake {} ({} of {agent} in {space})",
            wake.short(),
            it.reason
        );
    }
    match live() {
        Some(run) => format!("wake {} (live, {})", wake.short(), view.name(run.agent)),
        None => format!("wake {}", wake.short()),
    }
}

fn detail_of(view: &View<'_>, action: &Action) -> String {
    match action {
        Action::StopRun { run, reason } => format!("stop run {}: {reason}", run.short()),
        Action::TellRun { run, wake } => {
            format!("tell run {} of {}", run.short(), wake_name(view, *wake))
        }
        Action::ReapRun { run } => format!("confirm that run {} is gone, close it", run.short()),
        Action::SettleRun { run, retry, ticket } => {
            settle_detail(view, *run, retry.as_deref(), ticket.as_ref())
        }
        Action::RecordIncident { incident, pause } => incident_detail(view, incident, *pause),
        Action::LiftBudgetPause { scope, because } => {
            format!(
                "lift the budget pause of {}: {because}",
                scope_name(view, *scope)
            )
        }
        Action::EnsureSpaceRoot { agents, .. } => {
            let mut agents: Vec<String> = agents.iter().map(|uid| view.name(*uid)).collect();
            agents.sort();
            format!("make the root, with overlays of {}", agents.join(", "))
        }
        Action::ProvisionWorktree(order) => {
            let base = order.base_branch.as_ref();
            let base = base.map_or_else(|| "HEAD".to_owned(), ToString::to_string);
            let (repo, branch) = (&order.repo_name, &order.branch);
            format!("make the worktree of {repo} from {base} on {branch}")
        }
        Action::ReclaimWorktree { worktree } => {
            format!(
                "salvage and remove the worktree of {}",
                tree_name(view, *worktree)
            )
        }
        Action::ReclaimSpaceRoot { .. } => "remove the root".to_owned(),
        Action::AssignTicket { assignee, wake, .. } => {
            let to = assignee.map_or_else(|| "nobody".to_owned(), |uid| view.name(uid));
            format!("assign to {to}, {}", wake_detail(view, wake.as_deref()))
        }
        Action::ChangeTicket(change) => format!("{} → {}", change.from, change.to),
        Action::DispatchOnce {
            generation, wake, ..
        } => format!("generation {generation}, {}", wake_detail(view, Some(wake))),
        Action::FireSchedule { slot, wake, .. } => {
            format!("slot {slot}, {}", wake_detail(view, wake.as_deref()))
        }
        Action::CancelWake { wake, because } => format!("{}: {because}", wake_name(view, *wake)),
        Action::StartRun(order) => start_detail(order),
        Action::FinishDeletion { .. } => "forget it".to_owned(),
    }
}

fn settle_detail(
    view: &View<'_>,
    run: RunId,
    retry: Option<&Wake>,
    ticket: Option<&TicketChange>,
) -> String {
    let ticket = ticket.map(|change| {
        let name = view.name(change.ticket);
        format!("{name} {} → {}", change.from, change.to)
    });
    let retry = retry.map(|wake| format!("try again as attempt {}", wake.attempt));
    let parts = [Some(format!("settle run {}", run.short())), ticket, retry];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

fn incident_detail(view: &View<'_>, incident: &Incident, pause: bool) -> String {
    let what = match incident.kind {
        IncidentKind::Soft => "warning",
        IncidentKind::Hard if pause => "exhausted, pause",
        IncidentKind::Hard => "exhausted",
    };
    let (spent, ceiling, window) = (incident.spent, incident.ceiling, &incident.window);
    let scope = scope_name(view, incident.scope);
    format!("{what}: {scope} spent {spent} of {ceiling} in {window}")
}

fn wake_detail(view: &View<'_>, wake: Option<&Wake>) -> String {
    match wake {
        Some(wake) => format!("wake {} of {}", wake.reason, view.name(wake.agent)),
        None => "no wake".to_owned(),
    }
}

fn start_detail(order: &RunOrder) -> String {
    let (run, reason, attempt) = (order.run.short(), order.reason, order.attempt);
    let trees: Vec<&str> = order.trees.iter().map(|it| it.repo_name.as_str()).collect();
    let trees = if trees.is_empty() {
        "no worktree".to_owned()
    } else {
        format!("worktrees of {}", trees.join(", "))
    };
    format!(
        "start run {run} ({reason}, attempt {attempt}) in {} by {} at {}, {trees}",
        order.space_name, order.adapter_name, order.cwd
    )
}

fn tree_name(view: &View<'_>, worktree: WorktreeId) -> String {
    let tree = view.observed.worktrees.get(&worktree);
    tree.map_or_else(|| worktree.to_string(), |it| it.repo_name.clone())
}

fn scope_name(view: &View<'_>, scope: ScopeKey) -> String {
    scope
        .uid
        .map_or_else(|| "the fleet".to_owned(), |uid| view.name(uid))
}
