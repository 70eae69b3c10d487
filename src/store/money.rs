//! What was spent, and the budgets that were crossed.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::sql::{At, Columns, Text};
use super::{Store, StoreError};
use crate::model::budget::{Incident, ScopeKey, Window};
use crate::model::id::Uid;
use crate::model::spec::BudgetScopeKind;
use crate::model::units::Money;

/// An incident with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentView {
    /// The crossing.
    pub incident: Incident,
    /// When it was recorded.
    pub at: Timestamp,
}

/// What one agent spent in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSpend {
    /// The agent.
    pub agent: Uid,
    /// What is known.
    pub spent: Money,
    /// Runs.
    pub runs: u32,
    /// Runs whose cost is not known.
    pub unpriced_runs: u32,
}

impl Store {
    /// What a scope spent in a window, by the time at which the cost arose, and how many runs of
    /// it have no known cost.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn spend(
        &self,
        scope: ScopeKey,
        window: &Window,
    ) -> Result<(Money, u32), StoreError> {
        let (start, end) = (window.start, window.end);
        self.connections
            .read("spend", move |conn| {
                conn.prepare_cached(&format!(
                    "SELECT coalesce(sum(micros), 0) AS spent, count(*) - count(micros) AS unpriced
                     FROM ledger WHERE at >= ?1 AND at < ?2 AND {}",
                    scope_condition(scope.kind)
                ))?
                .query_row(params![At(start), At(end), scope.uid.map(Text)], |row| {
                    Ok((row.money("spent")?, row.count32("unpriced")?))
                })
            })
            .await
    }

    /// Incidents, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn incidents(&self, limit: u32) -> Result<Vec<IncidentView>, StoreError> {
        self.connections
            .read("incidents", move |conn| {
                conn.prepare_cached("SELECT * FROM incidents ORDER BY seq DESC LIMIT ?1")?
                    .query_map([limit], incident_view)?
                    .collect()
            })
            .await
    }

    /// What each agent spent in a window, in uid order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn spend_by_agent(&self, window: &Window) -> Result<Vec<AgentSpend>, StoreError> {
        let (start, end) = (window.start, window.end);
        self.connections
            .read("spend", move |conn| {
                conn.prepare_cached(
                    "SELECT agent, coalesce(sum(micros), 0) AS spent, count(*) AS runs,
                       count(*) - count(micros) AS unpriced
                     FROM ledger WHERE at >= ?1 AND at < ?2 GROUP BY agent ORDER BY agent",
                )?
                .query_map(params![At(start), At(end)], |row| {
                    Ok(AgentSpend {
                        agent: row.text("agent")?,
                        spent: row.money("spent")?,
                        runs: row.count32("runs")?,
                        unpriced_runs: row.count32("unpriced")?,
                    })
                })?
                .collect()
            })
            .await
    }
}

/// Which entries are a scope's; `?3` is its uid.
const fn scope_condition(kind: BudgetScopeKind) -> &'static str {
    match kind {
        BudgetScopeKind::Agent => "agent = ?3",
        BudgetScopeKind::Space => "space = ?3",
        BudgetScopeKind::Workspace => "workspace = ?3",
        BudgetScopeKind::Repo => {
            "EXISTS (SELECT 1 FROM ledger_repos WHERE entry = ledger.seq AND repo = ?3)"
        }
        BudgetScopeKind::Fleet => "?3 IS NULL",
    }
}

fn incident_view(row: &Row<'_>) -> rusqlite::Result<IncidentView> {
    Ok(IncidentView {
        incident: Incident {
            scope: row.scope()?,
            workspace: row.text_opt("workspace")?,
            budget: row.reference("budget")?,
            window: row.get("window")?,
            kind: row.text("kind")?,
            spent: row.money("spent_micros")?,
            ceiling: row.money("ceiling_micros")?,
        },
        at: row.at("at")?,
    })
}
