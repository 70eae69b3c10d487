//! The months that budgets are counted in.

use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

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
    /// The window of `zone` that `now` falls in: the calendar month, told by instants. Where clocks
    /// went back over a month's first midnight, the month has begun at the first of the two and does
    /// not begin again.
    ///
    /// # Errors
    /// At the ends of representable time only.
    pub fn containing(now: Timestamp, zone: &TimeZone) -> Result<Self, jiff::Error> {
        let mut first = now.to_zoned(zone.clone()).date().first_of_month();
        let mut next = first.checked_add(1.month())?;
        if start_of(next, zone)? <= now {
            first = next;
            next = first.checked_add(1.month())?;
        }
        Ok(Self {
            label: first.strftime("%Y-%m").to_string(),
            start: start_of(first, zone)?,
            end: start_of(next, zone)?,
        })
    }
}

/// The first instant of a day: of two midnights the earlier, and without one what comes instead.
fn start_of(day: Date, zone: &TimeZone) -> Result<Timestamp, jiff::Error> {
    let midnight = zone.to_ambiguous_timestamp(day.to_datetime(Time::midnight()));
    let start = match midnight.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => midnight.earlier()?,
        AmbiguousOffset::Gap { .. } => {
            // As late as midnight would have been had clocks not gone forward yet; they did at
            // this very instant or before it.
            let after = midnight.later()?;
            let changes = zone.preceding(after.checked_add(1.nanosecond())?).next();
            changes.map_or(after, |change| change.timestamp())
        }
    };
    Ok(start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::model::zone::{names, time_zone};

    /// From the last to the first to see a day, with odd offsets, half-hour clock changes, clock
    /// changes at midnight, and whole days that never were.
    const ZONES: [&str; 14] = [
        "Pacific/Pago_Pago",
        "America/St_Johns",
        "America/Toronto",
        "America/Havana",
        "America/Sao_Paulo",
        "UTC",
        "Africa/Cairo",
        "Europe/London",
        "Asia/Beirut",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "Pacific/Apia",
        "Pacific/Kiritimati",
    ];

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_is_the_zones_own_month() {
        // (zone, instant, label): the same instant is another month east and west.
        for (zone, instant, label) in [
            ("UTC", "2026-11-30T23:59:59Z", "2026-11"),
            ("Pacific/Auckland", "2026-11-30T23:59:59Z", "2026-12"),
            ("Pacific/Pago_Pago", "2026-12-01T10:59:59Z", "2026-11"),
            ("Pacific/Kiritimati", "2026-11-30T09:59:59Z", "2026-11"),
            ("Pacific/Kiritimati", "2026-11-30T10:00:00Z", "2026-12"),
            ("UTC", "2028-02-29T12:00:00Z", "2028-02"),
            ("Asia/Kathmandu", "2028-02-29T18:14:59Z", "2028-02"),
            ("Asia/Kathmandu", "2028-02-29T18:15:00Z", "2028-03"),
            // The day before the last of 2011 never was.
            ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12"),
            ("Pacific/Apia", "2011-12-31T10:00:00Z", "2012-01"),
        ] {
            let zone = time_zone(zone).unwrap();
            let window = Window::containing(at(instant), &zone).unwrap();
            assert_eq!(window.label, label, "{instant}");
        }
    }

    #[test]
    fn a_month_that_begins_twice_begins_once() {
        // At a minute past midnight clocks went back to a minute past eleven.
        let zone = time_zone("America/St_Johns").unwrap();
        let november = Window::containing(at("2009-11-01T02:30:00Z"), &zone).unwrap();
        assert_eq!(november.start, at("2009-11-01T02:30:00Z"));
        for instant in ["2009-11-01T02:31:00Z", "2009-11-01T03:29:59Z"] {
            let local = at(instant).to_zoned(zone.clone());
            assert_eq!(local.date().to_string(), "2009-10-31");
            assert_eq!(Window::containing(at(instant), &zone).unwrap(), november);
        }
    }

    #[test]
    fn a_month_without_its_midnight_begins_with_the_clock_change() {
        // At half past eleven clocks went forward to half past midnight.
        let zone = time_zone("America/Toronto").unwrap();
        let april = Window::containing(at("1919-04-15T00:00:00Z"), &zone).unwrap();
        assert_eq!(april.start, at("1919-04-01T04:00:00Z"));
        let day = jiff::civil::date(1919, 3, 31);
        assert_eq!(start_of(day, &zone).unwrap(), at("1919-03-31T04:30:00Z"));
    }

    #[test]
    fn months_follow_each_other_without_gap_or_overlap() {
        for name in ZONES {
            let zone = time_zone(name).unwrap();
            let mut window = Window::containing(at("1900-06-15T12:00:00Z"), &zone).unwrap();
            let mut month = jiff::civil::date(1900, 6, 1);
            while month.year() < 2040 {
                assert_eq!(window.label, month.strftime("%Y-%m").to_string(), "{name}");
                let next = Window::containing(window.end, &zone).unwrap();
                assert_eq!(next.start, window.end, "{name} {month}");
                window = next;
                month = month.checked_add(1.month()).unwrap();
            }
        }
    }

    fn zones() -> impl Strategy<Value = String> {
        prop::sample::select([names(), ZONES.map(str::to_owned).to_vec()].concat())
    }

    /// Anywhere in three centuries, and around the ends of months.
    fn instants() -> impl Strategy<Value = Timestamp> {
        let months = (1800..2100_i16, 1..=12_i8, -180_000..180_000_i64);
        let near_ends = months.prop_map(|(year, month, seconds)| {
            let first = jiff::civil::date(year, month, 1);
            let midnight = first.to_zoned(TimeZone::UTC).unwrap().timestamp();
            midnight + seconds.seconds()
        });
        let anywhere = any::<u32>().prop_map(|seconds| {
            Timestamp::from_second(i64::from(seconds) * 2 - 4_000_000_000).unwrap()
        });
        proptest::prop_oneof![3 => near_ends, 1 => anywhere]
    }

    proptest! {
        /// Its window is the only one: both neighbours, found from its ends, end and begin there.
        #[test]
        fn every_instant_is_in_one_window((name, now) in (zones(), instants())) {
            let zone = time_zone(&name).unwrap();
            let of = |instant| Window::containing(instant, &zone).unwrap();
            let window = of(now);
            prop_assert!(window.start <= now && now < window.end, "{window:?}");
            let tick = 1.nanosecond();
            prop_assert_eq!(&of(window.start), &window);
            prop_assert_eq!(&of(window.end - tick), &window);
            prop_assert_eq!(of(window.end).start, window.end);
            prop_assert_eq!(of(window.start - tick).end, window.start);
            // The label is the month on the zone's wall, or that just before clocks went back.
            let month = now.to_zoned(zone.clone()).strftime("%Y-%m").to_string();
            prop_assert!(month <= window.label, "{month} {window:?}");
            if month < window.label {
                prop_assert!(now.duration_since(window.start).as_hours() < 24, "{window:?}");
            }
        }
    }
}
