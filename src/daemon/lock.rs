//! One daemon per data directory: the kernel's lock, which dies with its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The lock, held while this lives.
#[derive(Debug)]
pub(super) struct DataDirLock(#[expect(dead_code, reason = "held, not read")] File);

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon holds it.
    #[error("use {}: another daemon (pid {holder}) serves it", path.display())]
    Held {
        /// The data directory.
        path: PathBuf,
        /// What the holder wrote.
        holder: String,
    },
    /// The lock's file could not be used.
    #[error("lock {}", path.display())]
    File {
        /// The lock's file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl DataDirLock {
    /// Takes the lock of `data_dir`, and writes who holds it.
    pub(super) fn take(data_dir: &Path) -> Result<Self, LockError> {
        let path = data_dir.join("daemon.lock");
        let file_error = |source| LockError::File {
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(&path).map_err(file_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                (&file)
                    .take(32)
                    .read_to_string(&mut holder)
                    .map_err(file_error)?;
                let holder = holder.trim().to_owned();
                return Err(LockError::Held {
                    path: data_dir.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(file_error(source)),
        }
        file.set_len(0).map_err(file_error)?;
        file.rewind().map_err(file_error)?;
        writeln!(file, "{}", std::process::id()).map_err(file_error)?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::{DataDirLock, LockError};

    #[test]
    fn a_second_holder_is_refused_and_told_who_holds_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let first = DataDirLock::take(dir.path()).unwrap();
        let second = DataDirLock::take(dir.path()).unwrap_err();
        assert!(
            matches!(&second, LockError::Held { holder, .. } if *holder == std::process::id().to_string()),
            "{second}"
        );
        drop(first);
        DataDirLock::take(dir.path()).unwrap();
    }
}
