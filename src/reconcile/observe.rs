//! Observing: one snapshot of the rows, and what only this process knows.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{ReconcileError, Reconciler};
use crate::model::budget::{ESTIMATE_RUNS, Spend, Window, estimate};
use crate::model::desired::Catalog;
use crate::model::kind::ObjectRef;
use crate::model::observed::Observed;
use crate::model::spec::{BudgetScope, BudgetScopeKind};
use crate::model::zone::time_zone;
use crate::process::estop;
use crate::task::blocking;

impl Reconciler {
    /// Everything that the planner reads beside the catalog.
    pub(super) async fn observe(
        &self,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<Observed, ReconcileError> {
        // Attached first: a run that ends meanwhile is seen as ended, or still as attached, and never
        // as an orphan. None starts meanwhile, since only this loop starts runs.
        let attached = self.executor.runs().attached();
        let mut observed = self.store.observe(now).await?;
        for (id, run) in &mut observed.live_runs {
            run.is_attached = attached.contains(id);
        }
        let data_dir = self.settings.data_dir.clone();
        observed.estop = blocking("read estop", move || estop::read(&data_dir))
            .await?
            .map_err(ReconcileError::Estop)?;
        observed.backend = Some(self.settings.backend);
        observed.is_draining = self.handle.is_draining();
        self.add_spend(catalog, &mut observed, now).await?;
        if catalog
            .budget_policies
            .values()
            .any(|policy| policy.spec.enforcement.gates())
        {
            self.add_estimates(&mut observed).await?;
        }
        Ok(observed)
    }

    /// What a run of each agent with a waiting wake may cost.
    async fn add_estimates(&self, observed: &mut Observed) -> Result<(), ReconcileError> {
        let waiting: BTreeSet<_> = observed
            .wakes
            .iter()
            .map(|queued| queued.wake.agent)
            .collect();
        for agent in waiting {
            let limit = u32::try_from(ESTIMATE_RUNS).unwrap_or(u32::MAX);
            let costs = self.store.latest_costs(agent, limit).await?;
            if let Some(estimate) = estimate(&costs) {
                observed.estimates.insert(agent, estimate);
            }
        }
        Ok(())
    }

    /// Month-to-date spend of every budget in the catalog.
    async fn add_spend(
        &self,
        catalog: &Catalog,
        observed: &mut Observed,
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        for (budget, scope, zone) in budgets(catalog) {
            let Some(scope) = observed.scope_key(&budget, &scope) else {
                continue;
            };
            // Zones were checked when the revision was accepted.
            let zone = time_zone(&zone).unwrap_or(TimeZone::UTC);
            let Ok(window) = Window::containing(now, &zone) else {
                continue;
            };
            let (spent, unpriced_runs) = self.store.spend(scope, &window).await?;
            let reserved = self.store.reserved(scope).await?;
            observed.spend.insert(
                budget,
                Spend {
                    scope,
                    window,
                    spent,
                    reserved,
                    unpriced_runs,
                },
            );
        }
        Ok(())
    }
}

/// Every budget, with its scope and zone: the policies, and the agents' own figures.
fn budgets(catalog: &Catalog) -> Vec<(ObjectRef, BudgetScope, String)> {
    let fleet_zone = catalog.fleet_spec().zone;
    let mut budgets = Vec::new();
    for (reference, policy) in &catalog.budget_policies {
        let zone = policy
            .spec
            .zone
            .clone()
            .unwrap_or_else(|| fleet_zone.clone());
        budgets.push((reference.clone(), policy.spec.scope.clone(), zone));
    }
    for (reference, agent) in &catalog.agents {
        if agent.spec.budget.is_some() {
            let scope = BudgetScope {
                kind: BudgetScopeKind::Agent,
                name: Some(reference.name.clone()),
            };
            budgets.push((reference.clone(), scope, fleet_zone.clone()));
        }
    }
    budgets
}
