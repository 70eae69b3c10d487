//! Observing: one snapshot of the rows, and what only this process knows.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{ReconcileError, Reconciler};
use crate::model::budget::{ESTIMATE_RUNS, Reservation, Spend, estimate};
use crate::model::desired::Catalog;
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::observed::Observed;
use crate::model::spec::{AdapterType, AgentSpec, BudgetScope, BudgetScopeKind, Mode};
use crate::model::window::Window;
use crate::model::zone::time_zone;
use crate::price::PriceTable;
use crate::process::estop;
use crate::store::ScopeSpend;
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
        let listening = self.executor.runs().listening();
        let mut observed = self.store.observe(now).await?;
        for (id, run) in &mut observed.live_runs {
            run.is_attached = attached.contains(id);
            run.is_listening = listening.contains(id);
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
            self.add_estimates(catalog, &mut observed).await?;
            observed.unpriced = unpriced(catalog, &observed, now);
        }
        Ok(observed)
    }

    /// What a run of each waiting wake may use, by its agent and its space's mode.
    async fn add_estimates(
        &self,
        catalog: &Catalog,
        observed: &mut Observed,
    ) -> Result<(), ReconcileError> {
        let modes = catalog.spaces.iter().filter_map(|(reference, space)| {
            let state = observed.objects.get(reference)?;
            Some((state.uid, space.spec.mode))
        });
        let modes: BTreeMap<Uid, Mode> = modes.collect();
        let waiting = observed.wakes.iter().filter_map(|queued| {
            let mode = modes.get(&queued.wake.space)?;
            Some((queued.wake.agent, *mode))
        });
        let waiting: BTreeSet<_> = waiting.collect();
        let limit = u32::try_from(ESTIMATE_RUNS).unwrap_or(u32::MAX);
        for (agent, mode) in waiting {
            let costs = self.store.latest_costs(agent, mode, limit).await?;
            let tokens = self.store.latest_tokens(agent, mode, limit).await?;
            let estimate = Reservation {
                money: estimate(&costs),
                tokens: estimate(&tokens),
            };
            observed.estimates.insert((agent, mode), estimate);
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
            let ScopeSpend {
                spent,
                unpriced_runs,
                uncounted_runs,
            } = self.store.spend(scope, &window).await?;
            let reserved = self.store.reserved(scope).await?;
            observed.spend.insert(
                budget,
                Spend {
                    scope,
                    window,
                    spent,
                    reserved,
                    unpriced_runs,
                    uncounted_runs,
                },
            );
        }
        Ok(())
    }
}

/// Names that Claude Code takes for whichever model is current: what they cost is known of the model
/// that answers.
const CLAUDE_ALIASES: [&str; 6] = ["default", "best", "sonnet", "opus", "haiku", "opusplan"];

/// Agents with a waiting wake that name a model without a price.
fn unpriced(catalog: &Catalog, observed: &Observed, now: Timestamp) -> BTreeMap<Uid, String> {
    let waiting = observed.wakes.iter().map(|queued| queued.wake.agent);
    let waiting: BTreeSet<Uid> = waiting.collect();
    let agents = catalog.agents.iter().filter_map(|(reference, agent)| {
        let uid = observed.objects.get(reference)?.uid;
        let is_waiting = waiting.contains(&uid);
        let model = is_waiting.then(|| unpriced_model(catalog, &agent.spec, now))?;
        Some((uid, model?.to_owned()))
    });
    agents.collect()
}

/// The model that an agent names, where neither its adapter nor the built-in table has a price for it.
fn unpriced_model<'a>(catalog: &Catalog, agent: &'a AgentSpec, now: Timestamp) -> Option<&'a str> {
    let model = agent.model.as_deref()?;
    let adapter = ObjectRef {
        kind: Kind::Adapter,
        workspace: None,
        name: agent.adapter.clone(),
    };
    let adapter = &catalog.adapters.get(&adapter)?.spec;
    let name = model.strip_suffix("[1m]").unwrap_or(model);
    let is_alias = adapter.r#type == AdapterType::ClaudeCode && CLAUDE_ALIASES.contains(&name);
    let is_priced = is_alias || PriceTable::embedded(&adapter.prices).has_price(name, now);
    (!is_priced).then_some(model)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{ManifestFile, load};

    /// Whether an agent on an adapter of this spec that names the model has a price.
    fn is_priced(adapter: &str, model: &str) -> bool {
        let yaml = format!(
            "apiVersion: homeostat/v1alpha1\nkind: Adapter\nmetadata: {{name: it}}\n\
             spec: {{{adapter}}}\n---\napiVersion: homeostat/v1alpha1\nkind: Agent\n\
             metadata: {{name: ada, workspace: shop}}\n\
             spec: {{title: Ada, adapter: it{model}}}\n"
        );
        let catalog = load(&[ManifestFile {
            path: "fleet.yaml".to_owned(),
            bytes: yaml.into_bytes(),
        }])
        .catalog;
        let now = "2026-11-30T12:00:00Z".parse().unwrap();
        let (_, agent) = catalog.agents.first_key_value().unwrap();
        unpriced_model(&catalog, &agent.spec, now).is_none()
    }

    #[test]
    fn only_a_model_that_is_named_and_nowhere_priced_has_no_price() {
        let claude = "type: claudeCode";
        let script = "type: command, command: sh";
        let priced = "type: command, command: sh, \
                      prices: [{model: House-7, input: \"$1\", output: \"$2\"}]";
        for (adapter, model, expected) in [
            (claude, "", true),
            (claude, ", model: claude-sonnet-4-5", true),
            (claude, ", model: 'claude-sonnet-4-5[1m]'", true),
            (claude, ", model: sonnet", true),
            (claude, ", model: 'opus[1m]'", true),
            (claude, ", model: house-7", false),
            (script, "", true),
            (script, ", model: sonnet-of-the-house", false),
            (script, ", model: house-7", false),
            (priced, ", model: house-7", true),
            (priced, ", model: house-8", false),
        ] {
            assert_eq!(is_priced(adapter, model), expected, "{adapter}{model}");
        }
    }
}
