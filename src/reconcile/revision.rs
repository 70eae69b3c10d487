//! The way of a commit to the catalog: snapshot, decode, judge, then accept, hold or reject. Whole
//! or not at all; whatever happens here, the last good revision serves on.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::{ReconcileError, Reconciler};
use crate::diagnostic::{Diagnostic, Severity, render};
use crate::manifest::{self, ManifestFile};
use crate::model::chain::chain;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::desired::Catalog;
use crate::model::kind::Revision;
use crate::plan::PlanInput;
use crate::plan::judge::{Approval, Verdict, judge};
use crate::source::{Snapshot, SourceError};
use crate::store::{Accept, Effect, FirstObjects, Store, StoreError};
use crate::task::{Handle, TaskError, blocking};

/// What the source last answered. Clones share it.
#[derive(Clone, Debug)]
pub struct SourceStatus(Arc<watch::Sender<SourceAnswer>>);

/// One answer of the source.
#[derive(Clone, Debug, Default)]
pub struct SourceAnswer {
    /// The revision that was looked at last, and what became of it.
    pub attempted: Option<(Revision, Outcome)>,
    /// Why the source can't be read, if it can't.
    pub failure: Option<Failure>,
    /// Readings that were begun.
    pub begun: u64,
    /// The last of them of whose answer it is known what became.
    pub finished: u64,
    /// The reading that is under way, if one is: what is above is of an earlier one then.
    pub waiting: Option<Waiting>,
}

/// A source that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was wrong the last time.
    pub message: String,
    /// Since when it is so, whatever was wrong in between.
    pub since: Timestamp,
}

/// A reading that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Since when.
    pub since: Timestamp,
    /// The same by the clock that does not jump.
    pub since_monotonic: Duration,
}

/// A reading of the source, in a task of its own that ends with this. The thread that reads may be
/// stuck, and is left to itself.
#[derive(Debug)]
pub(super) struct Reading(Handle<Read>);

/// What a reading comes to.
type Read = Result<Result<Snapshot, SourceError>, TaskError>;

impl Reading {
    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the reading came to; never, where there is none.
pub(super) async fn answer(reading: &mut Option<Reading>) -> Read {
    let Some(Reading(task)) = reading else {
        return std::future::pending().await;
    };
    let read = task.await;
    *reading = None;
    read.flatten()
}

/// What became of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the desired state.
    Accepted,
    /// It has faults.
    Rejected {
        /// The first of them, with its place.
        reason: String,
    },
    /// It waits for a person.
    Held {
        /// Why.
        reason: String,
    },
}

impl SourceStatus {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }

    /// The last answer.
    pub fn answer(&self) -> SourceAnswer {
        self.0.borrow().clone()
    }

    /// Waits until it is known what became of a reading's answer, or of that of a later one.
    pub async fn finished(&self, reading: u64) {
        let mut answers = self.0.subscribe();
        let finished = answers.wait_for(|answer| answer.finished >= reading).await;
        // While this is here, so is who sends.
        debug_assert!(finished.is_ok());
    }

    fn set<T>(&self, change: impl FnOnce(&mut SourceAnswer) -> T) -> T {
        let mut changed = None;
        self.0.send_modify(|answer| changed = Some(change(answer)));
        changed.expect("it is called once")
    }
}

/// The catalog of the store's last good revision.
pub(super) async fn last_good(
    store: &Store,
) -> Result<Option<(Revision, Arc<Catalog>)>, ReconcileError> {
    let Some((revision, documents)) = store.last_good().await? else {
        return Ok(None);
    };
    match manifest::catalog_of(&documents) {
        Ok(catalog) => Ok(Some((revision, Arc::new(catalog)))),
        Err(error) => Err(ReconcileError::Stored {
            revision,
            message: error.to_string(),
        }),
    }
}

impl Reconciler {
    /// Begins to look at the source; the loop goes on.
    pub(super) fn begin_reading(&mut self) {
        let waiting = Waiting {
            since: self.clock.now(),
            since_monotonic: self.clock.monotonic(),
        };
        self.status.set(|answer| {
            answer.waiting = Some(waiting);
            answer.begun += 1;
        });
        let source = Arc::clone(&self.source);
        let read = move || source.snapshot(manifest::is_manifest_path);
        let task = self
            .executor
            .tracker()
            .spawn("read source", blocking("read source", read));
        self.reading = Some(Reading(task));
    }

    /// Takes the source's revision if it is a new one. Where that fails it is not known what becomes
    /// of it, and another reading is due.
    pub(super) async fn load_revision(&mut self, read: Read) -> Result<(), ReconcileError> {
        self.status.set(|answer| answer.waiting = None);
        self.look_at(read).await?;
        self.status.set(|answer| answer.finished = answer.begun);
        Ok(())
    }

