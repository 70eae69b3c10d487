//! Conditions of agents and of what limits them.

use super::{Facts, Says, Stand, no, yes};
use crate::model::budget::{BudgetPause, Meter, ScopeKey};
use crate::model::condition::{ConditionReason, ConditionStatus, ConditionType};
use crate::model::id::Uid;
use crate::model::kind::ObjectRef;
use crate::model::spec::{BudgetScopeKind, Lifecycle};
use crate::plan::budgets::Budget;

impl Facts<'_> {
    /// The effective lifecycle: the strictest of git's, the operator's and the budgets'.
    pub(super) fn paused(&self, agent: Uid) -> Says {
        const KIND: ConditionType = ConditionType::Paused;
        let declared = self.view.agents.get(&agent);
        match declared.and_then(|it| it.resource.spec.lifecycle) {
            Some(Lifecycle::Archived) => {
                return yes(
                    KIND,
                    ConditionReason::Archived,
                    "it declares lifecycle: archived",
                );
            }
            Some(Lifecycle::Paused) => {
                return yes(
                    KIND,
                    ConditionReason::PausedByGit,
                    "it declares lifecycle: paused",
                );
            }
            Some(Lifecycle::Active) | None => {}
        }
        if let Some(pause) = self.view.operator_pause(agent) {
            let why = pause.reason.as_deref().unwrap_or("no reason given");
            let message = format!("paused by {} since {}: {why}", pause.by, pause.since);
            return yes(KIND, ConditionReason::PausedByOperator, message);
        }
        match self.budget_pause(agent) {
            Some((scope, pause)) => {
                let whose = self.scope_name(scope);
                let BudgetPause {
                    spent,
                    ceiling,
                    window,
                    ..
                } = pause;
                let effect = if self.gates(scope) {
                    "its wakes wait"
                } else {
                    "dispatches are still accepted (enforcement: postHoc)"
                };
                let message = format!("{whose} spent {spent} of {ceiling} in {window}; {effect}");
                yes(KIND, ConditionReason::PausedByBudget, message)
            }
            None => no(KIND, ConditionReason::Active, "it takes work"),
        }
    }

    /// Whether a policy over the scope gates dispatch.
    fn gates(&self, scope: ScopeKey) -> bool {
        let over = self.budgets.get(&scope);
        over.is_some_and(|over| over.iter().any(|budget| budget.enforcement.gates()))
    }

    /// The budget pause that holds the agent: its own, or that of a scope that it is in.
    fn budget_pause(&self, agent: Uid) -> Option<(ScopeKey, &BudgetPause)> {
        let view = self.view;
        let workspace = || {
            let declared = view.agents.get(&agent)?;
            view.workspace_of(declared.reference)
        };
        let served = self.served.get(&agent);
        let spaces = served.into_iter().flatten();
        let spaces = spaces.map(|uid| (BudgetScopeKind::Space, Some(*uid)));
        let scopes = [
            (BudgetScopeKind::Agent, Some(agent)),
            (BudgetScopeKind::Workspace, workspace()),
            (BudgetScopeKind::Fleet, None),
        ];
        let scopes = scopes.into_iter().chain(spaces);
        scopes
            .map(|(kind, uid)| ScopeKey { kind, uid })
            .find_map(|scope| Some((scope, view.observed.budget_pauses.get(&scope)?)))
    }

    pub(super) fn stand_of_agent(&self, agent: Uid) -> Stand {
        let Says {
            reason, message, ..
        } = self.paused(agent);
        if reason == ConditionReason::PausedByOperator {
            // An override is drift from what git says.
            return Stand::Stuck(reason, message);
        }
        if matches!(
            reason,
            ConditionReason::Archived
                | ConditionReason::PausedByGit
                | ConditionReason::PausedByBudget
        ) {
            return Stand::Ready(reason, message);
        }
        Stand::Ready(ConditionReason::AsDeclared, "as declared".to_owned())
    }

    /// No backend exists, so no run is wrapped; this is said of every agent.
    pub(super) fn sandbox(&self) -> Says {
        no(
            ConditionType::SandboxActive,
            ConditionReason::SandboxNone,
            "runs are not wrapped by the operating system: no sandbox backend is built in",
        )
    }

    /// The worst of the ceilings over the agent itself.
    pub(super) fn budget_of_agent(&self, agent: Uid) -> Says {
        let scope = ScopeKey {
            kind: BudgetScopeKind::Agent,
            uid: Some(agent),
        };
        let over = self.budgets.get(&scope).map_or(&[][..], Vec::as_slice);
        budget_ok(over.iter())
    }

    /// The policy's own ceiling.
    pub(super) fn budget_of_policy(&self, policy: &ObjectRef) -> Says {
        let budgets = self.budgets.values().flatten();
        budget_ok(budgets.filter(|budget| budget.reference == policy))
    }

    fn scope_name(&self, scope: ScopeKey) -> String {
        let named = scope.uid.map(|uid| self.view.name(uid));
        named.unwrap_or_else(|| "the fleet".to_owned())
    }
}

/// The worst of `budgets`.
fn budget_ok<'b, 'a: 'b>(budgets: impl Iterator<Item = &'b Budget<'a>>) -> Says {
    const KIND: ConditionType = ConditionType::BudgetOk;
    let worst = budgets.max_by_key(|budget| {
        let is_unknown = budget.spend.is_none();
        (budget.is_exhausted(), budget.is_soft_crossed(), is_unknown)
    });
    let Some(budget) = worst else {
        return yes(KIND, ConditionReason::WithinBudget, "no ceiling applies");
    };
    let name = budget.reference;
    let Some(spend) = budget.spend else {
        let message = format!("spend under {name} was not looked at yet");
        return Says {
            status: ConditionStatus::Unknown,
            ..yes(KIND, ConditionReason::Progressing, message)
        };
    };
    let meter = budget.meter();
    let unknown = match (spend.unknown_runs(meter), meter) {
        (0, _) => String::new(),
        (runs, Meter::Money) => format!(", and {runs} runs of unknown cost"),
        (runs, Meter::Tokens) => format!(", and {runs} runs of unknown tokens"),
    };
    let (spent, window) = (budget.of(spend), &spend.window.label);
    let message = if budget.is_limited() {
        format!("{spent} of {} spent in {window}{unknown}", budget.ceiling)
    } else {
        format!("{spent} spent in {window}{unknown}, with no ceiling")
    };
    if budget.is_exhausted() {
        no(KIND, ConditionReason::Exhausted, message)
    } else if budget.is_soft_crossed() {
        yes(KIND, ConditionReason::SoftThreshold, message)
    } else {
        yes(KIND, ConditionReason::WithinBudget, message)
    }
}
