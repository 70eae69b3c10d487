//! What the planner's actions do to rows: one transaction each, idempotent, and refused as stale
//! when the rows are no longer those that the action was planned against.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::sql::{At, Columns, Text, exists, scope_uid};
use super::wake::insert_wake;
use super::work::apply_ticket_change;
use super::{Effect, Store, StoreError, outbox};
use crate::model::action::TicketChange;
use crate::model::budget::{Incident, ScopeKey};
use crate::model::event::DomainEventType;
use crate::model::id::{RunId, Uid, WakeId};
use crate::model::kind::ObjectRef;
use crate::model::wake::{Wake, WakeState};

impl Store {
    /// Draws a closed run's consequences: the next attempt's wake, the ticket's next status.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn settle_run(
        &self,
        run: RunId,
        retry: Option<Wake>,
        ticket: Option<TicketChange>,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("settled run", move |conn| {
                let row: Option<(bool, bool)> = conn
                    .prepare_cached(
                        "SELECT ended_at IS NOT NULL, is_settled FROM runs WHERE id = ?1",
                    )?
                    .query_row([Text(run)], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                match row {
                    None => return Ok(Effect::stale(format!("run {run} is not known"))),
                    Some((false, _)) => return Ok(Effect::stale(format!("run {run} is live"))),
                    Some((true, true)) => return Ok(Effect::Unchanged),
                    Some((true, false)) => {}
                }
                if let Some(change) = &ticket
                    && let Effect::Stale(why) = apply_ticket_change(conn, change, now)?
                {
                    return Ok(Effect::Stale(why));
                }
                if let Some(wake) = &retry {
                    insert_wake(conn, wake)?;
                }
                conn.prepare_cached("UPDATE runs SET is_settled = 1 WHERE id = ?1")?
                    .execute([Text(run)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records a crossing once per (scope, window, kind) and, if `pause`, pauses the scope.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_incident(
        &self,
        incident: Incident,
        pause: bool,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("incident", move |conn| {
                let is_new = insert_incident(conn, &incident, now)?;
                let is_paused = pause && insert_budget_pause(conn, &incident, now)?;
                if is_new {
                    let payload = json!({
                        "scope": incident.scope,
                        "object": scope_name(conn, &incident.scope)?,
                        "window": incident.window,
                        "kind": incident.kind,
                        "budget": incident.budget.to_string(),
                        "meter": incident.ceiling.meter(),
                        "spent": incident.spent.count(),
                        "ceiling": incident.ceiling.count(),
                        "isPaused": is_paused,
                    });
                    outbox::publish(
                        conn,
                        DomainEventType::BudgetThresholdCrossed,
                        incident.workspace,
                        &incident.scope.to_string(),
                        &payload,
                        now,
                    )?;
                }
                Ok(Effect::applied_if(is_new || is_paused))
            })
            .await
    }

    /// Lifts a budget pause.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn lift_budget_pause(
        &self,
        scope: ScopeKey,
        because: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("end of a budget pause", move |conn| {
                let removed = conn
                    .prepare_cached(
                        "DELETE FROM budget_pauses WHERE scope_kind = ?1 AND scope_uid = ?2",
                    )?
                    .execute(params![Text(scope.kind), scope_uid(&scope)])?;
                if removed == 0 {
                    return Ok(Effect::Unchanged);
                }
                outbox::publish(
                    conn,
                    DomainEventType::BudgetPauseLifted,
                    None,
                    &scope.to_string(),
                    &json!({
                        "scope": scope,
                        "object": scope_name(conn, &scope)?,
                        "because": because,
                    }),
                    now,
                )?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Drops a wake that waits.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn cancel_wake(
        &self,
        wake: WakeId,
        because: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("cancelled wake", move |conn| {
                let state: Option<WakeState> = conn
                    .prepare_cached("SELECT state FROM wakes WHERE id = ?1")?
                    .query_row([Text(wake)], |row| row.text("state"))
                    .optional()?;
                match state {
                    None => return Ok(Effect::stale(format!("wake {wake} is not known"))),
                    Some(WakeState::Cancelled) => return Ok(Effect::Unchanged),
                    Some(state @ (WakeState::Claimed | WakeState::Finished)) => {
                        return Ok(Effect::stale(format!("wake {wake} is {state}")));
                    }
                    Some(WakeState::Pending) => {}
                }
                conn.prepare_cached(
                    "UPDATE wakes SET state = ?2, ended_at = ?3, because = ?4 WHERE id = ?1",
                )?
                .execute(params![
                    Text(wake),
                    Text(WakeState::Cancelled),
                    At(now),
                    because
                ])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Makes an object whose finalizers are done a tombstone. Runs, messages and money of it stay.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn finish_deletion(
        &self,
        object: ObjectRef,
        uid: Uid,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("finished deletion", move |conn| {
                let row: Option<(ObjectRef, bool, bool)> = conn
                    .prepare_cached(
                        "SELECT reference, deletion_requested_at IS NOT NULL AS is_leaving,
                           deleted_at IS NOT NULL AS is_gone
                         FROM objects WHERE uid = ?1",
                    )?
                    .query_row([Text(uid)], |row| {
                        Ok((
                            row.reference("reference")?,
                            row.get("is_leaving")?,
                            row.get("is_gone")?,
                        ))
                    })
                    .optional()?;
                match row {
                    Some((_, _, true)) => return Ok(Effect::Unchanged),
                    Some((reference, true, false)) if reference == object => {}
                    Some((reference, _, false)) => {
                        return Ok(Effect::stale(format!("{reference} is not being removed")));
                    }
                    None => return Ok(Effect::stale(format!("{object} is not known"))),
                }
                if let Some(why) = finalizer(conn, uid)? {
                    return Ok(Effect::Stale(why));
                }
                bury(conn, uid, now)?;
                Ok(Effect::Applied)
            })
            .await
    }
}

/// Why nothing new may be done for the object: it is not known, or on its way out.
pub(super) fn leaving(conn: &Connection, uid: Uid) -> rusqlite::Result<Option<String>> {
    let row: Option<(String, bool)> = conn
        .prepare_cached(
            "SELECT reference, deletion_requested_at IS NOT NULL OR deleted_at IS NOT NULL
             FROM objects WHERE uid = ?1",
        )?
        .query_row([Text(uid)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match row {
        None => Some(format!("no object has uid {uid}")),
        Some((reference, true)) => Some(format!("{reference} is being removed")),
        Some((_, false)) => None,
    })
}

/// What still needs the object.
fn finalizer(conn: &Connection, uid: Uid) -> rusqlite::Result<Option<String>> {
    let checks = [
        (
            "a run of it is live",
            "SELECT 1 FROM runs WHERE status IN ('pending', 'running')
               AND (agent = ?1 OR space = ?1 OR ticket = ?1 OR workspace = ?1)",
        ),
        (
            "its worktrees are not reclaimed",
            "SELECT 1 FROM worktrees WHERE space = ?1 OR repo = ?1 OR workspace = ?1",
        ),
        (
            "its working root is not reclaimed",
            "SELECT 1 FROM roots WHERE space = ?1 OR workspace = ?1",
        ),
    ];
    for (why, sql) in checks {
        if conn.prepare_cached(sql)?.exists([Text(uid)])? {
            return Ok(Some(why.to_owned()));
        }
    }
    Ok(None)
}

fn bury(conn: &Connection, uid: Uid, now: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE objects SET deleted_at = ?2 WHERE uid = ?1")?
        .execute(params![Text(uid), At(now)])?;
    for sql in [
        "DELETE FROM conditions WHERE uid = ?1",
        "DELETE FROM budget_pauses WHERE scope_uid = ?1",
        "DELETE FROM schedules WHERE uid = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([Text(uid)])?;
    }
    conn.prepare_cached(
        "UPDATE overrides SET removed_at = ?2, removed_by = 'homeostat'
         WHERE target = ?1 AND removed_at IS NULL",
    )?
    .execute(params![Text(uid), At(now)])?;
    Ok(())
}

/// Whether the crossing is new.
fn insert_incident(
    conn: &Connection,
    incident: &Incident,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let is_known = exists(
        conn,
        "SELECT 1 FROM incidents
         WHERE scope_kind = ?1 AND scope_uid = ?2 AND window = ?3 AND kind = ?4",
        params![
            Text(incident.scope.kind),
            scope_uid(&incident.scope),
            incident.window,
            Text(incident.kind)
        ],
    )?;
    if is_known {
        return Ok(false);
    }
    conn.prepare_cached(
        "INSERT INTO incidents (scope_kind, scope_uid, window, kind, workspace, budget,
               meter, spent, ceiling, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        Text(incident.scope.kind),
        scope_uid(&incident.scope),
        incident.window,
        Text(incident.kind),
        incident.workspace.map(Text),
        Text(&incident.budget),
        Text(incident.ceiling.meter()),
        incident.spent.count(),
        incident.ceiling.count(),
        At(now)
    ])?;
    Ok(true)
}

/// The scope as people call it: the reference of its object, or `Fleet`.
fn scope_name(conn: &Connection, scope: &ScopeKey) -> rusqlite::Result<String> {
    let reference: Option<String> = conn
        .prepare_cached("SELECT reference FROM objects WHERE uid = ?1")?
        .query_row([scope_uid(scope)], |row| row.get("reference"))
        .optional()?;
    Ok(reference.unwrap_or_else(|| scope.kind.kind().to_string()))
}

/// Whether the scope was not paused yet.
fn insert_budget_pause(
    conn: &Connection,
    incident: &Incident,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let inserted = conn
        .prepare_cached(
            "INSERT INTO budget_pauses (scope_kind, scope_uid, window, meter, spent, ceiling, since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            Text(incident.scope.kind),
            scope_uid(&incident.scope),
            incident.window,
            Text(incident.ceiling.meter()),
            incident.spent.count(),
            incident.ceiling.count(),
            At(now)
        ])?;
    Ok(inserted == 1)
}
