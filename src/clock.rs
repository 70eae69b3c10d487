//! Time and fresh ids, as arguments: the two things that would make the program's logic
//! unrepeatable. System ones for the daemon, manual and seeded ones for tests and simulation.
//!
//! Wall time is for records only. What waits or measures takes [`Clock::monotonic`], and what
//! orders takes a sequence number.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

/// What time it is.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall time, for records. It may jump, also backwards.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary fixed point. It never goes back, and it goes on while the machine
    /// sleeps.
    fn monotonic(&self) -> Duration;
}

/// The kernel's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads wall time"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        // The kernel counts up from zero, with nanoseconds below a second.
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug)]
pub struct ManualClock(Mutex<Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    wall: Timestamp,
    monotonic: Duration,
}

impl ManualClock {
    /// A clock that shows `wall`, its monotonic time at zero.
    pub const fn starting_at(wall: Timestamp) -> Self {
        Self(Mutex::new(Reading {
            wall,
            monotonic: Duration::ZERO,
        }))
    }

    /// Moves both times on, the wall time at most to the end of its range.
    pub fn advance(&self, by: Duration) {
        self.change(|reading| {
            reading.monotonic += by;
            reading.wall = reading.wall.saturating_add(by).unwrap_or(Timestamp::MAX);
        });
    }

    /// Sets the wall time, as an administrator or NTP would; the monotonic time is not touched.
    pub fn set_wall(&self, wall: Timestamp) {
        self.change(|reading| reading.wall = wall);
    }

    fn change(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn read(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.read().wall
    }

    fn monotonic(&self) -> Duration {
        self.read().monotonic
    }
}

/// Where ids come from that are not derived from their cause.
pub trait IdSource: Send + Sync + fmt::Debug {
    /// An id that this source has not given before.
    fn mint(&self) -> Uuid;
}

/// Random ids (version 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that mints at random"
    )]
    fn mint(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// The same ids for the same seed, in the order of asking.
#[derive(Debug)]
pub struct SeededIds {
    seed: u64,
    minted: AtomicU64,
}

impl SeededIds {
    /// A source whose ids depend on `seed` alone.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            minted: AtomicU64::new(0),
        }
    }
}

impl IdSource for SeededIds {
    fn mint(&self) -> Uuid {
        let serial = self.minted.fetch_add(1, Ordering::Relaxed);
        let name = [self.seed.to_be_bytes(), serial.to_be_bytes()].concat();
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        assert_eq!(clock.monotonic(), Duration::ZERO);

        clock.advance(Duration::from_millis(1_500));
        assert_eq!(clock.now().as_millisecond(), 1_500);
        assert_eq!(clock.monotonic(), Duration::from_millis(1_500));

        clock.set_wall(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        assert_eq!(clock.monotonic(), Duration::from_millis(1_500));

        clock.advance(Duration::MAX - Duration::from_secs(2));
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[test]
    fn system_time_passes() {
        let before = SystemClock.monotonic();
        assert!(before > Duration::ZERO);
        assert!(SystemClock.monotonic() >= before);
        assert!(SystemClock.now() > Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn seeded_ids_repeat_and_never_collide() {
        let mint = |seed, n| {
            let ids = SeededIds::new(seed);
            (0..n).map(|_| ids.mint()).collect::<Vec<_>>()
        };
        assert_eq!(mint(7, 100), mint(7, 100));
        let both: std::collections::BTreeSet<_> =
            mint(7, 100).into_iter().chain(mint(8, 100)).collect();
        assert_eq!(both.len(), 200);
        assert_ne!(RandomIds.mint(), RandomIds.mint());
    }
}
