//! What a plan means for each object: its conditions, as its status shows them.
//!
//! Every object has `Ready`, `Reconciling` and `Stalled`; the other types belong to kinds. A
//! condition is computed from the same input as the plan and from the plan itself, never from the
//! conditions before it.

mod agent;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use super::PlanInput;
use super::budgets::{Budget, budgets};
use super::render::object_of;
use super::view::{Standing, View};
use crate::model::action::{Hold, HoldReason, HoldSubject, Plan};
use crate::model::budget::ScopeKey;
use crate::model::condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
use crate::model::id::{Uid, WakeId};
use crate::model::kind::{Kind, ObjectRef};
use crate::model::observed::ObjectState;
use crate::model::wake::Wake;

/// The conditions of every known object, in a fixed order of types.
pub fn conditions(input: &PlanInput<'_>, plan: &Plan) -> BTreeMap<ObjectRef, Vec<Condition>> {
    let view = View::of(input);
    let facts = Facts::of(&view, plan);
    let objects = input.observed.objects.iter();
    objects
        .map(|(reference, state)| {
            let common = facts.common(reference, state).into_iter();
            let says = common.chain(facts.of_kind(reference, state));
            let conditions = says.map(|it| it.about(state.generation));
            (reference.clone(), conditions.collect())
        })
        .collect()
}

/// A condition in the making.
#[derive(Clone, Debug)]
struct Says {
    kind: ConditionType,
    status: ConditionStatus,
    reason: ConditionReason,
    message: String,
}

impl Says {
    fn about(self, generation: i64) -> Condition {
        Condition {
            kind: self.kind,
            status: self.status,
            reason: self.reason,
            message: self.message,
            observed_generation: generation,
        }
    }
}

fn yes(kind: ConditionType, reason: ConditionReason, message: impl Into<String>) -> Says {
    let message = message.into();
    let status = ConditionStatus::True;
    Says {
        kind,
        status,
        reason,
        message,
    }
}

fn no(kind: ConditionType, reason: ConditionReason, message: impl Into<String>) -> Says {
    let status = ConditionStatus::False;
    Says {
        status,
        ..yes(kind, reason, message)
    }
}

/// How an object stands, before it is spelled as three conditions.
#[derive(Clone, Debug)]
enum Stand {
    /// It does what its spec says.
    Ready(ConditionReason, String),
    /// It does not yet, or not at the moment; somebody is at it, or it passes by itself.
    Moving(ConditionReason, String),
    /// It does not, and nothing more happens until something changes.
    Stuck(ConditionReason, String),
}

/// What several objects' conditions are computed from.
struct Facts<'a> {
    view: &'a View<'a>,
    holds: BTreeMap<&'a ObjectRef, &'a Hold>,
    wake_holds: BTreeMap<WakeId, &'a Hold>,
    /// Objects that an action of the plan is about.
    busy: BTreeSet<&'a ObjectRef>,
    budgets: BTreeMap<ScopeKey, Vec<Budget<'a>>>,
    /// Waiting wakes by agent, ticket and cause.
    waiting: BTreeMap<Uid, Vec<&'a Wake>>,
    /// Agents that have a live run for each cause.
    running: BTreeMap<Uid, Uid>,
    /// Spaces that an agent serves.
    served: BTreeMap<Uid, BTreeSet<Uid>>,
}

