//! The trigger queue: keyed, deduplicating, the earliest request wins, one in flight per key.
//!
//! It knows nothing of tasks or clocks: `now` is an argument, in time since any fixed instant.
//! Why a key was requested is for the log; nothing downstream sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Keys that are due, at most one entry each.
#[derive(Debug)]
pub(crate) struct TriggerQueue<K> {
    due: BTreeMap<K, Entry>,
    in_flight: BTreeSet<K>,
}

#[derive(Debug)]
struct Entry {
    /// When it runs.
    at: Duration,
    /// The latest that a debounce may move it to.
    at_most: Duration,
    reasons: BTreeSet<&'static str>,
}

/// How many times its own quiet period a debounced key may be held back.
const DEBOUNCE_STRETCH: u32 = 10;

impl<K: Ord + Clone> TriggerQueue<K> {
    pub(crate) const fn new() -> Self {
        Self {
            due: BTreeMap::new(),
            in_flight: BTreeSet::new(),
        }
    }

    /// Asks for `key` at `at`. An earlier request stands.
    pub(crate) fn request_at(&mut self, key: K, at: Duration, reason: &'static str) {
        let entry = self.due.entry(key).or_insert_with(|| Entry {
            at,
            at_most: at,
            reasons: BTreeSet::new(),
        });
        entry.at = entry.at.min(at);
        entry.at_most = entry.at_most.min(at);
        entry.reasons.insert(reason);
    }

    /// Asks for `key` once it has been quiet for `quiet`. Every further request moves it, up to a
    /// bound, and never past an earlier plain request.
    pub(crate) fn request_debounced(
        &mut self,
        key: K,
        now: Duration,
        quiet: Duration,
        reason: &'static str,
    ) {
        let at_most = now.saturating_add(quiet.saturating_mul(DEBOUNCE_STRETCH));
        let entry = self.due.entry(key).or_insert_with(|| Entry {
            at: at_most,
            at_most,
            reasons: BTreeSet::new(),
        });
        entry.at_most = entry.at_most.min(at_most);
        entry.at = now.saturating_add(quiet).min(entry.at_most);
        entry.reasons.insert(reason);
    }

    /// Takes the first key that is due and not in flight.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<(K, BTreeSet<&'static str>)> {
        let key = self
            .due
            .iter()
            .filter(|(key, entry)| entry.at <= now && !self.in_flight.contains(*key))
            .min_by_key(|(_, entry)| entry.at)
            .map(|(key, _)| key.clone())?;
        let entry = self.due.remove(&key)?;
        self.in_flight.insert(key.clone());
        Some((key, entry.reasons))
    }

    /// The key's work is done. Requests that came meanwhile stand.
    pub(crate) fn finish(&mut self, key: &K) {
        self.in_flight.remove(key);
    }

    /// When the next key that is not in flight falls due.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        let waiting = self
            .due
            .iter()
            .filter(|(key, _)| !self.in_flight.contains(*key));
        waiting.map(|(_, entry)| entry.at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::TriggerQueue;
    use std::time::Duration;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn requests_fold_and_the_earliest_wins() {
        let mut queue = TriggerQueue::new();
        queue.request_at('a', ms(50), "late");
        queue.request_at('a', ms(10), "early");
        queue.request_at('a', ms(90), "later");
        assert_eq!(queue.next_at(), Some(ms(10)));
        assert!(queue.take_due(ms(9)).is_none());
        let (key, reasons) = queue.take_due(ms(10)).unwrap();
        assert_eq!((key, reasons.len()), ('a', 3));
        assert!(queue.take_due(ms(1000)).is_none());
    }

    #[test]
    fn a_key_in_flight_waits_for_itself_only() {
        let mut queue = TriggerQueue::new();
        queue.request_at('a', ms(0), "x");
        queue.take_due(ms(0)).unwrap();
        queue.request_at('a', ms(0), "again");
        queue.request_at('b', ms(5), "other");
        assert_eq!(queue.next_at(), Some(ms(5)));
        assert_eq!(queue.take_due(ms(5)).unwrap().0, 'b');
        queue.finish(&'a');
        assert_eq!(queue.take_due(ms(5)).unwrap().0, 'a');
    }

    #[test]
    fn a_debounce_waits_for_quiet_but_not_for_ever() {
        let mut queue = TriggerQueue::new();
        for now in (0..100).step_by(2) {
            queue.request_debounced('a', ms(now), ms(5), "event");
        }
        // Ten quiet periods after the first event, however busy it stays.
        assert_eq!(queue.next_at(), Some(ms(50)));
    }

    #[test]
    fn a_debounce_comes_before_a_far_request_and_keeps_its_own_bound() {
        let mut queue = TriggerQueue::new();
        queue.request_at('a', ms(60_000), "resync");
        for now in (0..100).step_by(2) {
            queue.request_debounced('a', ms(now), ms(5), "event");
        }
        assert_eq!(queue.next_at(), Some(ms(50)));
    }

    #[test]
    fn a_plain_request_is_not_held_back_by_a_debounce() {
        let mut queue = TriggerQueue::new();
        queue.request_at('a', ms(1), "operator");
        queue.request_debounced('a', ms(0), ms(300), "event");
        assert_eq!(queue.next_at(), Some(ms(1)));
    }
}
