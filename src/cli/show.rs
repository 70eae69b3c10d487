//! How times, money and outcomes are shown in tables.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::dto::{Condition, Object, Run};
use crate::model::budget::Meter;
use crate::model::condition::{ConditionStatus, ConditionType};
use crate::model::event::DomainEventType;
use crate::model::run::RunStatus;
use crate::model::units::Money;

/// How long ago `since` was, in its largest whole unit: `5m`. A future instant is `0s`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    match seconds {
        s if s >= 86_400 => format!("{}d", s / 86_400),
        s if s >= 3_600 => format!("{}h", s / 3_600),
        s if s >= 60 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// The time in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Money, or `unpriced`.
pub(crate) fn cost(micros: Option<i64>) -> String {
    micros.map_or_else(|| "unpriced".to_owned(), money)
}

/// Money.
pub(crate) fn money(micros: i64) -> String {
    Money::from_micros(micros).to_string()
}

/// What a budget's event says, in words: who crossed what, or whose pause was lifted and why. None
/// for the other events.
pub(crate) fn budget_event(kind: DomainEventType, payload: &Value) -> Option<String> {
    let text = |key: &str| payload.get(key).and_then(Value::as_str);
    let object = text("object")?.replacen('/', " ", 1);
    match kind {
        DomainEventType::BudgetThresholdCrossed => {
            let meter: Meter = text("meter")?.parse().ok()?;
            let amount = |key: &str| Some(meter.amount(payload.get(key)?.as_i64()?));
            let (kind, window) = (text("kind")?, text("window")?);
            let (spent, ceiling) = (amount("spent")?, amount("ceiling")?);
            Some(format!(
                "{object}, {kind}: {spent} of {ceiling} in {window}"
            ))
        }
        DomainEventType::BudgetPauseLifted => Some(format!("{object}: {}", text("because")?)),
        _ => None,
    }
}

/// How a run did, in one word, with the group of its failure.
pub(crate) fn outcome(run: &Run) -> String {
    let word = match (run.status, run.liveness) {
        (RunStatus::Pending, _) => "pending".to_owned(),
        (_, Some(liveness)) => liveness.to_string(),
        (status, None) => status.to_string(),
    };
    match run.error_family {
        Some(family) => format!("{word} ({family})"),
        None => word,
    }
}

/// What the whole of an object's conditions comes to: (`Ready`'s status, the reason that matters).
pub(crate) fn readiness(object: &Object) -> (String, String) {
    if let Some(hold) = &object.hold {
        return ("False".to_owned(), hold.reason.to_string());
    }
    match object.condition(ConditionType::Ready) {
        Some(ready) => (ready.status.to_string(), ready.reason.to_string()),
        None => (ConditionStatus::Unknown.to_string(), String::new()),
    }
}

/// One condition on one line.
pub(crate) fn condition(condition: &Condition, now: Timestamp) -> [String; 5] {
    [
        condition.kind.to_string(),
        condition.status.to_string(),
        condition.reason.to_string(),
        age(condition.since, now),
        condition.message.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_in_their_largest_whole_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (seconds, shown) in [
            (-5, "0s"),
            (59, "59s"),
            (60, "1m"),
            (7_199, "1h"),
            (90_000, "1d"),
        ] {
            let since = Timestamp::from_second(1_000_000 - seconds).unwrap();
            assert_eq!(age(since, now), shown);
        }
        assert_eq!(time(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn an_unknown_cost_is_not_zero() {
        assert_eq!(cost(None), "unpriced");
        assert_eq!(cost(Some(0)), "$0.00");
    }
}
