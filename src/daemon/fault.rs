//! Dying on purpose, for tests: at the nth pass of a crash point, as SIGKILL would have it.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::model::crash::{self, CrashPoint};

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
