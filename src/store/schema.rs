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
const INIT: &str = include_str!("migrations/0001_init.sql");

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
    check(conn, path)?;
    let sqlite = |source| OpenError::Sqlite {
        path: path.to_owned(),
        source,
    };
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF; PRAGMA journal_size_limit = 67108864;",
    )
    .map_err(sqlite)?;
    if version(conn).map_err(sqlite)? == 0 {
        // In one transaction, its version included: a crash leaves an empty file or a whole schema.
        let script =
            format!("BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION}; {INIT} COMMIT;");
        conn.execute_batch(&script).map_err(sqlite)?;
    }
    Ok(())
}

/// Refuses a database that is not ours, or newer than this program.
pub(super) fn check(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |source| OpenError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let found = version(conn).map_err(sqlite)?;
    let application: i64 = conn
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(sqlite)?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sqlite)?;
    if tables > 0 && application != APPLICATION {
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
    Ok(())
}

fn version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

#[cfg(test)]
mod tests;
