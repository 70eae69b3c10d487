//! Budgets: crossings are recorded once, exhausted scopes paused, pauses lifted.
//!
//! This step is a reaction to what was spent. A budget's pause is a fact beside git's lifecycle and
//! the operator's pause: under `postHoc` it shows in the agent's conditions and holds no wake; where
//! a policy gates dispatch, `gates` holds the wakes of its scope.
//!
//! An incident is unique in (scope, window, kind). A pause is not: when a raised ceiling lifted
//! it and spend crosses that one too, the same hard incident is asked for again, which records
//! nothing new and sets the pause anew. A budget whose spend could not be looked at changes
//! nothing: it neither pauses nor lifts.

use std::collections::{BTreeMap, BTreeSet};

use super::cx::PlanCx;
use super::view::{View, sibling};
use crate::model::action::{Action, HoldSubject};
use crate::model::budget::{
    Amount, BudgetPause, Incident, IncidentKind, Meter, SOFT_PERCENT_DEFAULT, ScopeKey, Spend,
};
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::spec::{BudgetPolicySpec, BudgetScopeKind, Enforcement};
use crate::model::units::Money;

/// One ceiling, in money or in tokens: a BudgetPolicy's, or an agent's own figure.
#[derive(Clone, Debug)]
pub(super) struct Budget<'a> {
    /// The BudgetPolicy or the Agent.
    pub(super) reference: &'a ObjectRef,
    /// What it is over; none while the object that it names is not there.
    pub(super) scope: Option<ScopeKey>,
    /// The ceiling; zero is unlimited.
    pub(super) ceiling: Amount,
    soft_percent: u8,
    is_hard_stop: bool,
    /// How it acts on dispatch.
    pub(super) enforcement: Enforcement,
    /// What a run is declared to cost at most.
    pub(super) reserve: Option<Money>,
    /// Month to date, if it could be looked at.
    pub(super) spend: Option<&'a Spend>,
}

impl Budget<'_> {
    pub(super) const fn meter(&self) -> Meter {
        self.ceiling.meter()
    }

    pub(super) const fn is_limited(&self) -> bool {
        self.ceiling.count() > 0
    }

    /// Whether spend reached the ceiling.
    pub(super) fn is_exhausted(&self) -> bool {
        self.crossed() == Some(IncidentKind::Hard)
    }

    /// Whether spend reached the warning threshold.
    pub(super) fn is_soft_crossed(&self) -> bool {
        self.crossed().is_some()
    }

    fn crossed(&self) -> Option<IncidentKind> {
        let spent = self.of(self.spend?);
        IncidentKind::crossed(spent, self.ceiling, self.soft_percent)
    }

    /// What was spent of what the ceiling counts.
    pub(super) const fn of(&self, spend: &Spend) -> Amount {
        spend.spent.of(self.meter())
    }

    /// Whether the budget keeps its scope paused, or might: what could not be looked at might.
    fn keeps_paused(&self) -> bool {
        self.is_hard_stop && self.is_limited() && (self.spend.is_none() || self.is_exhausted())
    }
}

/// Every ceiling that applies, policies first.
pub(super) fn budgets<'a>(view: &View<'a>) -> Vec<Budget<'a>> {
    let policies = view.catalog.budget_policies.iter();
    let policies = policies.filter(|(reference, _)| view.observed.active(reference).is_some());
    let policies = policies.flat_map(|(reference, policy)| {
        let spend = view.observed.spend.get(reference);
        let named = || scope_of(view, reference, &policy.spec);
        let scope = spend.map(|it| it.scope).or_else(named);
        policy.spec.ceilings().map(move |ceiling| Budget {
            reference,
            scope,
            ceiling,
            soft_percent: policy.spec.soft_threshold_percent,
            is_hard_stop: policy.spec.hard_stop,
            enforcement: policy.spec.enforcement,
            reserve: policy.spec.reserve,
            spend,
        })
    });
    let covered = agents_with_policy(view);
    let own = view.agents.values().filter_map(|agent| {
        let budget = agent.resource.spec.budget.as_ref()?;
        let uid = agent.state.uid;
        (!covered.contains(&uid)).then(|| Budget {
            reference: agent.reference,
            scope: Some(ScopeKey {
                kind: BudgetScopeKind::Agent,
                uid: Some(uid),
            }),
            ceiling: budget.monthly.into(),
            soft_percent: SOFT_PERCENT_DEFAULT,
            is_hard_stop: true,
            enforcement: Enforcement::PostHoc,
            reserve: None,
            spend: view.observed.spend.get(agent.reference),
        })
    });
    policies.chain(own).collect()
}

/// What the policy is over, by the names that it gives.
fn scope_of(view: &View<'_>, policy: &ObjectRef, spec: &BudgetPolicySpec) -> Option<ScopeKey> {
    let kind = spec.scope.kind;
    let beside = |kind: Kind| {
        let name = spec.scope.name.as_ref()?;
        view.uid_beside(policy, kind, name)
    };
    let uid = match kind {
        BudgetScopeKind::Fleet => return Some(ScopeKey { kind, uid: None }),
        BudgetScopeKind::Agent => beside(Kind::Agent),
        BudgetScopeKind::Space => beside(Kind::Space),
        BudgetScopeKind::Repo => beside(Kind::Repo),
        BudgetScopeKind::Workspace => view.workspace_of(policy),
    };
    Some(ScopeKey {
        kind,
        uid: Some(uid?),
    })
}

