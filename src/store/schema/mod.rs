//! The file, its mode and its schema.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rusqlite::Connection;

use super::error::OpenError;

/// The newest schema that this program knows.
const VERSION: i64 = 1;
/// `PRAGMA application_id`: "HmSt", so that `file` and we can tell our databases.
const APPLICATION: i64 = 0x486d_5374;
const INIT: &str = include_str!("../migrations/0001_init.sql");

/// Makes a file that did not exist, with mode 0600.
pub(super) fn create_new_file(path: &Path) -> std::io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map(drop)
}

/// Makes the file if it is absent. Only its owner may read it; the files that SQLite puts beside
/// it take over its mode.
pub(super) fn create_file(path: &Path) -> Result<(), OpenError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .and_then(|file| file.set_permissions(Permissions::from_mode(0o600)))
        .map_err(|source| OpenError::Create {
            path: path.to_owned(),
            source,
        })
}

/// Sets the writer's connection up and brings the schema to [`VERSION`].
pub(super) fn prepare(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let version = check(conn, path)?;
    let sqlite = |source| OpenError::Sqlite {
        path: path.to_owned(),
        source,
    };
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF; PRAGMA journal_size_limit = 67108864;",
    )
    .map_err(sqlite)?;
    if version.is_none() {
        // In one transaction, its version included: a crash leaves an empty file or a whole schema.
        let script =
            format!("BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION}; {INIT} COMMIT;");
        conn.execute_batch(&script).map_err(sqlite)?;
    }
    Ok(())
}

/// Refuses a database that is not ours, or newer than this program. The version of its schema;
/// none when it is empty.
pub(super) fn check(conn: &Connection, path: &Path) -> Result<Option<i64>, OpenError> {
    let sqlite = |source| OpenError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let number = |sql: &str| -> Result<i64, OpenError> {
        conn.query_row(sql, [], |row| row.get(0)).map_err(sqlite)
    };
    let application = number("PRAGMA application_id")?;
    let found = number("PRAGMA user_version")?;
    let is_empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
    if is_empty && found == 0 {
        return Ok(None);
    }
    if application != APPLICATION {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
        });
    }
    if found > VERSION {
        return Err(OpenError::NewerSchema {
            path: path.to_owned(),
            found,
            known: VERSION,
        });
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests;
