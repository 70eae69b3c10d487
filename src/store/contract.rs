//! What runs owe, and what they handed in.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::sql::{Columns, Json, Text};
use super::{Effect, Store, StoreError};
use crate::model::id::RunId;
use crate::model::run::RunStatus;
use crate::model::tool::{Contract, Verb};

impl Store {
    /// What a run owes, and whether it was handed in; none when it owes nothing in particular, or
    /// is not known.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn contract_of(&self, run: RunId) -> Result<Option<Contract>, StoreError> {
        self.connections
            .read("contract of a run", move |conn| {
                conn.prepare_cached(
                    "SELECT contract, output_json IS NOT NULL AS is_met FROM runs
                     WHERE id = ?1 AND contract IS NOT NULL",
                )?
                .query_row([Text(run)], |row| {
                    Ok(Contract {
                        verb: row.text("contract")?,
                        is_met: row.get("is_met")?,
                    })
                })
                .optional()
            })
            .await
    }

    /// What a run handed in, if it did.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn output_of(&self, run: RunId) -> Result<Option<Value>, StoreError> {
        self.connections
            .read("output of a run", move |conn| {
                let output = conn
                    .prepare_cached("SELECT output_json FROM runs WHERE id = ?1")?
                    .query_row([Text(run)], |row| row.json_opt("output_json"))
                    .optional()?;
                Ok(output.flatten())
            })
            .await
    }

    /// Keeps what a live run hands in by `verb`; the latest stands. Stale when the run is closed,
    /// or does not owe this.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn hand_in(
        &self,
        run: RunId,
        verb: Verb,
        output: Value,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("output of a run", move |conn| {
                let row: Option<(RunStatus, Option<Verb>, Option<Value>)> = conn
                    .prepare_cached("SELECT status, contract, output_json FROM runs WHERE id = ?1")?
                    .query_row([Text(run)], |row| {
                        Ok((
                            row.text("status")?,
                            row.text_opt("contract")?,
                            row.json_opt("output_json")?,
                        ))
                    })
                    .optional()?;
                let stored = match row {
                    None => return Ok(Effect::stale(format!("run {run} is not known"))),
                    Some((status, ..)) if !status.is_live() => {
                        return Ok(Effect::stale(format!("run {run} is closed")));
                    }
                    Some((_, contract, _)) if contract != Some(verb) => {
                        return Ok(Effect::stale(format!("run {run} owes no {verb}")));
                    }
                    Some((_, _, stored)) => stored,
                };
                if stored.as_ref() == Some(&output) {
                    return Ok(Effect::Unchanged);
                }
                conn.prepare_cached("UPDATE runs SET output_json = ?2 WHERE id = ?1")?
                    .execute(params![Text(run), Json(output)])?;
                Ok(Effect::Applied)
            })
            .await
    }
}
