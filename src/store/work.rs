//! What makes agents work: tickets that are assigned and move, Dispatches that run once, slots of
//! schedules.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::effect::leaving;
use super::sql::{At, Columns, Text};
use super::wake::insert_wake;
use super::{Effect, Store, StoreError, outbox};
use crate::model::action::TicketChange;
use crate::model::event::DomainEventType;
use crate::model::id::Uid;
use crate::model::ticket::TicketStatus;
use crate::model::wake::Wake;

impl Store {
    /// Records a ticket's assignment, with the wake that it causes. `assignments` counts this one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn assign_ticket(
        &self,
        ticket: Uid,
        assignee: Option<Uid>,
        assignments: u32,
        wake: Option<Wake>,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("assignment", move |conn| {
                let row: Option<(u32, Option<Uid>)> = conn
                    .prepare_cached("SELECT assignments, assignee FROM tickets WHERE uid = ?1")?
                    .query_row([Text(ticket)], |row| {
                        Ok((row.count32("assignments")?, row.text_opt("assignee")?))
                    })
                    .optional()?;
                let Some((made, current)) = row else {
                    return Ok(Effect::stale(format!("ticket {ticket} is not known")));
                };
                if made == assignments && current == assignee {
                    return Ok(Effect::Unchanged);
                }
                // Taking a ticket from its agent may keep the count: it is no assignment.
                let is_next = assignments == made.saturating_add(1)
                    || (assignments == made && assignee.is_none());
                if !is_next {
                    return Ok(Effect::stale(format!(
                        "ticket {ticket} was assigned {made} times"
                    )));
                }
                if let Some(why) = leaving(conn, ticket)? {
                    return Ok(Effect::Stale(why));
                }
                conn.prepare_cached(
                    "UPDATE tickets SET assignee = ?2, assignments = ?3, changed_at = ?4
                     WHERE uid = ?1",
                )?
                .execute(params![
                    Text(ticket),
                    assignee.map(Text),
                    assignments,
                    At(now)
                ])?;
                if let Some(wake) = &wake {
                    insert_wake(conn, wake)?;
                }
                let payload = json!({
                    "ticket": ticket, "assignee": assignee, "from": current,
                    "wake": wake.as_ref().map(|wake| wake.id),
                });
                outbox::publish(
                    conn,
                    DomainEventType::TicketAssigned,
                    wake.map(|wake| wake.workspace),
                    &ticket.to_string(),
                    &payload,
                    now,
                )?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Changes a ticket's status, if it still is `change.from`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn change_ticket(
        &self,
        change: TicketChange,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("ticket status", move |conn| {
                apply_ticket_change(conn, &change, now)
            })
            .await
    }

    /// Records a Dispatch's one wake for its generation.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn dispatch_once(
        &self,
        dispatch: Uid,
        generation: i64,
        wake: Wake,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("dispatch", move |conn| {
                let row: Option<(i64, Option<i64>)> = conn
                    .prepare_cached(
                        "SELECT generation, dispatched_generation FROM objects WHERE uid = ?1",
                    )?
                    .query_row([Text(dispatch)], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                let Some((current, dispatched)) = row else {
                    return Ok(Effect::stale(format!("dispatch {dispatch} is not known")));
                };
                if dispatched.is_some_and(|done| done >= generation) {
                    return Ok(Effect::Unchanged);
                }
                if current != generation {
                    return Ok(Effect::stale(format!(
                        "dispatch {dispatch} is at generation {current}, not {generation}"
                    )));
                }
                if let Some(why) = leaving(conn, dispatch)? {
                    return Ok(Effect::Stale(why));
                }
                insert_wake(conn, &wake)?;
                conn.prepare_cached(
                    "UPDATE objects SET dispatched_generation = ?2 WHERE uid = ?1",
                )?
                .execute(params![Text(dispatch), generation])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Records that a schedule's slot came, with its wake unless it is skipped.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn fire_schedule(
        &self,
        schedule: Uid,
        slot: Timestamp,
        wake: Option<Wake>,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("schedule slot", move |conn| {
                let last: Option<Timestamp> = conn
                    .prepare_cached("SELECT last_slot FROM schedules WHERE uid = ?1")?
                    .query_row([Text(schedule)], |row| row.at("last_slot"))
                    .optional()?;
                if last.is_some_and(|last| last >= slot) {
                    return Ok(Effect::Unchanged);
                }
                if let Some(why) = leaving(conn, schedule)? {
                    return Ok(Effect::Stale(why));
                }
                conn.prepare_cached(
                    "INSERT INTO schedules (uid, last_slot) VALUES (?1, ?2)
                     ON CONFLICT (uid) DO UPDATE SET last_slot = excluded.last_slot",
                )?
                .execute(params![Text(schedule), At(slot)])?;
                if let Some(wake) = &wake {
                    insert_wake(conn, wake)?;
                }
                Ok(Effect::Applied)
            })
            .await
    }
}

/// Moves a ticket that is still where the change was planned from.
pub(super) fn apply_ticket_change(
    conn: &Connection,
    change: &TicketChange,
    now: Timestamp,
) -> rusqlite::Result<Effect> {
    let TicketChange { ticket, from, to } = change;
    let status: Option<TicketStatus> = conn
        .prepare_cached("SELECT status FROM tickets WHERE uid = ?1")?
        .query_row([Text(ticket)], |row| row.text("status"))
        .optional()?;
    match status {
        None => return Ok(Effect::stale(format!("ticket {ticket} is not known"))),
        Some(status) if status == *to => return Ok(Effect::Unchanged),
        Some(status) if status != *from => {
            return Ok(Effect::stale(format!(
                "ticket {ticket} is {status}, not {from}"
            )));
        }
        Some(_) => {}
    }
    if !from.may_become(*to) {
        return Ok(Effect::stale(format!("a ticket cannot go {from} → {to}")));
    }
    conn.prepare_cached("UPDATE tickets SET status = ?2, changed_at = ?3 WHERE uid = ?1")?
        .execute(params![Text(ticket), Text(to), At(now)])?;
    outbox::publish(
        conn,
        DomainEventType::TicketStatusChanged,
        None,
        &ticket.to_string(),
        &json!({ "ticket": ticket, "from": from, "to": to }),
        now,
    )?;
    Ok(Effect::Applied)
}