impl<'a> Facts<'a> {
    fn of(view: &'a View<'a>, plan: &'a Plan) -> Self {
        let mut facts = Self {
            view,
            holds: BTreeMap::new(),
            wake_holds: BTreeMap::new(),
            busy: BTreeSet::new(),
            budgets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            served: BTreeMap::new(),
        };
        for hold in &plan.holds {
            match &hold.subject {
                HoldSubject::Object(reference) => {
                    facts.holds.insert(reference, hold);
                }
                HoldSubject::Wake(wake) => {
                    facts.wake_holds.insert(*wake, hold);
                }
            }
        }
        let about = plan.actions.iter().filter_map(|it| object_of(view, it));
        facts.busy = about.collect();
        for budget in budgets(view) {
            if let Some(scope) = budget.scope {
                facts.budgets.entry(scope).or_default().push(budget);
            }
        }
        for wake in view.observed.wakes.iter().map(|queued| &queued.wake) {
            let about = [Some(wake.agent), wake.ticket, wake.cause];
            for uid in about.into_iter().flatten() {
                facts.waiting.entry(uid).or_default().push(wake);
            }
        }
        for run in view.observed.live_runs.values() {
            let about = [Some(run.agent), run.ticket, run.cause];
            for uid in about.into_iter().flatten() {
                facts.running.insert(uid, run.agent);
            }
        }
        for space in view.spaces.values() {
            for name in &space.resource.spec.agents {
                if let Some(agent) = view.uid_beside(space.reference, Kind::Agent, name) {
                    facts
                        .served
                        .entry(agent)
                        .or_default()
                        .insert(space.state.uid);
                }
            }
        }
        facts
    }

    /// `Ready`, `Reconciling` and `Stalled`.
    fn common(&self, reference: &ObjectRef, state: &ObjectState) -> [Says; 3] {
        use ConditionType::{Ready, Reconciling, Stalled};
        match self.stand(reference, state) {
            Stand::Ready(reason, message) => {
                let moving = if let Some(hold) = self.holds.get(reference) {
                    yes(Reconciling, ConditionReason::Waiting, hold.message.clone())
                } else if self.busy.contains(reference) {
                    yes(
                        Reconciling,
                        ConditionReason::Progressing,
                        "work is under way",
                    )
                } else {
                    no(
                        Reconciling,
                        ConditionReason::AsDeclared,
                        "nothing is left to do",
                    )
                };
                let stuck = no(
                    Stalled,
                    ConditionReason::AsDeclared,
                    "nothing is in the way",
                );
                [yes(Ready, reason, message), moving, stuck]
            }
            Stand::Moving(reason, message) => [
                no(Ready, reason, message.clone()),
                yes(Reconciling, reason, message),
                no(Stalled, ConditionReason::Progressing, "work goes on"),
            ],
            Stand::Stuck(reason, message) => [
                no(Ready, reason, message.clone()),
                no(
                    Reconciling,
                    reason,
                    "nothing is done until something changes",
                ),
                yes(Stalled, reason, message),
            ],
        }
    }

    fn stand(&self, reference: &ObjectRef, state: &ObjectState) -> Stand {
        let hold = self.holds.get(reference);
        if state.deletion_requested_at.is_some() {
            return leaving(hold.copied());
        }
        if let Some(stand) = hold.and_then(|hold| held(reference.kind, hold)) {
            return stand;
        }
        let as_declared = || Stand::Ready(ConditionReason::AsDeclared, "as declared".to_owned());
        match reference.kind {
            Kind::Fleet => self.stand_of_fleet(),
            Kind::Agent => self.stand_of_agent(state.uid),
            Kind::Space => self.stand_of_space(state.uid),
            Kind::Ticket => self.stand_of_ticket(state.uid),
            Kind::Workspace
            | Kind::Repo
            | Kind::Adapter
            | Kind::BudgetPolicy
            | Kind::Dispatch
            | Kind::Schedule => as_declared(),
        }
    }

    fn stand_of_fleet(&self) -> Stand {
        match &self.view.standing {
            Standing::Stopped(why) => Stand::Stuck(ConditionReason::Estop, why.clone()),
            Standing::Suspended => Stand::Stuck(
                ConditionReason::Suspended,
                "it declares suspend: true".to_owned(),
            ),
            Standing::Draining => Stand::Moving(
                ConditionReason::Progressing,
                "the daemon is stopping".to_owned(),
            ),
            Standing::Running => {
                Stand::Ready(ConditionReason::AsDeclared, "as declared".to_owned())
            }
        }
    }

