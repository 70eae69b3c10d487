//! What a model's provider asks for, on the row of the run that it asked.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::sql::{At, Columns, Text};
use super::{Effect, Store, StoreError};
use crate::model::backoff::RETRY_AFTER_MAX;
use crate::model::id::RunId;
use crate::model::observed::ProviderPause;
use crate::model::run::ProviderAsk;

impl Store {
    /// Records that the provider of a live run's model wants to be left alone. The latest word stands,
    /// from now on and not only when the run is over.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_provider(
        &self,
        run: RunId,
        until: Timestamp,
        status: u16,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("wish of a provider", move |conn| {
                let changed = conn
                    .prepare_cached(
                        "UPDATE runs SET provider_until = ?2, provider_status = ?3
                         WHERE id = ?1 AND ended_at IS NULL",
                    )?
                    .execute(params![Text(run), At(until), status])?;
                Ok(Effect::applied_if(changed == 1))
            })
            .await
    }
}

/// What the provider asked the run of the row for.
pub(super) fn ask(row: &Row<'_>) -> rusqlite::Result<Option<ProviderAsk>> {
    let until = row.at_opt("provider_until")?;
    let status: Option<u16> = row.get("provider_status")?;
    let is_shared = row.get("provider_is_shared")?;
    Ok(until.zip(status).map(|(until, status)| ProviderAsk {
        until,
        status,
        is_shared,
    }))
}

/// The pauses that hold at `now`, by the Adapter's name; the longest of each. What an earlier
/// generation of the Adapter was asked for holds nobody: it may have another key now.
pub(super) fn pauses(
    conn: &Connection,
    now: Timestamp,
) -> rusqlite::Result<BTreeMap<String, ProviderPause>> {
    let latest = now.saturating_add(RETRY_AFTER_MAX);
    conn.prepare_cached(
        "SELECT r.id, r.adapter, r.provider_until, r.provider_status
         FROM runs r JOIN objects o ON o.reference = 'Adapter/' || r.adapter
           AND o.deleted_at IS NULL AND o.generation = r.adapter_generation
         WHERE r.provider_until > ?1 AND r.provider_until <= ?2 AND r.provider_is_shared = 1
         ORDER BY r.provider_until",
    )?
    .query_map([At(now), At(latest.unwrap_or(Timestamp::MAX))], |row| {
        let pause = ProviderPause {
            until: row.at("provider_until")?,
            status: row.get("provider_status")?,
            run: row.text("id")?,
        };
        Ok((row.get("adapter")?, pause))
    })?
    .collect()
}
