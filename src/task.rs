//! Tasks that are named, tracked and cancellable: the only file that names tokio's spawn.
//!
//! The daemon makes one [`Tracker`] and hands out clones. A panic inside a task is a bug that ends
//! that task and no other: it is logged with the task's name, once, here, and it is an error of the
//! task's [`Handle`]. Shutting down is [`Tracker::cancel`], then [`Tracker::wait`], which says who
//! did not stop.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Why a task has no result.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TaskError {
    /// It panicked; already logged.
    #[error("task {name} panicked: {message}")]
    Panicked {
        /// The task's name.
        name: String,
        /// What the panic said.
        message: String,
    },
    /// It was aborted, or the runtime ended under it.
    #[error("task {name} was aborted")]
    Aborted {
        /// The task's name.
        name: String,
    },
}

/// Spawns tasks and knows which of them run. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    tasks: TaskTracker,
    token: CancellationToken,
    running: Arc<Mutex<Running>>,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    names: BTreeMap<u64, Cow<'static, str>>,
}

impl Tracker {
    /// A tracker with no tasks, not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts `future` on the current runtime. Dropping the handle lets it run on.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the tracked way to spawn"
    )]
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, future: F) -> Handle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let name = name.into();
        let span = tracing::debug_span!("task", %name);
        let task = Caught {
            future: Box::pin(future),
            _registered: self.register(name.clone()),
            name: name.clone(),
        };
        let join = tokio::spawn(self.tasks.track_future(task.instrument(span)));
        Handle { name, join }
    }

    /// A token that is cancelled with this tracker, and may be cancelled alone.
    pub fn child_token(&self) -> CancellationToken {
        self.token.child_token()
    }

    /// Asks every task that holds a token to end.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Waits until every task has ended, or for `deadline`, and returns the names of those that
    /// still run, sorted. It does not cancel, and tasks may go on to be spawned.
    pub async fn wait(&self, deadline: Duration) -> Vec<String> {
        self.tasks.close();
        if tokio::time::timeout(deadline, self.tasks.wait())
            .await
            .is_ok()
        {
            return Vec::new();
        }
        let mut names: Vec<_> = lock(&self.running)
            .names
            .values()
            .map(ToString::to_string)
            .collect();
        names.sort_unstable();
        names
    }

    fn register(&self, name: Cow<'static, str>) -> Registered {
        let mut running = lock(&self.running);
        let key = running.next;
        running.next += 1;
        running.names.insert(key, name);
        drop(running);
        Registered {
            key,
            running: Arc::clone(&self.running),
        }
    }
}

/// A task's name in the list of those that run, while this lives.
#[derive(Debug)]
struct Registered {
    key: u64,
    running: Arc<Mutex<Running>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.running).names.remove(&self.key);
    }
}

/// The list stays whole whatever panicked beside it: each change is one call.
fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a spawned task, as a future.
#[derive(Debug)]
#[must_use = "drop it in so many words to let the task run unobserved"]
pub struct Handle<T> {
    name: Cow<'static, str>,
    join: JoinHandle<Result<T, TaskError>>,
}

impl<T> Handle<T> {
    /// Ends the task at its next await.
    pub fn abort(&self) {
        self.join.abort();
    }

    /// Whether the task has ended, in any way.
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }
}

impl<T> Future for Handle<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.join).poll(cx).map(|joined| {
            // The task's own panics are caught inside it, so that this is an abort.
            joined.unwrap_or_else(|_aborted| {
                Err(TaskError::Aborted {
                    name: self.name.to_string(),
                })
            })
        })
    }
}

/// A future whose panic is an error.
struct Caught<F> {
    future: Pin<Box<F>>,
    name: Cow<'static, str>,
    _registered: Registered,
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A future that panicked is never polled again: it is ready with the error.
        let future = &mut self.future;
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panicked(&self.name, panic.as_ref()))),
        }
    }
}

/// Runs blocking `work` on a thread for such work. Dropping the future does not stop the work.
///
/// # Errors
/// When `work` panicked, or the runtime ended before it began.
#[expect(clippy::disallowed_methods, reason = "this is the named way to block")]
pub async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskError> {
    let span = tracing::debug_span!("blocking", name);
    let caught = move || {
        span.in_scope(|| catch_unwind(AssertUnwindSafe(work)))
            .map_err(|panic| panicked(name, panic.as_ref()))
    };
    tokio::task::spawn_blocking(caught)
        .await
        .unwrap_or_else(|_aborted| {
            Err(TaskError::Aborted {
                name: name.to_owned(),
            })
        })
}

/// Logs a panic and makes it an error.
fn panicked(name: &str, panic: &(dyn Any + Send)) -> TaskError {
    let message = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    tracing::error!(task = name, %message, "task panicked; this is a bug");
    TaskError::Panicked {
        name: name.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_result_comes_back() {
        let tracker = Tracker::new();
        assert_eq!(tracker.spawn("sum", async { 1 + 1 }).await, Ok(2));
        assert_eq!(blocking("sum", || 2 + 2).await, Ok(4));
        assert!(tracker.wait(SOON).await.is_empty());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_that_names_the_task() {
        let tracker = Tracker::new();
        let handle = tracker.spawn("doomed", async { panic!("at {}", 7) });
        let error = TaskError::Panicked {
            name: "doomed".to_owned(),
            message: "at 7".to_owned(),
        };
        assert_eq!(handle.await, Err::<(), _>(error));
        let error = blocking("doomed", || panic!("flat")).await;
        assert_eq!(
            error.map_err(|e| e.to_string()),
            Err::<(), _>("task doomed panicked: flat".to_owned())
        );
        assert!(tracker.wait(SOON).await.is_empty());
    }

    #[tokio::test]
    async fn cancelling_reaches_every_token() {
        let tracker = Tracker::new();
        let (mine, clones) = (tracker.child_token(), tracker.clone().child_token());
        drop(tracker.spawn("one", async move { mine.cancelled().await }));
        drop(tracker.spawn("two", async move { clones.cancelled().await }));
        tracker.cancel();
        assert!(tracker.wait(SOON).await.is_empty());
    }

    #[tokio::test]
    async fn a_wait_names_what_did_not_stop() {
        let tracker = Tracker::new();
        let stuck = tracker.spawn("stuck", std::future::pending::<()>());
        drop(tracker.spawn("brief", async {}));
        assert_eq!(tracker.wait(Duration::from_millis(20)).await, ["stuck"]);
        stuck.abort();
        assert!(tracker.wait(SOON).await.is_empty());
        let error = stuck.await.expect_err("aborted");
        assert_eq!(error.to_string(), "task stuck was aborted");
    }
}
