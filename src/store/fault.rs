//! Writes that fail on demand, so that tests can fail every one of a sequence in turn.

#[cfg(feature = "test-support")]
use std::sync::atomic::{AtomicU64, Ordering};

/// Which write fails. Compiled to nothing outside `test-support`.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Writes until the failure, itself included; 0: none fails.
    #[cfg(feature = "test-support")]
    remaining: AtomicU64,
}

impl Faults {
    /// Makes the `n`th write from now fail, once.
    #[cfg(feature = "test-support")]
    pub(super) fn fail_nth(&self, n: u64) {
        self.remaining.store(n, Ordering::SeqCst);
    }

    /// Writes until the failure that is still to come; 0: none is.
    #[cfg(feature = "test-support")]
    pub(super) fn remaining(&self) -> u64 {
        self.remaining.load(Ordering::SeqCst)
    }

    /// Fails if this write is the one.
    #[cfg(feature = "test-support")]
    pub(super) fn strike(&self) -> rusqlite::Result<()> {
        let count_down = |left: u64| left.checked_sub(1);
        match self
            .remaining
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down)
        {
            Ok(1) => Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC),
                Some("disk I/O error (injected)".to_owned()),
            )),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Never fails.
    #[cfg(not(feature = "test-support"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "the same shape as with test-support"
    )]
    pub(super) const fn strike(&self) -> rusqlite::Result<()> {
        Ok(())
    }
}
