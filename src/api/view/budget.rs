//! Budgets with their spend.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::dto::{Budget, BudgetList, Incident};
use crate::api::problem::Failure;
use crate::model::budget::{ScopeKey, Window};
use crate::model::kind::{Kind, ObjectRef};
use crate::model::spec::{AgentSpec, BudgetPolicySpec, BudgetScope, BudgetScopeKind, FleetSpec};
use crate::model::units::Money;
use crate::model::zone::time_zone;
use crate::store::{IncidentView, ObjectView, Store};

/// Incidents that are looked through for those of this month.
const INCIDENTS: u32 = 1_000;

/// A ceiling as declared.
struct Ceiling {
    budget: ObjectRef,
    scope: BudgetScope,
    monthly: Money,
    zone: Option<String>,
}

/// Every policy, and every agent's own figure that no policy replaces, with this month's spend.
///
/// # Errors
/// When the database fails.
pub async fn budgets(store: &Store, now: Timestamp) -> Result<BudgetList, Failure> {
    let objects = store.objects(None).await?;
    let observed = store.observe(now).await?;
    let incidents = store.incidents(INCIDENTS).await?;
    let fleet = objects.iter().find_map(of_kind::<FleetSpec>(Kind::Fleet));
    let fleet_zone = fleet.map_or_else(|| FleetSpec::default().zone, |(_, fleet)| fleet.zone);
    let mut budgets = Vec::new();
    for ceiling in ceilings(&objects) {
        let Some(scope) = observed.scope_key(&ceiling.budget, &ceiling.scope) else {
            continue;
        };
        let zone = ceiling.zone.as_ref().unwrap_or(&fleet_zone);
        // Zones were checked when the revision was accepted; they are built in.
        let zone = time_zone(zone).unwrap_or(TimeZone::UTC);
        let Ok(window) = Window::containing(now, &zone) else {
            continue;
        };
        let (spent, unpriced_runs) = store.spend(scope, &window).await?;
        let pause = observed.budget_pauses.get(&scope);
        budgets.push(Budget {
            budget: ceiling.budget.to_string(),
            scope: scope.kind.to_string(),
            scope_name: ceiling.scope.name.map(|it| it.to_string()),
            spent_micros: spent.micros(),
            ceiling_micros: ceiling.monthly.micros(),
            unpriced_runs,
            paused_since: pause.map(|it| it.since),
            incidents: crossings(&incidents, scope, &window),
            window: window.label,
        });
    }
    Ok(BudgetList { budgets })
}

fn ceilings(objects: &[ObjectView]) -> Vec<Ceiling> {
    let policies = objects
        .iter()
        .filter_map(of_kind::<BudgetPolicySpec>(Kind::BudgetPolicy));
    let mut ceilings: Vec<Ceiling> = policies
        .map(|(budget, policy)| Ceiling {
            budget: budget.clone(),
            scope: policy.scope,
            monthly: policy.monthly,
            zone: policy.zone,
        })
        .collect();
    let agents = objects.iter().filter_map(of_kind::<AgentSpec>(Kind::Agent));
    for (agent, spec) in agents {
        let Some(own) = spec.budget else { continue };
        let scope = BudgetScope {
            kind: BudgetScopeKind::Agent,
            name: Some(agent.name.clone()),
        };
        let is_replaced = ceilings
            .iter()
            .any(|ceiling| ceiling.scope == scope && ceiling.budget.workspace == agent.workspace);
        if !is_replaced {
            ceilings.push(Ceiling {
                budget: agent.clone(),
                scope,
                monthly: own.monthly,
                zone: None,
            });
        }
    }
    ceilings
}

/// The spec of an object that is of this kind and not being deleted.
fn of_kind<S: DeserializeOwned>(kind: Kind) -> impl Fn(&ObjectView) -> Option<(&ObjectRef, S)> {
    move |object| {
        let json = object
            .json
            .as_ref()
            .filter(|_| object.reference.kind == kind)?;
        let mut document: Value = serde_json::from_str(json).ok()?;
        let spec = serde_json::from_value(document.get_mut("spec")?.take()).ok()?;
        Some((&object.reference, spec))
    }
}

fn crossings(incidents: &[IncidentView], scope: ScopeKey, window: &Window) -> Vec<Incident> {
    incidents
        .iter()
        .filter(|it| it.incident.scope == scope && it.incident.window == window.label)
        .map(|it| Incident {
            kind: it.incident.kind,
            window: it.incident.window.clone(),
            spent_micros: it.incident.spent.micros(),
            ceiling_micros: it.incident.ceiling.micros(),
            at: it.at,
        })
        .collect()
}
