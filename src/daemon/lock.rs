//! One daemon per data directory: the kernel's lock, which dies with its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::deadline::{Deadline, poll_until};
use crate::process::{Presence, identify, is_alive};

/// How long the lock of a dead holder is waited for.
const INHERITED: Duration = Duration::from_secs(5);
/// Pause between two tries.
const TRY_EVERY: Duration = Duration::from_millis(10);

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
    /// Takes the lock of `data_dir`, and writes who holds it. Blocking: a daemon that was killed just
    /// when it started a program leaves the lock, for a moment, to the child that has not yet become
    /// that program.
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
        let deadline = Deadline::after(INHERITED);
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(file_error(source)),
            }
            let holder = holder_in(&mut file).map_err(file_error)?;
            if deadline.passed() || !is_dead(&holder) {
                return Err(LockError::Held {
                    path: data_dir.to_owned(),
                    holder,
                });
            }
            poll_until(&mut [], Some(Deadline::after(TRY_EVERY))).map_err(file_error)?;
        }
        file.set_len(0).map_err(file_error)?;
        file.rewind().map_err(file_error)?;
        writeln!(file, "{}", std::process::id()).map_err(file_error)?;
        Ok(Self(file))
    }
}

/// What the holder wrote.
fn holder_in(file: &mut File) -> io::Result<String> {
    let mut holder = String::new();
    file.rewind()?;
    file.take(32).read_to_string(&mut holder)?;
    Ok(holder.trim().to_owned())
}

/// Whether the holder is known not to live.
fn is_dead(holder: &str) -> bool {
    let Ok(pid) = holder.parse() else {
        return false;
    };
    match identify(pid) {
        Ok(Some(identity)) => is_alive(&identity) == Presence::Gone,
        Ok(None) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{DataDirLock, LockError, is_dead};

    #[test]
    fn a_lock_that_a_dead_holder_left_to_a_child_is_waited_for() {
        let dir = tempfile::TempDir::new().unwrap();
        let inherited = DataDirLock::take(dir.path()).unwrap();
        let nobody = "4194305"; // No pid is as high.
        std::fs::write(dir.path().join("daemon.lock"), nobody).unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| DataDirLock::take(dir.path()));
            drop(inherited);
            next.join().unwrap().unwrap();
        });
        let us = std::process::id().to_string();
        assert!(is_dead(nobody) && !is_dead(&us) && !is_dead(""));
    }

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
