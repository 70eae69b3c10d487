//! How values look in the database: text for ids, enums and times, JSON for what has structure.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::budget::{Amount, Meter, ScopeKey, Totals};
use crate::model::kind::{ObjectRef, Revision};
use crate::model::units::{Money, Tokens};

/// A value as the text that it displays and parses.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> ToSql for Text<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.to_string()))
    }
}

impl<T> FromSql for Text<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value
            .as_str()?
            .parse()
            .map(Self)
            .map_err(FromSqlError::other)
    }
}

/// A time: RFC 3339 in UTC with six fractional digits, so that text order is time order. Finer
/// digits are cut.
pub(super) struct At(pub(super) Timestamp);

impl ToSql for At {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(format!("{:.6}", self.0)))
    }
}

impl FromSql for At {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value
            .as_str()?
            .parse()
            .map(Self)
            .map_err(FromSqlError::other)
    }
}

/// A value as JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        serde_json::to_string(&self.0)
            .map(ToSqlOutput::from)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
    }
}

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?)
            .map(Self)
            .map_err(FromSqlError::other)
    }
}

/// A reference that the text form of [`ObjectRef`] does not spell.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a reference")]
struct BadReference(String);

/// An object reference, `Kind/name` or `Kind/workspace/name`.
struct Reference(ObjectRef);

impl FromSql for Reference {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        parse_reference(text)
            .map(Self)
            .ok_or_else(|| FromSqlError::other(BadReference(text.to_owned())))
    }
}

/// The reference that `text` spells.
pub(super) fn parse_reference(text: &str) -> Option<ObjectRef> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, workspace, name) = match parts.as_slice() {
        [kind, name] => (kind, None, name),
        [kind, workspace, name] => (kind, Some(workspace), name),
        _ => return None,
    };
    Some(ObjectRef {
        kind: kind.parse().ok()?,
        workspace: match workspace {
            Some(workspace) => Some(workspace.parse().ok()?),
            None => None,
        },
        name: name.parse().ok()?,
    })
}

/// Whether `sql` finds a row. An insert that would only conflict is asked about first: SQLite
/// counts the sequence on for it all the same, and writing nothing is to change nothing.
pub(super) fn exists(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<bool> {
    conn.prepare_cached(sql)?.exists(params)
}

/// A count that the database keeps signed. SQLite has no larger integer.
pub(super) fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What a scope's uid column holds: empty for the fleet, so that a key can contain it.
pub(super) fn scope_uid(scope: &ScopeKey) -> String {
    scope.uid.map(|uid| uid.to_string()).unwrap_or_default()
}

/// Typed access to a row's columns by name.
pub(super) trait Columns {
    /// A value that is kept as text.
    fn text<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> rusqlite::Result<T>;
    /// The same, or NULL.
    fn text_opt<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> rusqlite::Result<Option<T>>;
    /// A time.
    fn at(&self, column: &str) -> rusqlite::Result<Timestamp>;
    /// A time, or NULL.
    fn at_opt(&self, column: &str) -> rusqlite::Result<Option<Timestamp>>;
    /// A value that is kept as JSON.
    fn json<T: DeserializeOwned>(&self, column: &str) -> rusqlite::Result<T>;
    /// The same, or NULL.
    fn json_opt<T: DeserializeOwned>(&self, column: &str) -> rusqlite::Result<Option<T>>;
    /// An object reference.
    fn reference(&self, column: &str) -> rusqlite::Result<ObjectRef>;
    /// A revision.
    fn revision(&self, column: &str) -> rusqlite::Result<Revision>;
    /// A number that is never negative.
    fn count(&self, column: &str) -> rusqlite::Result<u64>;
    /// The same, of the size of a counter.
    fn count32(&self, column: &str) -> rusqlite::Result<u32>;
    /// Micro-dollars.
    fn money(&self, column: &str) -> rusqlite::Result<Money>;
    /// Micro-dollars and tokens, in a column each.
    fn totals(&self, money: &str, tokens: &str) -> rusqlite::Result<Totals>;
    /// What a ceiling is counted in, by the column `meter`.
    fn amount(&self, column: &str) -> rusqlite::Result<Amount>;
    /// A budget scope, in `scope_kind` and `scope_uid`.
    fn scope(&self) -> rusqlite::Result<ScopeKey>;
}

impl Columns for Row<'_> {
    fn text<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> rusqlite::Result<T> {
        self.get::<_, Text<T>>(column).map(|it| it.0)
    }

    fn text_opt<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        column: &str,
    ) -> rusqlite::Result<Option<T>> {
        self.get::<_, Option<Text<T>>>(column)
            .map(|it| it.map(|it| it.0))
    }

    fn at(&self, column: &str) -> rusqlite::Result<Timestamp> {
        self.get::<_, At>(column).map(|it| it.0)
    }

    fn at_opt(&self, column: &str) -> rusqlite::Result<Option<Timestamp>> {
        self.get::<_, Option<At>>(column)
            .map(|it| it.map(|it| it.0))
    }

    fn json<T: DeserializeOwned>(&self, column: &str) -> rusqlite::Result<T> {
        self.get::<_, Json<T>>(column).map(|it| it.0)
    }

    fn json_opt<T: DeserializeOwned>(&self, column: &str) -> rusqlite::Result<Option<T>> {
        self.get::<_, Option<Json<T>>>(column)
            .map(|it| it.map(|it| it.0))
    }

    fn reference(&self, column: &str) -> rusqlite::Result<ObjectRef> {
        self.get::<_, Reference>(column).map(|it| it.0)
    }

    fn revision(&self, column: &str) -> rusqlite::Result<Revision> {
        self.get::<_, String>(column).map(Revision::new)
    }

    fn count(&self, column: &str) -> rusqlite::Result<u64> {
        self.get::<_, i64>(column)
            .map(|it| u64::try_from(it).unwrap_or(0))
    }

    fn count32(&self, column: &str) -> rusqlite::Result<u32> {
        self.get(column)
    }

    fn money(&self, column: &str) -> rusqlite::Result<Money> {
        self.get(column).map(Money::from_micros)
    }

    fn totals(&self, money: &str, tokens: &str) -> rusqlite::Result<Totals> {
        Ok(Totals {
            money: self.money(money)?,
            tokens: self.get(tokens).map(Tokens::new)?,
        })
    }

    fn amount(&self, column: &str) -> rusqlite::Result<Amount> {
        let meter: Meter = self.text("meter")?;
        self.get(column).map(|count| meter.amount(count))
    }

    fn scope(&self) -> rusqlite::Result<ScopeKey> {
        let uid: String = self.get("scope_uid")?;
        Ok(ScopeKey {
            kind: self.text("scope_kind")?,
            uid: if uid.is_empty() {
                None
            } else {
                Some(self.text("scope_uid")?)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_as_it_is_written() {
        for text in ["Fleet/fleet", "Agent/acme/ada"] {
            assert_eq!(
                parse_reference(text).map(|it| it.to_string()),
                Some(text.to_owned())
            );
        }
        for wrong in ["", "Agent", "Pod/a", "Agent/acme/ada/x", "Agent//ada"] {
            assert_eq!(parse_reference(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_have_one_width_so_that_text_orders_them() {
        let text = |at: &str| {
            let at: Timestamp = at.parse().unwrap();
            format!("{at:.6}")
        };
        assert_eq!(text("2026-11-30T12:00:00Z"), "2026-11-30T12:00:00.000000Z");
        assert_eq!(
            text("2026-11-30T12:00:00.1234567+01:00"),
            "2026-11-30T11:00:00.123456Z"
        );
    }
}
