//! Budgets: scopes, windows, crossings.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::id::Uid;
use super::kind::ObjectRef;
use super::spec::BudgetScopeKind;
use super::units::{Money, Tokens};
use super::window::Window;

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

/// What a ceiling is counted in.
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
pub enum Meter {
    /// What runs cost.
    Money,
    /// What their models read and wrote.
    Tokens,
}

impl Meter {
    /// `count` of it.
    pub const fn amount(self, count: i64) -> Amount {
        match self {
            Self::Money => Amount::Money(Money::from_micros(count)),
            Self::Tokens => Amount::Tokens(Tokens::new(count)),
        }
    }
}

/// So much money, or so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Money.
    Money(Money),
    /// Tokens.
    Tokens(Tokens),
}

impl Amount {
    /// What it is counted in.
    pub const fn meter(self) -> Meter {
        match self {
            Self::Money(_) => Meter::Money,
            Self::Tokens(_) => Meter::Tokens,
        }
    }

    /// Micro-dollars, or tokens.
    pub const fn count(self) -> i64 {
        match self {
            Self::Money(money) => money.micros(),
            Self::Tokens(tokens) => tokens.count(),
        }
    }

    /// The amount, where it is money.
    pub const fn money(self) -> Option<Money> {
        match self {
            Self::Money(money) => Some(money),
            Self::Tokens(_) => None,
        }
    }

    /// The amount, where it is tokens.
    pub const fn tokens(self) -> Option<Tokens> {
        match self {
            Self::Tokens(tokens) => Some(tokens),
            Self::Money(_) => None,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Money(money) => money.fmt(f),
            Self::Tokens(tokens) => tokens.fmt(f),
        }
    }
}

impl From<Money> for Amount {
    fn from(money: Money) -> Self {
        Self::Money(money)
    }
}

impl From<Tokens> for Amount {
    fn from(tokens: Tokens) -> Self {
        Self::Tokens(tokens)
    }
}

/// What was used, in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What is known of the cost.
    pub money: Money,
    /// Tokens.
    pub tokens: Tokens,
}

impl Totals {
    /// The sum.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self {
            money: self.money.saturating_add(other.money),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// What was used of what `meter` counts.
    pub const fn of(self, meter: Meter) -> Amount {
        match meter {
            Meter::Money => Amount::Money(self.money),
            Meter::Tokens => Amount::Tokens(self.tokens),
        }
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

/// Share of a ceiling that warns unless a policy says otherwise; an agent's own figure can't.
pub const SOFT_PERCENT_DEFAULT: u8 = 80;

impl IncidentKind {
    /// What `spent` of `ceiling` crosses; a ceiling of zero is none.
    pub fn crossed(spent: Amount, ceiling: Amount, soft_percent: u8) -> Option<Self> {
        let (spent, ceiling) = (i128::from(spent.count()), i128::from(ceiling.count()));
        // Compared in hundredths: rounded down, the threshold of a tiny ceiling would be nothing.
        if ceiling <= 0 || spent * 100 < ceiling * i128::from(soft_percent) {
            return None;
        }
        Some(if spent < ceiling {
            Self::Soft
        } else {
            Self::Hard
        })
    }
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
    pub spent: Amount,
    /// The ceiling.
    pub ceiling: Amount,
}

/// A pause that a budget caused. It lifts by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetPause {
    /// What is paused.
    pub scope: ScopeKey,
    /// The window that was exhausted.
    pub window: String,
    /// Month to date when it was paused.
    pub spent: Amount,
    /// The ceiling when it was paused.
    pub ceiling: Amount,
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
    pub ceiling: Amount,
    /// Whether a run that crosses it is ended.
    pub stops: bool,
}

/// What is set aside for one run, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Money; none where no budget in money asks for it.
    pub money: Option<Money>,
    /// Tokens; none where no budget in tokens asks for them.
    pub tokens: Option<Tokens>,
}

impl Reservation {
    /// What is set aside of what `meter` counts.
    pub fn of(self, meter: Meter) -> Option<Amount> {
        match meter {
            Meter::Money => self.money.map(Amount::Money),
            Meter::Tokens => self.tokens.map(Amount::Tokens),
        }
    }

    /// Sets aside at least this much.
    pub fn raise(&mut self, amount: Amount) {
        match amount {
            Amount::Money(money) => self.money = self.money.max(Some(money)),
            Amount::Tokens(tokens) => self.tokens = self.tokens.max(Some(tokens)),
        }
    }
}

