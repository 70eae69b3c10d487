//! What was spent, and the budgets that were crossed.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::sql::{At, Columns, Text};
use super::{Store, StoreError};
use crate::model::budget::{Incident, ScopeKey, Totals};
use crate::model::id::Uid;
use crate::model::spec::{BudgetScopeKind, Mode};
use crate::model::units::{Money, Tokens};
use crate::model::window::Window;

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

/// What a scope spent in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeSpend {
    /// As far as it is known.
    pub spent: Totals,
    /// Runs whose cost is not known.
    pub unpriced_runs: u32,
    /// Runs whose tokens are not known.
    pub uncounted_runs: u32,
}

/// What a scope spent in a window, settled runs alone.
///
/// Tokens are what agents and wires report, so they are added up as `total` does, which no sum can
/// make fail: it is exact up to 2^53, more than a ceiling may be.
pub(super) fn settled_in(
    conn: &Connection,
    scope: ScopeKey,
    window: &Window,
) -> rusqlite::Result<ScopeSpend> {
    conn.prepare_cached(&format!(
        "SELECT coalesce(sum(micros), 0) AS money, CAST(total(tokens) AS INTEGER) AS tokens,
           count(*) - count(micros) + coalesce(sum(is_estimated), 0) AS unpriced,
           count(*) - count(tokens) + coalesce(sum(are_tokens_estimated), 0) AS uncounted
         FROM ledger WHERE at >= ?1 AND at < ?2 AND {}",
        scope_condition(scope.kind)
    ))?
    .query_row(
        params![At(window.start), At(window.end), scope.uid.map(Text)],
        |row| {
            Ok(ScopeSpend {
                spent: row.totals("money", "tokens")?,
                unpriced_runs: row.count32("unpriced")?,
                uncounted_runs: row.count32("uncounted")?,
            })
        },
    )
}

/// What the live runs of a scope hold: the reservation, or what was used where that is more.
pub(super) fn reserved_in(conn: &Connection, scope: ScopeKey) -> rusqlite::Result<Totals> {
    live_totals(
        conn,
        scope,
        "max(coalesce(reservation_micros, 0), coalesce(used, 0))",
        "max(coalesce(reservation_tokens, 0), coalesce(used_tokens, 0))",
    )
}

/// Sums over the live runs of a scope. `used` and `used_tokens` are what their usage events report.
/// The indexes are named because the planner has no figures to prefer them by: without, every run
/// that ever was is looked through, and every event of those that live.
fn live_totals(
    conn: &Connection,
    scope: ScopeKey,
    money: &str,
    tokens: &str,
) -> rusqlite::Result<Totals> {
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
        "SELECT coalesce(sum({money}), 0) AS money, CAST(total({tokens}) AS INTEGER) AS tokens FROM (
           SELECT r.reservation_micros, r.reservation_tokens,
             sum(json_extract(e.json, '$.costMicros')) AS used,
             total(json_extract(e.json, '$.inputTokens'))
               + total(json_extract(e.json, '$.outputTokens'))
               + total(json_extract(e.json, '$.cachedReadTokens'))
               + total(json_extract(e.json, '$.cachedWriteTokens')) AS used_tokens
           FROM runs r INDEXED BY runs_live
           LEFT JOIN run_events e INDEXED BY run_events_usage
             ON e.run = r.id AND e.type = 'usage'
           WHERE r.status IN ('pending', 'running') AND {condition} GROUP BY r.seq)"
    ))?
    .query_row([scope.uid.map(Text)], |row| row.totals("money", "tokens"))
}

impl Store {
    /// What a scope spent in a window, by the time at which the cost arose, and how many runs of
    /// it are not known to the full.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn spend(&self, scope: ScopeKey, window: &Window) -> Result<ScopeSpend, StoreError> {
        let window = window.clone();
        self.connections
            .read("spend", move |conn| settled_in(conn, scope, &window))
            .await
    }

    /// What is set aside for the live runs of a scope, or was used by them where that is more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reserved(&self, scope: ScopeKey) -> Result<Totals, StoreError> {
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
    ) -> Result<Totals, StoreError> {
        let window = window.clone();
        self.connections
            .read("spend so far", move |conn| {
                let settled = settled_in(conn, scope, &window)?.spent;
                let live =
                    live_totals(conn, scope, "coalesce(used, 0)", "coalesce(used_tokens, 0)")?;
                Ok(settled.saturating_add(live))
            })
            .await
    }

    /// The costs of the agent's latest priced runs in the mode, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn latest_costs(
        &self,
        agent: Uid,
        mode: Mode,
        limit: u32,
    ) -> Result<Vec<Money>, StoreError> {
        let sql = "SELECT l.micros FROM ledger l JOIN runs r ON r.id = l.run
                   WHERE l.agent = ?1 AND r.mode = ?2 AND l.micros > 0 AND l.is_estimated = 0
                   ORDER BY l.seq DESC LIMIT ?3";
        let counts = self.latest(sql, agent, mode, limit).await?;
        Ok(counts.into_iter().map(Money::from_micros).collect())
    }

    /// The tokens of the agent's latest counted runs in the mode, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn latest_tokens(
        &self,
        agent: Uid,
        mode: Mode,
        limit: u32,
    ) -> Result<Vec<Tokens>, StoreError> {
        let sql = "SELECT l.tokens FROM ledger l JOIN runs r ON r.id = l.run
                   WHERE l.agent = ?1 AND r.mode = ?2 AND l.tokens > 0
                     AND l.are_tokens_estimated = 0
                   ORDER BY l.seq DESC LIMIT ?3";
        let counts = self.latest(sql, agent, mode, limit).await?;
        Ok(counts.into_iter().map(Tokens::new).collect())
    }

    async fn latest(
        &self,
        sql: &'static str,
        agent: Uid,
        mode: Mode,
        limit: u32,
    ) -> Result<Vec<i64>, StoreError> {
        self.connections
            .read("latest runs", move |conn| {
                conn.prepare_cached(sql)?
                    .query_map(params![Text(agent), Text(mode), limit], |row| row.get(0))?
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
            spent: row.amount("spent")?,
            ceiling: row.amount("ceiling")?,
        },
        at: row.at("at")?,
    })
}