    async fn look_at(&mut self, read: Read) -> Result<(), ReconcileError> {
        let snapshot = match read? {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.report_failure(&error);
                return Ok(());
            }
        };
        if let Some(failure) = self.status.set(|answer| answer.failure.take()) {
            tracing::info!(since = %failure.since, "source readable again");
        }
        let revision = snapshot.revision.clone();
        if self.revision() == Some(&revision) {
            self.status
                .set(|answer| answer.attempted = Some((revision, Outcome::Accepted)));
            return Ok(());
        }
        let is_known = self
            .status
            .answer()
            .attempted
            .is_some_and(|(last, _)| last == revision);
        if is_known && !self.store.is_approved(revision.clone()).await? {
            return Ok(());
        }
        let outcome = self.take(snapshot).await?;
        self.status
            .set(|answer| answer.attempted = Some((revision, outcome)));
        Ok(())
    }

    /// Says once, and not again while it stays the same, that the source can't be read.
    fn report_failure(&self, error: &dyn std::error::Error) {
        let message = chain(error);
        let last = self.status.answer().failure;
        let since = last
            .as_ref()
            .map_or_else(|| self.clock.now(), |it| it.since);
        if last.is_none_or(|last| last.message != message) {
            tracing::warn!(message, %since, "source unreadable; the last good revision serves on");
        }
        let failure = Failure { message, since };
        self.status.set(|answer| answer.failure = Some(failure));
    }

    /// Decodes a new revision, and judges it if it has no faults.
    async fn take(&mut self, snapshot: Snapshot) -> Result<Outcome, ReconcileError> {
        let Snapshot {
            revision,
            files,
            author,
            committed_at,
        } = snapshot;
        let load = move || {
            let files: Vec<_> = files
                .into_iter()
                .map(|(path, bytes)| ManifestFile { path, bytes })
                .collect();
            let loaded = manifest::load(&files);
            let report = render::json(&loaded.report());
            (loaded, report)
        };
        let (loaded, report) = blocking("decode revision", load).await?;
        let now = self.clock.now();
        if let Some(first) = first_error(&loaded.diagnostics) {
            let (findings, first) = (loaded.diagnostics.len(), place(first));
            tracing::warn!(%revision, findings, first, "revision rejected");
            noted(&self.store.reject(revision, report, now).await?);
            return Ok(Outcome::Rejected { reason: first });
        }
        let first_revision = match self.judge(&revision, &loaded.catalog, now).await? {
            Verdict::Accept {
                first_revision_held: true,
            } => FirstObjects::Hold,
            Verdict::Accept {
                first_revision_held: false,
            } => FirstObjects::Run,
            Verdict::Hold { message, .. } => return self.hold(revision, message, now).await,
        };
        let accept = Accept {
            revision,
            documents: loaded.documents,
            author: author.map(|author| format!("{} <{}>", author.name, author.email)),
            committed_at,
            first_revision,
            now,
        };
        self.accept(accept, loaded.catalog).await
    }

    /// The prune guard's word on a revision without faults.
    async fn judge(
        &self,
        revision: &Revision,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<Verdict, ReconcileError> {
        let observed = self.store.observe(now).await?;
        let is_approved = self.store.is_approved(revision.clone()).await?;
        let approval = if is_approved {
            Approval::Given
        } else {
            Approval::None
        };
        Ok(judge(
            &PlanInput {
                catalog,
                observed: &observed,
                now,
            },
            approval,
        ))
    }

    async fn hold(
        &self,
        revision: Revision,
        message: String,
        now: Timestamp,
    ) -> Result<Outcome, ReconcileError> {
        tracing::warn!(%revision, message, "revision held");
        let reason = message.clone();
        noted(&self.store.hold_revision(revision, message, now).await?);
        Ok(Outcome::Held { reason })
    }

    /// Makes the revision the desired state.
    async fn accept(
        &mut self,
        accept: Accept,
        catalog: Catalog,
    ) -> Result<Outcome, ReconcileError> {
        let (revision, now) = (accept.revision.clone(), accept.now);
        let accepted = match self.store.accept(accept, Arc::clone(&self.ids)).await {
            Ok(accepted) => accepted,
            Err(conflict @ StoreError::UidConflict { .. }) => {
                return self.hold(revision, chain(&conflict), now).await;
            }
            Err(error) => return Err(error.into()),
        };
        crash_point(CrashPoint::RevisionAccepted);
        tracing::info!(
            %revision,
            created = accepted.created.len(),
            changed = accepted.changed.len(),
            removed = accepted.removed.len(),
            "revision accepted"
        );
        self.accepted = Some((revision, Arc::new(catalog)));
        self.handle.trigger("revision accepted");
        Ok(Outcome::Accepted)
    }
}

fn first_error(diagnostics: &[Diagnostic]) -> Option<&Diagnostic> {
    diagnostics
        .iter()
        .find(|diagnostic| diagnostic.severity() == Severity::Error)
}

/// A finding on one line, with its place.
fn place(diagnostic: &Diagnostic) -> String {
    let (span, code) = (&diagnostic.span, diagnostic.code.id());
    let start = span.range.start;
    format!(
        "{}:{}:{}: {code}: {}",
        span.file, start.line, start.column, diagnostic.message
    )
}

/// The verdict on a revision is the same however often it is recorded.
const fn noted(effect: &Effect) {
    match effect {
        Effect::Applied | Effect::Unchanged | Effect::Stale(_) => {}
    }
}
