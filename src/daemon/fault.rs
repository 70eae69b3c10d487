//! Dying and failing on purpose, for tests: at the nth pass of a crash point, as SIGKILL would have
//! it, or at the nth write to the database.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::process::Signal;

use crate::model::crash::{self, CrashPoint};
use crate::store::Store;

/// Which write is to fail; 0: none.
static FAILING_WRITE: AtomicU64 = AtomicU64::new(0);

/// From now on the process kills itself when it passes `point` for the `nth` time, from 1.
pub fn die_at(point: CrashPoint, nth: u32) {
    let passes = AtomicU32::new(0);
    crash::install(move |passed| {
        if passed == point && passes.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            let ourselves = rustix::process::getpid();
            // Were it refused, the daemon would live on, and the test would say so.
            let _refused = rustix::process::kill_process(ourselves, Signal::KILL).is_err();
        }
    });
}

/// From now on the task panics that passes `point` for the `nth` time, from 1.
pub fn panic_at(point: CrashPoint, nth: u32) {
    let passes = AtomicU32::new(0);
    crash::install(move |passed| {
        let is_due = passed == point && passes.fetch_add(1, Ordering::Relaxed) + 1 == nth;
        assert!(!is_due, "told to panic at {point}");
    });
}

/// A daemon that is started after this has its `nth` write, from 1, fail once.
pub fn fail_write(nth: u64) {
    FAILING_WRITE.store(nth, Ordering::Relaxed);
}

/// Says how far away a failure is that never came, so that a test knows how many writes there were.
pub(super) fn report(store: &Store) {
    let left = store.writes_until_failure();
    if left > 0 {
        tracing::info!(left, "the write that was to fail was not reached");
    }
}

/// Passes on to the store, before anything is written, what it is to do.
pub(super) fn arm(store: &Store) {
    let nth = FAILING_WRITE.load(Ordering::Relaxed);
    if nth > 0 {
        store.fail_nth_write(nth);
    }
}
