//! Budgets that gate dispatch: a run is admitted only if what is set aside for it fits in what
//! remains of every such budget over it, the live reservations and those of this plan taken off.

use std::collections::{BTreeMap, BTreeSet};

use super::budgets::{Budget, budgets};
use super::view::View;
use crate::model::action::HoldReason;
use crate::model::budget::{
    Amount, BudgetGuard, Meter, RESERVATION_DEFAULT, Reservation, ScopeKey, Spend,
};
use crate::model::id::Uid;
use crate::model::spec::{BudgetScopeKind, Enforcement};
use crate::model::wake::Wake;

/// What gated budgets ask of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// What is set aside.
    pub(super) reservation: Reservation,
    /// The budgets that it is set aside in.
    pub(super) guards: Vec<BudgetGuard>,
}

/// The gated budgets, and what this plan has set aside in them.
#[derive(Debug)]
pub(super) struct Gates<'a> {
    budgets: Vec<Budget<'a>>,
    planned: BTreeMap<(ScopeKey, Meter), i64>,
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
    ///
    /// A run sets one amount aside in all budgets over it, the largest that any of them asks for,
    /// as its row and the exec boundary have it.
    pub(super) fn pass(
        &self,
        view: &View<'_>,
        wake: &Wake,
        repos: &[Uid],
    ) -> Result<Terms, (HoldReason, String)> {
        let over: Vec<&Budget<'a>> = self.over(wake, repos).collect();
        let mut terms = Terms::default();
        for budget in &over {
            terms.reservation.raise(amount(view, budget, wake));
        }
        for budget in over {
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
            priced(view, budget, wake)?;
            self.fits(budget, scope, spend, terms.reservation)?;
            terms.guards.push(BudgetGuard {
                budget: budget.reference.clone(),
                scope,
                window: spend.window.clone(),
                ceiling: budget.ceiling,
                stops: budget.enforcement == Enforcement::GateAndStop,
            });
        }
        Ok(terms)
    }

    /// Whether what the run sets aside is left of the budget.
    fn fits(
        &self,
        budget: &Budget<'_>,
        scope: ScopeKey,
        spend: &Spend,
        reservation: Reservation,
    ) -> Result<(), (HoldReason, String)> {
        let meter = budget.meter();
        let Some(amount) = reservation.of(meter) else {
            return Ok(());
        };
        let planned = self.planned.get(&(scope, meter)).copied().unwrap_or(0);
        let (spent, reserved) = (budget.of(spend), spend.reserved.of(meter));
        let taken = reserved.count().saturating_add(planned);
        let total = spent.count().saturating_add(taken);
        if total.saturating_add(amount.count()) > budget.ceiling.count() {
            let message = format!(
                "{}: {spent} spent and {} set aside of {}; a run needs {amount}",
                budget.reference,
                meter.amount(taken),
                budget.ceiling
            );
            return Err((HoldReason::BudgetExceeded, message));
        }
        Ok(())
    }

    /// The run is part of the plan: later ones find that much less.
    pub(super) fn take(&mut self, terms: &Terms) {
        let mut taken = BTreeSet::new();
        for guard in &terms.guards {
            let key = (guard.scope, guard.ceiling.meter());
            // Two policies over one scope find the same run once.
            if let (Some(amount), true) = (terms.reservation.of(key.1), taken.insert(key)) {
                let planned = self.planned.entry(key).or_default();
                *planned = planned.saturating_add(amount.count());
            }
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

/// Money can't bound a model of which nobody knows what it costs; tokens can.
fn priced(view: &View<'_>, budget: &Budget<'_>, wake: &Wake) -> Result<(), (HoldReason, String)> {
    match (budget.meter(), view.observed.unpriced.get(&wake.agent)) {
        (Meter::Money, Some(model)) => {
            let message = format!(
                "{} gates in money, and the model {model:?} of {} has no price: give its Adapter \
                 `prices`, or gate by `tokens` instead",
                budget.reference,
                view.name(wake.agent)
            );
            Err((HoldReason::ModelUnpriced, message))
        }
        (Meter::Money | Meter::Tokens, _) => Ok(()),
    }
}

/// What the policy declares, else what the agent's runs in the space's mode used, else a round
/// figure.
fn amount(view: &View<'_>, budget: &Budget<'_>, wake: &Wake) -> Amount {
    let meter = budget.meter();
    let declared = budget.reserve.map(Amount::from);
    let declared = declared.filter(|amount| amount.meter() == meter);
    let estimated = || {
        let mode = view.spaces.get(&wake.space)?.resource.spec.mode;
        view.observed.estimates.get(&(wake.agent, mode))?.of(meter)
    };
    declared
        .or_else(estimated)
        .unwrap_or_else(|| RESERVATION_DEFAULT.of(meter))
}
