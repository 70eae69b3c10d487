//! What wakes the loop, and what the loop says of itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::queue::TriggerQueue;
use crate::clock::Clock;

/// The two things that the loop does, each under its own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Look at the source for a new revision.
    Source,
    /// Observe, plan, execute.
    Pass,
}

/// Quiet period that folds the hints of many ending actions into one pass.
const PASS_QUIET: Duration = Duration::from_millis(5);

/// Wakes the loop. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<TriggerQueue<Key>>,
    changed: Notify,
    clock: Arc<dyn Clock>,
    debounce: Duration,
    is_draining: AtomicBool,
    /// By the monotonic clock.
    last_pass: Mutex<Duration>,
}

impl Handle {
    /// A queue with nothing in it. `debounce` is the source's quiet period.
    pub fn new(clock: Arc<dyn Clock>, debounce: Duration) -> Self {
        let queue = Mutex::new(TriggerQueue::new());
        let is_draining = AtomicBool::new(false);
        let last_pass = Mutex::new(clock.monotonic());
        Self {
            shared: Arc::new(Shared {
                queue,
                changed: Notify::new(),
                clock,
                debounce,
                is_draining,
                last_pass,
            }),
        }
    }

    /// Something that rows tell has changed. `reason` is for the log only.
    pub fn trigger(&self, reason: &'static str) {
        let now = self.shared.clock.monotonic();
        self.queue()
            .request_debounced(Key::Pass, now, PASS_QUIET, reason);
        self.shared.changed.notify_one();
    }

    /// The source may have changed: a hint, debounced.
    pub fn source_hint(&self) {
        let now = self.shared.clock.monotonic();
        self.queue()
            .request_debounced(Key::Source, now, self.shared.debounce, "source hint");
        self.shared.changed.notify_one();
    }

    /// An operator asks to look at the source and at everything else, now.
    pub fn reconcile_now(&self) {
        let now = self.shared.clock.monotonic();
        let mut queue = self.queue();
        queue.request_at(Key::Source, now, "asked");
        queue.request_at(Key::Pass, now, "asked");
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Closes admission: from the next pass on nothing new starts.
    pub fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Release);
        self.trigger("draining");
    }

    /// How long ago a pass was last made whole; before the first one, how old this is.
    pub fn since_last_pass(&self) -> Duration {
        let last = *self.last_pass();
        self.shared.clock.monotonic().saturating_sub(last)
    }

    /// Notes that a pass was made whole.
    pub(super) fn passed(&self) {
        *self.last_pass() = self.shared.clock.monotonic();
    }

    /// Whether admission is closed.
    pub(super) fn is_draining(&self) -> bool {
        self.shared.is_draining.load(Ordering::Acquire)
    }

    /// Waits until something was asked for.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    pub(super) fn request_pass_in(&self, delay: Duration, reason: &'static str) {
        let at = self.shared.clock.monotonic().saturating_add(delay);
        self.queue().request_at(Key::Pass, at, reason);
        self.shared.changed.notify_one();
    }

    /// A short section without an await; poisoning cannot leave half a request.
    pub(super) fn queue(&self) -> MutexGuard<'_, TriggerQueue<Key>> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// As short a section.
    fn last_pass(&self) -> MutexGuard<'_, Duration> {
        let last = self.shared.last_pass.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }
}
