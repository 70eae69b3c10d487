//! What the API may pull, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use crate::api::control::{Levers, Pulse, SourceReport};
use crate::clock::Clock;
use crate::dispatch::Runs;
use crate::reconcile::{Failure, Handle, Outcome, SourceAnswer, SourceStatus};

/// What a pass may take before the loop counts as stuck.
const PASS_MAX: Duration = Duration::from_secs(60);
/// What the source may take to answer before it counts as silent.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The levers of a daemon that looks at everything every `resync`.
pub(super) fn levers(
    handle: &Handle,
    runs: &Runs,
    source: &SourceStatus,
    clock: &Arc<dyn Clock>,
    resync: Duration,
) -> Levers {
    let (triggered, asked, turning) = (handle.clone(), handle.clone(), handle.clone());
    let (begun, awaited, source) = (source.clone(), source.clone(), source.clone());
    let clock = Arc::clone(clock);
    let (stopped, told, looked) = (runs.clone(), runs.clone(), runs.clone());
    Levers {
        trigger: Box::new(move |reason| triggered.trigger(reason)),
        reconcile: Box::new(move || {
            let next = begun.answer().begun + 1;
            asked.reconcile_now();
            next
        }),
        finished: Box::new(move |reading| {
            let source = awaited.clone();
            Box::pin(async move { source.finished(reading).await })
        }),
        stop: Box::new(move |run, reason| stopped.stop(run, reason)),
        is_listening: Box::new(move |run| told.listening().contains(&run)),
        changes: Box::new(move |space| {
            let runs = looked.clone();
            Box::pin(async move { runs.changes_in(space).await })
        }),
        source: Box::new(move || report(&source.answer(), clock.monotonic())),
        pulse: Box::new(move || pulse(turning.since_last_pass(), resync)),
    }
}

/// How the loop is. Without a reason it goes round every `resync`, up to a tenth later.
fn pulse(since_last_pass: Duration, resync: Duration) -> Pulse {
    Pulse {
        is_ok: since_last_pass <= resync + resync / 10 + PASS_MAX,
        since_last_pass,
    }
}

/// How the source is, in words.
fn report(answer: &SourceAnswer, now: Duration) -> SourceReport {
    let waiting = answer.waiting;
    let late = waiting.filter(|it| now.saturating_sub(it.since_monotonic) > ANSWER_MAX);
    let (is_ok, message) = match (&answer.failure, &answer.attempted) {
        (Some(Failure { message, since }), _) => {
            (false, format!("unreadable since {since}: {message}"))
        }
        (None, None) => (false, "not read yet".to_owned()),
        (None, Some((revision, Outcome::Accepted))) => {
            (true, format!("{} accepted", revision.short()))
        }
        (None, Some((revision, Outcome::Rejected { reason }))) => (
            false,
            format!(
                "{} rejected ({reason}); the last good one serves on",
                revision.short()
            ),
        ),
        (None, Some((revision, Outcome::Held { reason }))) => (
            false,
            format!(
                "{} held ({reason}); the last good one serves on",
                revision.short()
            ),
        ),
    };
    let message = match late {
        Some(late) => format!("no answer since {}; before that: {message}", late.since),
        None => message,
    };
    SourceReport {
        is_ok: is_ok && late.is_none(),
        message,
        waiting_since: waiting.map(|it| it.since),
        failing_since: answer.failure.as_ref().map(|it| it.since),
        begun: answer.begun,
        finished: answer.finished,
        attempted: answer.attempted.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{pulse, report};
    use crate::model::kind::Revision;
    use crate::reconcile::{Failure, Outcome, SourceAnswer, Waiting};
    use jiff::Timestamp;
    use std::time::Duration;

    #[test]
    fn a_source_that_is_silent_for_long_is_not_well() {
        let secs = Duration::from_secs;
        let waiting = Waiting {
            since: Timestamp::UNIX_EPOCH,
            since_monotonic: secs(100),
        };
        let answer = SourceAnswer {
            attempted: Some((Revision::new("one"), Outcome::Accepted)),
            failure: None,
            begun: 1,
            finished: 1,
            waiting: Some(waiting),
        };
        let soon = report(&answer, secs(130));
        assert!(soon.is_ok && soon.waiting_since == Some(waiting.since));
        let late = report(&answer, secs(131));
        assert!(!late.is_ok);
        assert_eq!(
            late.message,
            "no answer since 1970-01-01T00:00:00Z; before that: one accepted"
        );
        let answered = SourceAnswer {
            waiting: None,
            ..answer
        };
        let answered = report(&answered, secs(131));
        assert!(answered.is_ok && answered.waiting_since.is_none());
    }

    #[test]
    fn a_source_that_fails_says_since_when() {
        let failure = Failure {
            message: "no route to host".to_owned(),
            since: Timestamp::UNIX_EPOCH,
        };
        let answer = SourceAnswer {
            attempted: Some((Revision::new("one"), Outcome::Accepted)),
            failure: Some(failure),
            ..SourceAnswer::default()
        };
        let failing = report(&answer, Duration::ZERO);
        assert!(!failing.is_ok);
        assert_eq!(failing.failing_since, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(
            failing.message,
            "unreadable since 1970-01-01T00:00:00Z: no route to host"
        );
    }

    #[test]
    fn a_loop_that_skips_a_round_is_not_well() {
        let resync = Duration::from_secs(300);
        assert!(pulse(Duration::from_secs(390), resync).is_ok);
        assert!(!pulse(Duration::from_secs(391), resync).is_ok);
    }
}