/// Agents whose own figure gives way: a policy of scope `agent` names them, or they link one.
fn agents_with_policy(view: &View<'_>) -> BTreeSet<Uid> {
    let is_agent_policy = |spec: &BudgetPolicySpec| spec.scope.kind == BudgetScopeKind::Agent;
    let policies = &view.catalog.budget_policies;
    let named = policies.iter().filter_map(|(reference, policy)| {
        let is_active = view.observed.active(reference).is_some();
        let scope = scope_of(view, reference, &policy.spec)?;
        (is_active && is_agent_policy(&policy.spec)).then_some(scope.uid?)
    });
    let linked = view.agents.values().filter_map(|agent| {
        let name = agent.resource.spec.budget_policy.as_ref()?;
        let reference = sibling(agent.reference, Kind::BudgetPolicy, name);
        view.observed.active(&reference)?;
        is_agent_policy(&policies.get(&reference)?.spec).then_some(agent.state.uid)
    });
    named.chain(linked).collect()
}

pub(super) fn step(cx: &mut PlanCx<'_>) {
    let budgets = budgets(cx.view);
    let mut planned = BTreeSet::new();
    for budget in &budgets {
        let (Some(scope), Some(spend)) = (budget.scope, budget.spend) else {
            continue;
        };
        if budget.is_soft_crossed() {
            record(cx, &mut planned, budget, spend, IncidentKind::Soft);
        }
        if budget.is_exhausted() {
            record(cx, &mut planned, budget, spend, IncidentKind::Hard);
        }
        // The next window lifts a pause, and has room for what a gate holds.
        let gates = budget.enforcement.gates() && budget.is_limited();
        let holds = gates && !cx.view.observed.wakes.is_empty();
        if holds || cx.view.observed.budget_pauses.contains_key(&scope) {
            cx.look_at(spend.window.end);
        }
    }
    let mut by_scope: BTreeMap<ScopeKey, Vec<&Budget<'_>>> = BTreeMap::new();
    for budget in &budgets {
        if let Some(scope) = budget.scope {
            by_scope.entry(scope).or_default().push(budget);
        }
    }
    for (scope, pause) in &cx.view.observed.budget_pauses {
        let over = by_scope.get(scope).map_or(&[][..], Vec::as_slice);
        if over.iter().any(|budget| budget.keeps_paused()) {
            continue;
        }
        cx.push(Action::LiftBudgetPause {
            scope: *scope,
            because: why_lifted(pause, over),
        });
    }
}

fn record(
    cx: &mut PlanCx<'_>,
    planned: &mut BTreeSet<(ScopeKey, String, IncidentKind)>,
    budget: &Budget<'_>,
    spend: &Spend,
    kind: IncidentKind,
) {
    let observed = cx.view.observed;
    let key = (spend.scope, spend.window.label.clone(), kind);
    let pause = kind == IncidentKind::Hard && budget.is_hard_stop;
    let is_recorded = observed.incidents.contains(&key);
    let is_paused = observed.budget_pauses.contains_key(&spend.scope);
    if is_recorded && (!pause || is_paused) || !planned.insert(key) {
        return;
    }
    let incident = Incident {
        scope: spend.scope,
        workspace: workspace_of(cx.view, budget.reference, spend.scope),
        budget: budget.reference.clone(),
        window: spend.window.label.clone(),
        kind,
        spent: budget.of(spend),
        ceiling: budget.ceiling,
    };
    let subject = HoldSubject::Object(budget.reference.clone());
    cx.act(Action::RecordIncident { incident, pause }, subject);
}

/// The workspace that the scope lies in; none for the fleet.
fn workspace_of(view: &View<'_>, budget: &ObjectRef, scope: ScopeKey) -> Option<Uid> {
    match scope.kind {
        BudgetScopeKind::Fleet => None,
        BudgetScopeKind::Workspace => scope.uid,
        BudgetScopeKind::Agent | BudgetScopeKind::Space | BudgetScopeKind::Repo => {
            view.workspace_of(budget)
        }
    }
}

fn why_lifted(pause: &BudgetPause, over: &[&Budget<'_>]) -> String {
    let mut stopping = over.iter().filter(|it| it.is_limited() && it.is_hard_stop);
    // Of several, the one in the meter that was exhausted says why.
    let is_same = |it: &&&Budget<'_>| it.meter() == pause.ceiling.meter();
    let Some(budget) = stopping.clone().find(is_same).or_else(|| stopping.next()) else {
        return match over.first() {
            None => "no budget is over it any more".to_owned(),
            Some(budget) if budget.is_limited() => {
                format!(
                    "{} stops nothing any more (hardStop: false)",
                    budget.reference
                )
            }
            Some(budget) => format!("{} is unlimited", budget.reference),
        };
    };
    match budget.spend {
        Some(spend) if spend.window.label != pause.window => {
            format!("the window {} began", spend.window.label)
        }
        Some(spend) => format!(
            "the ceiling {} of {} is above the {} spent",
            budget.ceiling,
            budget.reference,
            budget.of(spend)
        ),
        None => format!("{} does not keep it", budget.reference),
    }
}
