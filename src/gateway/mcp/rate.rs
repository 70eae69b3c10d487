//! How often a run may ask.

use std::time::Duration;

/// Requests of any kind that a run may make in a minute.
const REQUESTS_MAX: u32 = 600;
/// Calls of tools among them.
const CALLS_MAX: u32 = 120;
/// Calls among those that leave something behind.
const MUTATIONS_MAX: u32 = 30;
/// A minute.
const WINDOW: Duration = Duration::from_secs(60);

/// Whether something is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Allowance {
    /// It is, and counts.
    Granted,
    /// Not before so much time has passed. It does not count.
    Later(Duration),
}

impl Allowance {
    pub(super) const fn is_granted(self) -> bool {
        matches!(self, Self::Granted)
    }
}

/// What a run did in the minute that began at `since`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    since: Duration,
    requests: u32,
    calls: u32,
    mutations: u32,
}

impl Rates {
    /// Counts a request.
    pub(super) fn request(&mut self, now: Duration) -> Allowance {
        let left = self.turn(now);
        if self.requests >= REQUESTS_MAX {
            return Allowance::Later(left);
        }
        self.requests += 1;
        Allowance::Granted
    }

    /// Counts the call of a tool.
    pub(super) fn call(&mut self, mutates: bool, now: Duration) -> Allowance {
        let left = self.turn(now);
        if self.calls >= CALLS_MAX || (mutates && self.mutations >= MUTATIONS_MAX) {
            return Allowance::Later(left);
        }
        self.calls += 1;
        self.mutations += u32::from(mutates);
        Allowance::Granted
    }

    /// Begins a new minute if the old one is over; how much is left of it.
    fn turn(&mut self, now: Duration) -> Duration {
        let end = self.since.saturating_add(WINDOW);
        if now < end {
            return end - now;
        }
        *self = Self {
            since: now,
            ..Self::default()
        };
        WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(1_000);

    #[test]
    fn each_kind_has_its_own_limit() {
        let mut rates = Rates::default();
        for _ in 0..MUTATIONS_MAX {
            assert!(rates.call(true, LATER).is_granted());
        }
        let half = LATER + Duration::from_secs(15);
        let left = Allowance::Later(Duration::from_secs(45));
        assert_eq!(rates.call(true, half), left);
        for _ in MUTATIONS_MAX..CALLS_MAX {
            assert!(rates.call(false, half).is_granted());
        }
        assert_eq!(rates.call(false, half), left);
        for _ in 0..REQUESTS_MAX {
            assert!(rates.request(half).is_granted());
        }
        assert_eq!(rates.request(half), left);
        let next = LATER + WINDOW;
        assert!(rates.call(true, next).is_granted());
        assert!(rates.request(next).is_granted());
    }
}
