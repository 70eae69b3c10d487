//! Time zones by name, from the database that is built in: what a name means does not depend on
//! the host.

use jiff::tz::TimeZone;

/// The IANA time zone `name`, such as `Europe/Berlin` or `UTC`.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    jiff::tz::TimeZoneDatabase::bundled().get(name).ok()
}

/// Names of all zones.
pub fn names() -> Vec<String> {
    jiff::tz::TimeZoneDatabase::bundled()
        .available()
        .map(|name| name.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_those_of_the_database_and_no_others() {
        for name in ["UTC", "Europe/Berlin", "America/New_York"] {
            assert!(time_zone(name).is_some(), "{name}");
            assert!(names().iter().any(|it| it == name), "{name}");
        }
        for name in ["Europe/Berln", "CEST+2", "", "../etc/passwd", "+02:00"] {
            assert!(time_zone(name).is_none(), "{name}");
        }
    }
}
