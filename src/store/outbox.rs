//! The outbox: events are written in the transaction that makes them true, and read by sequence.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde_json::Value;
use strum::{Display, EnumIter, EnumString};

use super::sql::{At, Columns, Json, Text};
use super::{Store, StoreError};
use crate::model::event::DomainEventType;
use crate::model::id::Uid;

/// One published event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxEvent {
    /// Rises with every event.
    pub seq: i64,
    /// What happened.
    pub r#type: DomainEventType,
    /// In which workspace.
    pub workspace: Option<Uid>,
    /// Id of what it happened to.
    pub subject: String,
    /// Particulars.
    pub payload: Value,
    /// When.
    pub at: Timestamp,
}

/// How one try to deliver an event went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The consumer has it.
    Delivered,
    /// It failed, for this reason.
    Failed(String),
}

/// The stored state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, EnumIter)]
#[strum(serialize_all = "camelCase")]
pub(super) enum DeliveryState {
    Delivered,
    Failed,
}

impl Store {
    /// Events after `seq`, in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn outbox_after(&self, seq: i64, limit: u32) -> Result<Vec<OutboxEvent>, StoreError> {
        self.connections
            .read("outbox", move |conn| {
                conn.prepare_cached("SELECT * FROM outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2")?
                    .query_map(params![seq, limit], event)?
                    .collect()
            })
            .await
    }

    /// Events that `consumer` has not got yet, in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn undelivered(
        &self,
        consumer: String,
        limit: u32,
    ) -> Result<Vec<OutboxEvent>, StoreError> {
        self.connections
            .read("undelivered events", move |conn| {
                conn.prepare_cached(
                    "SELECT * FROM outbox WHERE NOT EXISTS (
                       SELECT 1 FROM deliveries
                       WHERE event = outbox.seq AND consumer = ?1 AND state = 'delivered')
                     ORDER BY seq LIMIT ?2",
                )?
                .query_map(params![consumer, limit], event)?
                .collect()
            })
            .await
    }

    /// Records a try to deliver an event. A delivered event stays delivered.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn record_delivery(
        &self,
        event: i64,
        consumer: String,
        delivery: Delivery,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.connections
            .write("delivery", move |conn| {
                let (state, error) = match delivery {
                    Delivery::Delivered => (DeliveryState::Delivered, None),
                    Delivery::Failed(error) => (DeliveryState::Failed, Some(error)),
                };
                conn.prepare_cached(
                    "INSERT INTO deliveries (event, consumer, state, attempts, last_error, at)
                     VALUES (?1, ?2, ?3, 1, ?4, ?5)
                     ON CONFLICT (event, consumer) DO UPDATE SET
                       state = excluded.state, attempts = attempts + 1,
                       last_error = excluded.last_error, at = excluded.at
                     WHERE state <> 'delivered'",
                )?
                .execute(params![event, consumer, Text(state), error, At(now)])?;
                Ok(())
            })
            .await
    }
}

/// Writes an event.
pub(super) fn publish(
    conn: &Connection,
    r#type: DomainEventType,
    workspace: Option<Uid>,
    subject: &str,
    payload: &Value,
    at: Timestamp,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO outbox (type, workspace, subject, payload_json, at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        Text(r#type),
        workspace.map(Text),
        subject,
        Json(payload),
        At(at)
    ])?;
    Ok(())
}

fn event(row: &Row<'_>) -> rusqlite::Result<OutboxEvent> {
    Ok(OutboxEvent {
        seq: row.get("seq")?,
        r#type: row.text("type")?,
        workspace: row.text_opt("workspace")?,
        subject: row.get("subject")?,
        payload: row.json("payload_json")?,
        at: row.at("at")?,
    })
}
