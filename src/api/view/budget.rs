//! Budgets with their spend.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::dto::{Budget, BudgetList, BudgetState, BudgetUse, Incident};
use crate::api::problem::Failure;
use crate::model::budget::{
    Amount, IncidentKind, Meter, SOFT_PERCENT_DEFAULT, ScopeKey, Totals, forecast,
};
use crate::model::kind::{Kind, ObjectRef};
use crate::model::spec::{
    AgentSpec, BudgetPolicySpec, BudgetScope, BudgetScopeKind, Enforcement, FleetSpec,
};
use crate::model::window::Window;
use crate::model::zone::time_zone;
use crate::store::{IncidentView, ObjectView, ScopeSpend, Store};

/// Incidents that are looked through for those of this month.
const INCIDENTS: u32 = 1_000;

/// A budget as declared.
struct Declared {
    budget: ObjectRef,
    scope: BudgetScope,
    ceilings: Vec<Amount>,
    soft_percent: u8,
    enforcement: Enforcement,
    hard_stop: bool,
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
    for declared in declared(&objects) {
        let Some(scope) = observed.scope_key(&declared.budget, &declared.scope) else {
            continue;
        };
        let zone = declared.zone.clone().unwrap_or_else(|| fleet_zone.clone());
        // Zones were checked when the revision was accepted; they are built in.
        let in_zone = time_zone(&zone).unwrap_or(TimeZone::UTC);
        let Ok(window) = Window::containing(now, &in_zone) else {
            continue;
        };
        let spend = store.spend(scope, &window).await?;
        let reserved = store.reserved(scope).await?;
        let paused_since = observed.budget_pauses.get(&scope).map(|it| it.since);
        budgets.push(Budget {
            scope: scope_name(&declared),
            state: state(&declared, &spend, paused_since.is_some()),
            paused_since,
            uses: declared
                .ceilings
                .iter()
                .map(|ceiling| in_use(*ceiling, &spend, reserved, &window, now))
                .collect(),
            spent_micros: spend.spent.money.micros(),
            spent_tokens: spend.spent.tokens.count(),
            unpriced_runs: spend.unpriced_runs,
            incidents: crossings(&incidents, scope, &window),
            budget: declared.budget.to_string(),
            enforcement: declared.enforcement,
            hard_stop: declared.hard_stop,
            zone,
            window_start: window.start,
            window_end: window.end,
            window: window.label,
        });
    }
    Ok(BudgetList { budgets })
}

fn in_use(
    ceiling: Amount,
    spend: &ScopeSpend,
    reserved: Totals,
    window: &Window,
    now: Timestamp,
) -> BudgetUse {
    let meter = ceiling.meter();
    let spent = spend.spent.of(meter);
    let reserved = reserved.of(meter).count();
    let limit = ceiling.count();
    let left = limit.saturating_sub(spent.count().saturating_add(reserved));
    BudgetUse {
        meter,
        ceiling: limit,
        spent: spent.count(),
        reserved,
        remaining: (limit > 0).then_some(left.max(0)),
        forecast: forecast(spent, window, now).map(Amount::count),
        unknown_runs: match meter {
            Meter::Money => spend.unpriced_runs,
            Meter::Tokens => spend.uncounted_runs,
        },
    }
}

/// The worst of its ceilings; a pause is worse than what caused it.
fn state(declared: &Declared, spend: &ScopeSpend, is_paused: bool) -> BudgetState {
    let crossed = declared.ceilings.iter().filter_map(|ceiling| {
        let spent = spend.spent.of(ceiling.meter());
        IncidentKind::crossed(spent, *ceiling, declared.soft_percent)
    });
    match crossed.max() {
        _ if is_paused => BudgetState::Paused,
        Some(IncidentKind::Hard) => BudgetState::Exhausted,
        Some(IncidentKind::Soft) => BudgetState::Soft,
        None => BudgetState::Ok,
    }
}

/// The object that the budget is over, by name.
fn scope_name(declared: &Declared) -> String {
    let kind = declared.scope.kind.kind();
    let Some(name) = &declared.scope.name else {
        return kind.to_string();
    };
    let workspace = declared.budget.workspace.clone();
    ObjectRef {
        kind,
        workspace: workspace.filter(|_| kind != Kind::Workspace),
        name: name.clone(),
    }
    .to_string()
}

fn declared(objects: &[ObjectView]) -> Vec<Declared> {
    let policies = objects
        .iter()
        .filter_map(of_kind::<BudgetPolicySpec>(Kind::BudgetPolicy));
    let mut budgets: Vec<Declared> = policies
        .map(|(budget, policy)| Declared {
            budget: budget.clone(),
            ceilings: policy.ceilings().collect(),
            scope: policy.scope,
            soft_percent: policy.soft_threshold_percent,
            enforcement: policy.enforcement,
            hard_stop: policy.hard_stop,
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
        let is_replaced = budgets
            .iter()
            .any(|it| it.scope == scope && it.budget.workspace == agent.workspace);
        if !is_replaced {
            budgets.push(Declared {
                budget: agent.clone(),
                scope,
                ceilings: vec![own.monthly.into()],
                soft_percent: SOFT_PERCENT_DEFAULT,
                enforcement: Enforcement::PostHoc,
                hard_stop: true,
                zone: None,
            });
        }
    }
    budgets
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
            meter: it.incident.ceiling.meter(),
            spent: it.incident.spent.count(),
            ceiling: it.incident.ceiling.count(),
            at: it.at,
        })
        .collect()
}
