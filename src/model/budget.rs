//! Budgets: scopes, windows, crossings.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::id::Uid;
use super::kind::ObjectRef;
use super::spec::BudgetScopeKind;
use super::units::Money;

/// What a budget is over, by identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScopeKey {
    /// The kind of scope.
    pub kind: BudgetScopeKind,
    /// The object; none for the fleet.
    pub uid: Option<Uid>,
}

impl fmt::Display for ScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "{}/{uid}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

/// One calendar month in one zone: `[start, end)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// `2026-11`.
    pub label: String,
    /// Its first instant.
    pub start: Timestamp,
    /// The next window's first instant.
    pub end: Timestamp,
}

impl Window {
    /// The calendar month of `zone` that contains `now`.
    ///
    /// # Errors
    /// At the ends of representable time only.
    pub fn containing(now: Timestamp, zone: &TimeZone) -> Result<Self, jiff::Error> {
        let first: Date = now.to_zoned(zone.clone()).date().first_of_month();
        let next = first.checked_add(1.month())?;
        Ok(Self {
            label: first.strftime("%Y-%m").to_string(),
            start: first.to_zoned(zone.clone())?.timestamp(),
            end: next.to_zoned(zone.clone())?.timestamp(),
        })
    }
}

/// What was crossed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum IncidentKind {
    /// The warning threshold.
    Soft,
    /// The ceiling.
    Hard,
}

/// One crossing: recorded once per (scope, window, kind).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The scope.
    pub scope: ScopeKey,
    /// The workspace, for a scope inside one.
    pub workspace: Option<Uid>,
    /// The policy, or the Agent whose own figure it is.
    pub budget: ObjectRef,
    /// The window's label.
    pub window: String,
    /// What was crossed.
    pub kind: IncidentKind,
    /// Month to date.
    pub spent: Money,
    /// The ceiling.
    pub ceiling: Money,
}

/// A pause that a budget caused. It lifts by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetPause {
    /// What is paused.
    pub scope: ScopeKey,
    /// The window that was exhausted.
    pub window: String,
    /// Month to date when it was paused.
    pub spent: Money,
    /// The ceiling when it was paused.
    pub ceiling: Money,
    /// Since when.
    pub since: Timestamp,
}

/// What a budget that gates dispatch asks of a run, at the exec boundary and in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetGuard {
    /// The policy.
    pub budget: ObjectRef,
    /// What it is over.
    pub scope: ScopeKey,
    /// The window that the run starts in.
    pub window: Window,
    /// The ceiling.
    pub ceiling: Money,
    /// Whether a run that crosses it is ended.
    pub stops: bool,
}

/// What is set aside for a run of an agent that has too few priced runs to tell (design §15).
pub const RESERVATION_DEFAULT: Money = Money::from_cents(100);
/// Priced runs that an estimate is made from (design §15).
pub const ESTIMATE_RUNS: usize = 20;
/// Priced runs without which there is no estimate (design §15).
pub const ESTIMATE_RUNS_MIN: usize = 5;

/// What nine in ten of these costs stay at or below; none when there are too few of them.
pub fn estimate(costs: &[Money]) -> Option<Money> {
    if costs.len() < ESTIMATE_RUNS_MIN {
        return None;
    }
    let mut costs = costs.to_vec();
    costs.sort_unstable();
    // The nearest rank: the smallest cost that at least 90 % of all are not above.
    costs.get((costs.len() * 9).div_ceil(10) - 1).copied()
}

/// Month-to-date spend of one budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spend {
    /// The scope.
    pub scope: ScopeKey,
    /// The window.
    pub window: Window,
    /// Priced spend.
    pub spent: Money,
    /// What is set aside for live runs, or used by them where that is more.
    pub reserved: Money,
    /// Runs in the window whose cost is not known.
    pub unpriced_runs: u32,
}

#[cfg(test)]
mod tests {
    use super::{Window, estimate};
    use crate::model::units::Money;
    use jiff::{Timestamp, tz::TimeZone};

    #[test]
    fn an_estimate_is_the_ninetieth_percentile_of_enough_runs() {
        let of = |costs: &[i64]| {
            let costs: Vec<_> = costs
                .iter()
                .map(|cents| Money::from_cents(*cents))
                .collect();
            estimate(&costs)
        };
        assert_eq!(of(&[1, 2, 3, 4]), None);
        assert_eq!(of(&[5, 4, 3, 2, 1]), Some(Money::from_cents(5)));
        let twenty: Vec<_> = (1..=20).rev().collect();
        assert_eq!(of(&twenty), Some(Money::from_cents(18)));
    }

    #[test]
    fn a_window_is_the_zones_own_month() {
        // (zone, instant, label): the same instant is another month east and west.
        for (zone, instant, label) in [
            ("UTC", "2026-11-30T23:59:59Z", "2026-11"),
            ("Pacific/Auckland", "2026-11-30T23:59:59Z", "2026-12"),
            ("Pacific/Pago_Pago", "2026-12-01T10:59:59Z", "2026-11"),
            ("UTC", "2028-02-29T12:00:00Z", "2028-02"),
        ] {
            let zone = TimeZone::get(zone).unwrap();
            let now: Timestamp = instant.parse().unwrap();
            let window = Window::containing(now, &zone).unwrap();
            assert_eq!(window.label, label, "{instant}");
            assert!(window.start <= now && now < window.end);
            assert_eq!(
                Window::containing(window.end, &zone).unwrap().start,
                window.end
            );
        }
    }
}
