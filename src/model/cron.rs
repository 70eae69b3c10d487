//! Cron schedules: five fields, read in a time zone.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use super::zone::time_zone;

/// A cron expression that can come due.
///
/// Around a change of the clocks: an expression whose hour begins with `*` follows elapsed time
/// and comes due in both passes of a repeated hour; any other comes due once, in the first pass
/// of a repeated hour, and as much later as the clock jumps when its time is skipped.
#[derive(Clone, Debug)]
pub struct CronSchedule {
    fields: Crontab,
    zone: TimeZone,
    every_hour: bool,
}

/// Why a schedule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// No time zone has this name.
    #[error("{zone:?} is not a time zone")]
    UnknownZone {
        /// The name.
        zone: String,
    },
    /// A wrong number of fields.
    #[error(
        "a cron expression has five fields (minute, hour, day of month, month, day of week), not {count}"
    )]
    FieldCount {
        /// How many it has.
        count: usize,
    },
    /// A field that cannot be read.
    #[error("{reason}")]
    Field {
        /// What is wrong with it.
        reason: String,
    },
    /// No such day exists.
    #[error("the expression never comes due")]
    Never,
}

impl CronSchedule {
    /// Reads `expression` (minute, hour, day of month, month, day of week) in the IANA zone `zone`.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, CronError> {
        let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
        if fields.len() != 5 {
            return Err(CronError::FieldCount {
                count: fields.len(),
            });
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let parsed = cronexpr::parse_crontab_with(&fields.join(" "), options);
        let schedule = Self {
            fields: parsed.map_err(|error| CronError::Field {
                reason: reason_of(&error),
            })?,
            zone: time_zone(zone).ok_or_else(|| CronError::UnknownZone {
                zone: zone.to_owned(),
            })?,
            every_hour: fields[1].starts_with('*'),
        };
        // Four years from here hold a leap day.
        let due = schedule.next_civil(Timestamp::UNIX_EPOCH);
        due.map(|_| schedule).ok_or(CronError::Never)
    }

    /// The first time after `after` at which it comes due; none at the end of time.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        if self.every_hour {
            self.next_elapsed(after)
        } else {
            self.next_on_clock(after)
        }
    }

    /// By the clock on the wall: every civil time comes due once.
    fn next_on_clock(&self, after: Timestamp) -> Option<Timestamp> {
        let mut civil = as_if_utc(&after.to_zoned(self.zone.clone()))?;
        loop {
            civil = self.next_civil(civil)?;
            let local = civil.to_zoned(TimeZone::UTC).datetime();
            let due = local.to_zoned(self.zone.clone()).ok()?.timestamp();
            if due > after {
                return Some(due);
            }
        }
    }

    /// By elapsed time: in each stretch between two changes of the clocks, with its own offset.
    fn next_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut from = after;
        loop {
            let local = from.to_zoned(self.zone.clone());
            let shift = SignedDuration::from_secs(local.offset().seconds().into());
            let due = self
                .next_civil(as_if_utc(&local)?)?
                .checked_sub(shift)
                .ok()?;
            let change = self.zone.following(from).next();
            match change.map(|it| it.timestamp()) {
                Some(change) if change <= due => {
                    // The first moment with the new offset may itself be due.
                    let new_shift = self.zone.to_offset(change);
                    let new_shift = SignedDuration::from_secs(new_shift.seconds().into());
                    let civil = change.checked_add(new_shift).ok()?;
                    let before = civil.checked_sub(SignedDuration::from_nanos(1)).ok()?;
                    let due = self.next_civil(before)?;
                    if due == civil {
                        return Some(change);
                    }
                    from = change;
                }
                _ => return Some(due),
            }
        }
    }

    /// The next match in a zone without changes; times of the wall are written as if in UTC.
    fn next_civil(&self, after: Timestamp) -> Option<Timestamp> {
        let next = self.fields.find_next(MakeTimestamp(after)).ok()?;
        Some(next.timestamp())
    }
}

fn as_if_utc(local: &Zoned) -> Option<Timestamp> {
    let utc = local.datetime().to_zoned(TimeZone::UTC).ok()?;
    Some(utc.timestamp())
}

/// The parser's reason without its drawing of the expression.
fn reason_of(error: &cronexpr::Error) -> String {
    let text = error.to_string();
    text.rsplit("^ ").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(expression: &str, zone: &str, after: &str) -> String {
        let schedule = CronSchedule::parse(expression, zone).expect("a valid schedule");
        let after: Timestamp = after.parse().expect("a valid time");
        let due = schedule.next_after(after).expect("time does not end yet");
        due.to_string()
    }

    #[test]
    fn schedules_are_read_in_their_zone() {
        for (expression, zone, after, due) in [
            (
                "0 9 * * *",
                "UTC",
                "2026-03-01T09:00:00Z",
                "2026-03-02T09:00:00Z",
            ),
            (
                "0 9 * * *",
                "Europe/Berlin",
                "2026-03-01T00:00:00Z",
                "2026-03-01T08:00:00Z",
            ),
            (
                "0 9 * * MON",
                "UTC",
                "2026-03-01T09:00:00Z",
                "2026-03-02T09:00:00Z",
            ),
            (
                "0 0 29 2 *",
                "UTC",
                "2026-03-01T00:00:00Z",
                "2028-02-29T00:00:00Z",
            ),
        ] {
            assert_eq!(next(expression, zone, after), due, "{expression} {zone}");
        }
    }

    #[test]
    fn a_skipped_time_comes_due_after_the_jump() {
        // In Berlin 02:00 became 03:00 on 29 March 2026.
        let due = next("30 2 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z");
        assert_eq!(due, "2026-03-29T01:30:00Z");
        let due = next("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z");
        assert_eq!(due, "2026-03-29T01:00:00Z");
    }

    #[test]
    fn a_repeated_time_comes_due_once_unless_every_hour_does() {
        // In Berlin 03:00 became 02:00 on 25 October 2026, at 01:00 UTC.
        let zone = "Europe/Berlin";
        assert_eq!(
            next("30 2 * * *", zone, "2026-10-25T00:00:00Z"),
            "2026-10-25T00:30:00Z"
        );
        assert_eq!(
            next("30 2 * * *", zone, "2026-10-25T00:30:00Z"),
            "2026-10-26T01:30:00Z"
        );
        assert_eq!(
            next("30 * * * *", zone, "2026-10-25T00:30:00Z"),
            "2026-10-25T01:30:00Z"
        );
        assert_eq!(
            next("*/30 * * * *", zone, "2026-10-25T00:30:00Z"),
            "2026-10-25T01:00:00Z"
        );
    }

    #[test]
    fn what_cannot_be_read_or_come_due_is_refused() {
        let error = |expression: &str, zone: &str| match CronSchedule::parse(expression, zone) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(error("0 0 31 2 *", "UTC"), "the expression never comes due");
        assert_eq!(error("0 0 * * *", "Mars"), "\"Mars\" is not a time zone");
        for wrong in [
            "* * * *",
            "* * * * * UTC",
            "@daily",
            "61 * * * *",
            "0 0 * * H",
            "0 0 5-1 * *",
            "",
        ] {
            assert_ne!(error(wrong, "UTC"), "accepted", "{wrong}");
        }
    }
}
