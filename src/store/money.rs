//! What was spent, and the budgets that were crossed.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

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

/// What a scope spent in a window, settled runs alone.
pub(super) fn settled_in(
    conn: &Connection,
    scope: ScopeKey,
    window: &Window,
) -> rusqlite::Result<Money> {
    conn.prepare_cached(&format!(
        "SELECT coalesce(sum(micros), 0) AS spent
         FROM ledger WHERE at >= ?1 AND at < ?2 AND {}",
        scope_condition(scope.kind)
    ))?
    .query_row(
        params![At(window.start), At(window.end), scope.uid.map(Text)],
        |row| row.money("spent"),
    )
}

/// What the live runs of a scope hold: the reservation, or what was used where that is more.
pub(super) fn reserved_in(conn: &Connection, scope: ScopeKey) -> rusqlite::Result<Money> {
    live_sum(
        conn,
        scope,
        "max(coalesce(reservation_micros, 0), coalesce(used, 0))",
    )
}

/// A sum over the live runs of a scope. `used` is what their usage events report.
fn live_sum(conn: &Connection, scope: ScopeKey, sum: &str) -> rusqlite::Result<Money> {
    let condition = match scope.kind {
        BudgetScopeKind::Agent => "r.agent = ?1",
        BudgetScopeKind::Space => "r.space = ?1",
        BudgetScopeKind::Workspace => "r.workspace = ?1",
        BudgetScopeKind::Repo => {
            "EXISTS (SELECT 1 FROM run_trees t WHERE t.run = r.id AND t.repo = ?1)"
        }
        BudgetScopeKind::Fleet => "?1 IS NULL",
    };
    conn.prepare_cached(&format!(
        "SELECT coalesce(sum({sum}), 0) AS total FROM (
           SELECT r.reservation_micros,
             (SELECT sum(json_extract(e.json, '$.costMicros')) FROM run_events e
              WHERE e.run = r.id AND e.type = 'usage') AS used
           FROM runs r WHERE r.status IN ('pending', 'running') AND {condition})"
    ))?
    .query_row([scope.uid.map(Text)], |row| row.money("total"))
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
                    "SELECT coalesce(sum(micros), 0) AS spent,
                       count(*) - count(micros) + coalesce(sum(is_estimated), 0) AS unpriced
                     FROM ledger WHERE at >= ?1 AND at < ?2 AND {}",
                    scope_condition(scope.kind)
                ))?
                .query_row(params![At(start), At(end), scope.uid.map(Text)], |row| {
                    Ok((row.money("spent")?, row.count32("unpriced")?))
                })
            })
            .await
    }

    /// What is set aside for the live runs of a scope, or was used by them where that is more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reserved(&self, scope: ScopeKey) -> Result<Money, StoreError> {
        self.connections
            .read("reservations", move |conn| reserved_in(conn, scope))
            .await
    }

    /// Everything that a scope has spent in a window so far, what live runs report included.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn spend_so_far(
        &self,
        scope: ScopeKey,
        window: &Window,
    ) -> Result<Money, StoreError> {
        let window = window.clone();
        self.connections
            .read("spend so far", move |conn| {
                let settled = settled_in(conn, scope, &window)?;
                Ok(settled.saturating_add(live_sum(conn, scope, "coalesce(used, 0)")?))
            })
            .await
    }

    /// The costs of the agent's latest priced runs, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn latest_costs(&self, agent: Uid, limit: u32) -> Result<Vec<Money>, StoreError> {
        self.connections
            .read("latest costs", move |conn| {
                conn.prepare_cached(
                    "SELECT micros FROM ledger
                     WHERE agent = ?1 AND micros > 0 AND is_estimated = 0
                     ORDER BY seq DESC LIMIT ?2",
                )?
                .query_map(params![Text(agent), limit], |row| row.money("micros"))?
                .collect()
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
