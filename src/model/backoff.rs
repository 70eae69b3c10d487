//! How long to wait before something is tried again.

use std::time::Duration;

use jiff::Timestamp;

/// The longest that a failed action, or a run that its provider failed, waits for its next try
/// (design §4).
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// The longest time to be left alone that a provider is believed to ask for. A day covers a daily
/// quota; a longer word is taken for a mistake, and cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Half to all of an exponential wait, by a hash of what waits: it grows with the failures and varies
/// with the key, so that what failed together does not come back together.
pub fn backoff(first: Duration, failures: u32, key: &str) -> Duration {
    let full = first.saturating_mul(1 << failures.min(9)).min(BACKOFF_MAX);
    let hash = key.bytes().fold(failures, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    full / 2 + full / 2 * (hash % 1024) / 1024
}

/// `until`, if that is to come. What lies further away than anything waits was set by a clock that was
/// put back since, and is over.
pub fn to_come(until: Timestamp, longest: Duration, now: Timestamp) -> Option<Timestamp> {
    let latest = now.saturating_add(longest).unwrap_or(Timestamp::MAX);
    (until > now && until <= latest).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::{BACKOFF_MAX, backoff};
    use std::time::Duration;

    #[test]
    fn waits_double_up_to_five_minutes_and_differ_by_key() {
        let first = Duration::from_secs(1);
        for failures in 0..40 {
            let wait = backoff(first, failures, "provisionWorktree/a");
            let full = Duration::from_secs(1 << failures.min(9)).min(BACKOFF_MAX);
            assert!(full / 2 <= wait && wait <= full, "{failures}: {wait:?}");
        }
        assert_ne!(backoff(first, 5, "a"), backoff(first, 5, "b"));
    }
}
