//! Budgets that gate dispatch: a run is admitted only if what is set aside for it fits in what
//! remains of every such budget over it, the live reservations and those of this plan taken off.

use std::collections::BTreeMap;

use super::budgets::{Budget, budgets};
use super::view::View;
use crate::model::action::HoldReason;
use crate::model::budget::{BudgetGuard, RESERVATION_DEFAULT, ScopeKey};
use crate::model::id::Uid;
use crate::model::spec::{BudgetScopeKind, Enforcement};
use crate::model::units::Money;
use crate::model::wake::Wake;

/// What gated budgets ask of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservation {
    /// What is set aside; none where nothing gates.
    pub(super) amount: Option<Money>,
    /// The budgets that it is set aside in.
    pub(super) guards: Vec<BudgetGuard>,
}

/// The gated budgets, and what this plan has set aside in them.
#[derive(Debug)]
pub(super) struct Gates<'a> {
    budgets: Vec<Budget<'a>>,
    planned: BTreeMap<ScopeKey, Money>,
}

impl<'a> Gates<'a> {
    pub(super) fn of(view: &View<'a>) -> Self {
        let mut budgets = budgets(view);
        budgets.retain(|budget| budget.enforcement.gates() && budget.is_limited());
        Self {
            budgets,
            planned: BTreeMap::new(),
        }
    }

    /// What the run of `wake` has to set aside, or the budget that has no room for it.
    pub(super) fn pass(
        &self,
        view: &View<'_>,
        wake: &Wake,
        repos: &[Uid],
    ) -> Result<Reservation, (HoldReason, String)> {
        let mut reservation = Reservation::default();
        for budget in self.over(wake, repos) {
            let (Some(scope), Some(spend)) = (budget.scope, budget.spend) else {
                let message = format!("what {} spent could not be looked at", budget.reference);
                return Err((HoldReason::BudgetExceeded, message));
            };
            if let Some(pause) = view.observed.budget_pauses.get(&scope) {
                let message = format!(
                    "{} is exhausted: {} of {} in {}",
                    budget.reference, pause.spent, pause.ceiling, pause.window
                );
                return Err((HoldReason::PausedByBudget, message));
            }
            let amount = amount(view, budget, wake.agent);
            let planned = self.planned.get(&scope).copied().unwrap_or_default();
            let taken = spend.reserved.saturating_add(planned);
            let total = spend.spent.saturating_add(taken).saturating_add(amount);
            if total > budget.ceiling {
                let message = format!(
                    "{}: {} spent and {taken} set aside of {}; a run needs {amount}",
                    budget.reference, spend.spent, budget.ceiling
                );
                return Err((HoldReason::BudgetExceeded, message));
            }
            reservation.amount = reservation.amount.max(Some(amount));
            reservation.guards.push(BudgetGuard {
                budget: budget.reference.clone(),
                scope,
                window: spend.window.clone(),
                ceiling: budget.ceiling,
                stops: budget.enforcement == Enforcement::GateAndStop,
            });
        }
        Ok(reservation)
    }

    /// The run is part of the plan: later ones find that much less.
    pub(super) fn take(&mut self, reservation: &Reservation) {
        for guard in &reservation.guards {
            let planned = self.planned.entry(guard.scope).or_default();
            *planned = planned.saturating_add(reservation.amount.unwrap_or_default());
        }
    }

    fn over(&self, wake: &Wake, repos: &[Uid]) -> impl Iterator<Item = &Budget<'a>> {
        let covers = |scope: ScopeKey| match scope.kind {
            BudgetScopeKind::Fleet => true,
            BudgetScopeKind::Agent => scope.uid == Some(wake.agent),
            BudgetScopeKind::Space => scope.uid == Some(wake.space),
            BudgetScopeKind::Workspace => scope.uid == Some(wake.workspace),
            BudgetScopeKind::Repo => scope.uid.is_some_and(|uid| repos.contains(&uid)),
        };
        self.budgets
            .iter()
            .filter(move |it| it.scope.is_some_and(covers))
    }
}

/// What the policy declares, else what the agent's runs cost, else a round figure.
fn amount(view: &View<'_>, budget: &Budget<'_>, agent: Uid) -> Money {
    budget
        .reserve
        .or_else(|| view.observed.estimates.get(&agent).copied())
        .unwrap_or(RESERVATION_DEFAULT)
}