/// What is set aside for a run of an agent that has too few runs to tell: the design's $1.00, and
/// as many tokens as a short session of a coding agent uses.
pub const RESERVATION_DEFAULT: Totals = Totals {
    money: Money::from_cents(100),
    tokens: Tokens::new(100_000),
};
/// Runs that an estimate is made from (design §15).
pub const ESTIMATE_RUNS: usize = 20;
/// Runs without which there is no estimate (design §15).
pub const ESTIMATE_RUNS_MIN: usize = 5;

/// What nine in ten of these amounts stay at or below; none when there are too few of them.
pub fn estimate<A: Copy + Ord>(amounts: &[A]) -> Option<A> {
    if amounts.len() < ESTIMATE_RUNS_MIN {
        return None;
    }
    let mut amounts = amounts.to_vec();
    amounts.sort_unstable();
    // The nearest rank: the smallest amount that at least 90 % of all are not above.
    let rank = (amounts.len() * 9).div_ceil(10);
    amounts.get(rank - 1).copied()
}

/// How much of a window has to be over before it is projected: a day.
const FORECAST_AFTER_SECS: i64 = 86_400;

/// What is spent by the end of the window if it goes on as it did since the window's start. None in
/// the window's first day, of which too little can be told.
pub fn forecast(spent: Amount, window: &Window, now: Timestamp) -> Option<Amount> {
    let start = window.start.as_second();
    let (elapsed, whole) = (now.as_second() - start, window.end.as_second() - start);
    if elapsed < FORECAST_AFTER_SECS || whole <= 0 {
        return None;
    }
    let exact = i128::from(spent.count()) * i128::from(whole);
    // Money in whole cents: what is finer is noise.
    let unit = match spent.meter() {
        Meter::Money => i128::from(Money::from_cents(1).micros()),
        Meter::Tokens => 1,
    };
    let projected = exact.div_euclid(i128::from(elapsed) * unit) * unit;
    let projected = projected.max(i128::from(spent.count()));
    let count = i64::try_from(projected).unwrap_or(i64::MAX);
    Some(spent.meter().amount(count))
}

/// Month-to-date spend of one budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spend {
    /// The scope.
    pub scope: ScopeKey,
    /// The window.
    pub window: Window,
    /// What settled runs used, as far as it is known.
    pub spent: Totals,
    /// What is set aside for live runs, or used by them where that is more.
    pub reserved: Totals,
    /// Runs in the window whose cost is not known.
    pub unpriced_runs: u32,
    /// Runs in the window whose tokens are not known.
    pub uncounted_runs: u32,
}

impl Spend {
    /// Runs in the window of which it is not known what they used of what `meter` counts.
    pub const fn unknown_runs(&self, meter: Meter) -> u32 {
        match meter {
            Meter::Money => self.unpriced_runs,
            Meter::Tokens => self.uncounted_runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, IncidentKind, Window, estimate, forecast};
    use crate::model::units::{Money, Tokens};

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
    fn a_forecast_goes_on_as_it_began_and_needs_a_day() {
        let window = Window {
            label: "2026-11".to_owned(),
            start: "2026-11-01T00:00:00Z".parse().unwrap(),
            end: "2026-12-01T00:00:00Z".parse().unwrap(),
        };
        let of = |spent: Amount, now: &str| forecast(spent, &window, now.parse().unwrap());
        let money = |cents| Amount::from(Money::from_cents(cents));
        let tokens = |count| Amount::from(Tokens::new(count));
        for (spent, now, forecast) in [
            (money(100), "2026-11-01T23:59:59Z", None),
            (money(100), "2026-11-02T00:00:00Z", Some(money(3_000))),
            (money(100), "2026-11-16T00:00:00Z", Some(money(200))),
            (money(100), "2026-11-30T23:59:59Z", Some(money(100))),
            (money(0), "2026-11-16T00:00:00Z", Some(money(0))),
            (tokens(7), "2026-11-16T00:00:00Z", Some(tokens(14))),
            (
                tokens(i64::MAX),
                "2026-11-16T00:00:00Z",
                Some(tokens(i64::MAX)),
            ),
        ] {
            assert_eq!(of(spent, now), forecast, "{spent} {now}");
        }
    }

    #[test]
    fn a_crossing_is_the_worst_that_was_reached() {
        let of = |spent, ceiling| {
            IncidentKind::crossed(Tokens::new(spent).into(), Tokens::new(ceiling).into(), 80)
        };
        assert_eq!(of(79, 100), None);
        assert_eq!(of(80, 100), Some(IncidentKind::Soft));
        assert_eq!(of(100, 100), Some(IncidentKind::Hard));
        // Zero is no ceiling, and 80 % of one is not nothing.
        assert_eq!((of(5, 0), of(0, 1)), (None, None));
    }
}