    /// The conditions that only the object's kind has.
    fn of_kind(&self, reference: &ObjectRef, state: &ObjectState) -> Vec<Says> {
        let uid = state.uid;
        match reference.kind {
            Kind::Agent => vec![
                self.paused(uid),
                self.budget_of_agent(uid),
                self.sandbox(),
                self.dispatching(reference, state),
            ],
            Kind::Space => vec![self.provisioned(uid), self.taken_over(uid)],
            Kind::BudgetPolicy => vec![self.budget_of_policy(reference)],
            Kind::Ticket | Kind::Dispatch => vec![self.dispatching(reference, state)],
            Kind::Fleet | Kind::Workspace | Kind::Repo | Kind::Adapter | Kind::Schedule => {
                Vec::new()
            }
        }
    }
}

/// An object that is being removed.
fn leaving(hold: Option<&Hold>) -> Stand {
    let Some(hold) = hold else {
        let message = "it is not declared any more and is being removed".to_owned();
        return Stand::Moving(ConditionReason::Deleting, message);
    };
    let message = hold.message.clone();
    if hold.reason == HoldReason::Terminal {
        return Stand::Stuck(ConditionReason::Terminal, message);
    }
    Stand::Moving(ConditionReason::DeletionBlocked, message)
}

/// What a hold says about an object that stays; none when the object is as declared all the same.
fn held(kind: Kind, hold: &Hold) -> Option<Stand> {
    let message = hold.message.clone();
    let reason = reason_of(kind, hold.reason);
    match hold.reason {
        HoldReason::Terminal
        | HoldReason::TakenOver
        | HoldReason::ModelUnpriced
        | HoldReason::FirstRevision
        | HoldReason::Estop
        | HoldReason::Suspended => Some(Stand::Stuck(reason, message)),
        // An archived agent, or a space with a repo less, is as declared while a run ends.
        HoldReason::RunLive => None,
        HoldReason::Draining
        | HoldReason::Backoff
        | HoldReason::PausedByGit
        | HoldReason::PausedByOperator
        | HoldReason::AgentArchived
        | HoldReason::PausedByBudget
        | HoldReason::PausedByProvider
        | HoldReason::UpstreamRetry
        | HoldReason::BudgetExceeded
        | HoldReason::ConversationBusy
        | HoldReason::WorktreeBusy
        | HoldReason::FleetCap
        | HoldReason::WorkspaceCap
        | HoldReason::RepoCap
        | HoldReason::AgentCap
        | HoldReason::NotProvisioned
        | HoldReason::ProvisionFailed
        | HoldReason::Queued => Some(Stand::Moving(reason, message)),
    }
}

/// The condition's word for a hold's reason.
const fn reason_of(kind: Kind, reason: HoldReason) -> ConditionReason {
    match reason {
        HoldReason::Estop => ConditionReason::Estop,
        HoldReason::Suspended => ConditionReason::Suspended,
        HoldReason::FirstRevision => ConditionReason::FirstRevision,
        HoldReason::PausedByGit => ConditionReason::PausedByGit,
        HoldReason::PausedByOperator => ConditionReason::PausedByOperator,
        HoldReason::TakenOver => ConditionReason::TakenOver,
        HoldReason::AgentArchived => ConditionReason::Archived,
        HoldReason::PausedByBudget => ConditionReason::PausedByBudget,
        HoldReason::BudgetExceeded => ConditionReason::Exhausted,
        HoldReason::NotProvisioned => ConditionReason::Provisioning,
        HoldReason::ProvisionFailed => ConditionReason::ProvisionFailed,
        HoldReason::Backoff | HoldReason::PausedByProvider | HoldReason::UpstreamRetry => {
            ConditionReason::Backoff
        }
        HoldReason::Terminal if matches!(kind, Kind::Space) => ConditionReason::ProvisionFailed,
        HoldReason::Terminal | HoldReason::ModelUnpriced => ConditionReason::Terminal,
        HoldReason::Draining
        | HoldReason::ConversationBusy
        | HoldReason::WorktreeBusy
        | HoldReason::FleetCap
        | HoldReason::WorkspaceCap
        | HoldReason::RepoCap
        | HoldReason::AgentCap
        | HoldReason::RunLive
        | HoldReason::Queued => ConditionReason::Waiting,
    }
}
