//! What goes wrong with the database.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::model::id::Uid;
use crate::model::kind::ObjectRef;

/// Why a database could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file could not be made, or its mode not be set.
    #[error("create database {}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no database there.
    #[error("no database at {}; start the daemon once, or name its data directory", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// SQLite refused.
    #[error("open database {}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer homeostat wrote it.
    #[error(
        "database {} has schema {found}, this program knows up to {known}: use the newer program",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// It is not one of ours.
    #[error("{} is not a database of homeostat", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A thread could not be started.
    #[error("start a thread for database {}", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Why a read or a write has no result. Nothing of a failed write was stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// SQLite refused one write.
    #[error("store {operation}")]
    Write {
        /// The method.
        operation: &'static str,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The transaction that a write shared with others did not commit.
    #[error("commit {operation}")]
    Commit {
        /// The method.
        operation: &'static str,
        /// Why.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// A read failed, or found what is not legal.
    #[error("read {operation}")]
    Read {
        /// The method.
        operation: &'static str,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The store was opened for reading only.
    #[error("{operation} needs the daemon: the database is open for reading only")]
    ReadOnly {
        /// The method.
        operation: &'static str,
    },
    /// The store's threads are gone; only at the end of the process.
    #[error("{operation}: the store is closed")]
    Closed {
        /// The method.
        operation: &'static str,
    },
    /// A pinned uid belongs to something else, or the object already has another one.
    #[error("{reference} pins uid {pinned}, but {because}")]
    UidConflict {
        /// The document.
        reference: ObjectRef,
        /// What it pins.
        pinned: Uid,
        /// Who is in the way.
        because: String,
    },
    /// An abbreviation names more than one.
    #[error("{prefix:?} names more than one run: give more digits")]
    Ambiguous {
        /// What was asked for.
        prefix: String,
    },
    /// The backup's file could not be made, or is there already.
    #[error("create backup {}", path.display())]
    BackupFile {
        /// The copy.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The online backup failed.
    #[error("back up the database to {}", path.display())]
    Backup {
        /// The copy.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// Whether the same call may succeed later with nothing changed: the disk was full or failing,
    /// or the database was busy.
    pub fn is_transient(&self) -> bool {
        let transient = |error: &rusqlite::Error| {
            use rusqlite::ErrorCode as Code;
            matches!(
                error.sqlite_error_code(),
                Some(
                    Code::DatabaseBusy
                        | Code::DatabaseLocked
                        | Code::DiskFull
                        | Code::SystemIoFailure
                        | Code::OutOfMemory
                )
            )
        };
        match self {
            Self::Write { source, .. }
            | Self::Read { source, .. }
            | Self::Backup { source, .. } => transient(source),
            Self::Commit { source, .. } => transient(source),
            Self::BackupFile { .. }
            | Self::ReadOnly { .. }
            | Self::Closed { .. }
            | Self::UidConflict { .. }
            | Self::Ambiguous { .. } => false,
        }
    }
}
