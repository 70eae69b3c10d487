//! Quantities with their units in the type. Parsing is validation; the JSON Schema of each type
//! accepts exactly what its decoder accepts (a property test holds the two together).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A quantity that a text does not spell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

impl UnitError {
    fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}

/// Money in micro-dollars (10⁻⁶ USD), so that a run of a fraction of a cent is not free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(i64);

/// Micro-dollars in a cent.
const MICROS_PER_CENT: i64 = 10_000;

impl Money {
    /// Nothing; as a budget, "unlimited".
    pub const ZERO: Self = Self(0);
    /// Pattern of the text form; nine digits of dollars keep every sum inside an `i64`.
    pub const PATTERN: &str = r"^\$[0-9]{1,9}(\.[0-9]{1,6})?$";
    /// The largest amount that a manifest may name, in cents.
    pub const CENTS_MAX: i64 = 99_999_999_999;

    /// From micro-dollars.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// In micro-dollars.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// From whole cents.
    pub const fn from_cents(cents: i64) -> Self {
        Self(cents.saturating_mul(MICROS_PER_CENT))
    }

    /// The sum, held at the largest amount rather than wrapped.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This share of the amount, rounded down.
    #[must_use]
    pub fn percent(self, percent: u8) -> Self {
        let share = i128::from(self.0) * i128::from(percent) / 100;
        Self(i64::try_from(share).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, micros) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let (dollars, rest) = (micros / 1_000_000, micros % 1_000_000);
        if rest % 10_000 == 0 {
            return write!(f, "{sign}${dollars}.{:02}", rest / 10_000);
        }
        let digits = format!("{rest:06}");
        write!(f, "{sign}${dollars}.{}", digits.trim_end_matches('0'))
    }
}

impl FromStr for Money {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::new(text, "an amount of money such as \"$5.00\"");
        let rest = text.strip_prefix('$').ok_or_else(error)?;
        let (dollars, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(dollars) || !digits(fraction) || dollars.len() > 9 || fraction.len() > 6 {
            return Err(error());
        }
        let dollars: i64 = dollars.parse().map_err(|_ignored| error())?;
        let fraction: i64 = format!("{fraction:0<6}")
            .parse()
            .map_err(|_ignored| error())?;
        Ok(Self(dollars * 1_000_000 + fraction))
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Money;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"$5.00\" or an integer of cents")
            }
            fn visit_i64<E: de::Error>(self, cents: i64) -> Result<Money, E> {
                match cents {
                    0..=Money::CENTS_MAX => Ok(Money::from_cents(cents)),
                    _ => Err(E::custom("money is not negative and below $1,000,000,000")),
                }
            }
            fn visit_u64<E: de::Error>(self, cents: u64) -> Result<Money, E> {
                self.visit_i64(i64::try_from(cents).unwrap_or(i64::MAX))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Money, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }
    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Money: \"$5.00\", or an integer of cents.",
            "type": ["string", "integer"],
            "pattern": Self::PATTERN,
            "minimum": 0,
            "maximum": Self::CENTS_MAX,
        })
    }
}

/// Tokens of models, counted: in, out, and those read from or written to a prompt cache.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tokens(#[serde(deserialize_with = "tokens_in_range")] i64);

impl Tokens {
    /// None; as a budget, "unlimited".
    pub const ZERO: Self = Self(0);
    /// The most that a manifest may name.
    pub const MAX: i64 = 1_000_000_000_000_000;

    /// So many.
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The sum, held at the largest count rather than wrapped.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// How many.
    pub const fn count(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let digits = self.0.unsigned_abs().to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        f.write_str(if self.0 == 1 { " token" } else { " tokens" })
    }
}

/// As a manifest may spell it.
fn tokens_in_range<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let count = i64::deserialize(deserializer)?;
    match count {
        0..=Tokens::MAX => Ok(count),
        _ => Err(de::Error::custom("tokens are between 0 and 10^15")),
    }
}

impl JsonSchema for Tokens {
    fn schema_name() -> Cow<'static, str> {
        "Tokens".into()
    }
    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Tokens: a whole number.",
            "type": "integer",
            "minimum": 0,
            "maximum": Self::MAX,
        })
    }
}

/// A length of time, spelled `90s`, `15m`, `2h` or `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    seconds: u64,
}

impl Span {
    /// Pattern of the text form; six digits of days stay far from every clock's end.
    pub const PATTERN: &str = r"^[0-9]{1,6}(s|m|h|d)$";

    /// From seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self { seconds }
    }

    /// From minutes.
    pub const fn from_mins(minutes: u64) -> Self {
        Self {
            seconds: minutes * 60,
        }
    }

    /// As the standard library's duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// In whole seconds.
    pub const fn secs(self) -> u64 {
        self.seconds
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            0 => f.write_str("0s"),
            s if s % 86_400 == 0 => write!(f, "{}d", s / 86_400),
            s if s % 3_600 == 0 => write!(f, "{}h", s / 3_600),
            s if s % 60 == 0 => write!(f, "{}m", s / 60),
            s => write!(f, "{s}s"),
        }
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || {
            UnitError::new(
                text,
                "a duration such as \"90s\", \"15m\", \"2h\" or \"1d\"",
            )
        };
        let unit = match text.as_bytes().last() {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3_600,
            Some(b'd') => 86_400,
            _ => return Err(error()),
        };
        let count = &text[..text.len() - 1];
        if count.is_empty() || count.len() > 6 || !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        let count: u64 = count.parse().map_err(|_ignored| error())?;
        Ok(Self {
            seconds: count * unit,
        })
    }
}

/// How long an agent may say nothing: 1 to 240 minutes (fixed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SilenceTimeout(Span);

impl SilenceTimeout {
    /// Pattern of the text form: 60–14400 seconds, 1–240 minutes, 1–4 hours.
    pub const PATTERN: &str = r"^(([6-9][0-9]|[1-9][0-9]{2,3}|1[0-3][0-9]{3}|14[0-3][0-9]{2}|14400)s|([1-9]|[1-9][0-9]|1[0-9]{2}|2[0-3][0-9]|240)m|[1-4]h)$";
    /// What applies when the agent names none.
    pub const DEFAULT: Self = Self(Span::from_mins(15));

    /// As a duration.
    pub const fn duration(self) -> Duration {
        self.0.duration()
    }
}

impl fmt::Display for SilenceTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SilenceTimeout {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::new(text, "a silence timeout between \"1m\" and \"240m\"");
        let span: Span = text.parse().map_err(|_ignored| error())?;
        let canonical = !text.starts_with('0') && !text.ends_with('d');
        if canonical && (60..=14_400).contains(&span.secs()) {
            Ok(Self(span))
        } else {
            Err(error())
        }
    }
}

/// A DNS-1123-like label: lower-case letters, digits and inner dashes, at most 63.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Pattern of the text form.
    pub const PATTERN: &str = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Name {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let legal = (1..=63).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if legal {
            Ok(Self(text.to_owned()))
        } else {
            Err(UnitError::new(
                text,
                "a name (lower-case letters, digits, inner dashes, at most 63)",
            ))
        }
    }
}

/// A git branch name that is safe in a ref path and on a command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName(String);

impl BranchName {
    /// Pattern of the text form: path components of word characters, dots inside, plus and dash.
    pub const PATTERN: &str = r"^[A-Za-z0-9_]([A-Za-z0-9_+-]|\.[A-Za-z0-9_+-])*(/[A-Za-z0-9_]([A-Za-z0-9_+-]|\.[A-Za-z0-9_+-])*)*$";

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for BranchName {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let component = |part: &str| {
            let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let legal = |b: u8| word(b) || matches!(b, b'+' | b'-' | b'.');
            part.bytes().next().is_some_and(word)
                && part.bytes().all(legal)
                && !part.contains("..")
                && !part.ends_with('.')
        };
        let is_legal =
            text.split('/').all(component) && !text.split('/').any(|part| part.ends_with(".lock"));
        if is_legal {
            Ok(Self(text.to_owned()))
        } else {
            Err(UnitError::new(text, "a git branch name"))
        }
    }
}

/// Prefix of the variables that homeostat itself sets for a run.
pub const OWN_VARIABLES: &str = "HOMEOSTAT_";

/// Whether `name` is the name of an environment variable: letters, digits and `_`, not beginning
/// with a digit.
pub fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

macro_rules! text_wire {
    ($name:ident, $description:literal $(, $keyword:ident: $value:tt)?) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $description,
                    "type": "string",
                    "pattern": Self::PATTERN,
                    $(stringify!($keyword): $value,)?
                })
            }
        }
    };
}

text_wire!(Span, "A duration: `90s`, `15m`, `2h` or `1d`.");
text_wire!(SilenceTimeout, "A duration between `1m` and `240m`.");
text_wire!(
    Name,
    "A name: lower-case letters, digits and inner dashes, at most 63."
);
text_wire!(BranchName, "A git branch name.", not: { "pattern": r"\.lock(/|$)" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_reads_dollars_and_cents_and_prints_what_it_read() {
        for (text, micros) in [
            ("$5.00", 5_000_000),
            ("$0.000001", 1),
            ("$12", 12_000_000),
            ("$1.5", 1_500_000),
        ] {
            assert_eq!(
                text.parse::<Money>().map(Money::micros),
                Ok(micros),
                "{text}"
            );
        }
        assert_eq!(Money::from_micros(1_500_000).to_string(), "$1.50");
        assert_eq!(Money::from_micros(1).to_string(), "$0.000001");
        assert_eq!(Money::from_cents(7), Money::from_micros(70_000));
        for wrong in ["5", "$", "$-1", "$1.0000001", "$1.", "$1e3", "$9999999999"] {
            assert!(wrong.parse::<Money>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_print_in_threes_and_stay_in_range() {
        for (count, shown) in [
            (0, "0 tokens"),
            (1, "1 token"),
            (999, "999 tokens"),
            (1_000, "1,000 tokens"),
            (-1_234_567, "-1,234,567 tokens"),
        ] {
            assert_eq!(Tokens::new(count).to_string(), shown);
        }
        let read = |text: &str| serde_json::from_str::<Tokens>(text).ok();
        assert_eq!(read("1000000000000000"), Some(Tokens::new(Tokens::MAX)));
        for wrong in ["-1", "1000000000000001", "1.5", "\"1\""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_print_in_their_largest_whole_unit() {
        for text in ["90s", "15m", "2h", "1d"] {
            assert_eq!(
                text.parse::<Span>().map(|span| span.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!(
            "120m".parse::<Span>().map(|span| span.to_string()),
            Ok("2h".to_owned())
        );
        for wrong in ["", "m", "1", "1w", "-1m", "1.5h", "1234567s"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn silence_is_between_one_and_240_minutes() {
        for right in ["60s", "1m", "240m", "4h", "14400s"] {
            assert!(right.parse::<SilenceTimeout>().is_ok(), "{right}");
        }
        for wrong in ["59s", "0m", "241m", "5h", "1d", "01m"] {
            assert!(wrong.parse::<SilenceTimeout>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn branch_names_cannot_be_options_or_escape_a_ref_path() {
        for right in ["main", "homeostat/space-1", "a.b/c_d+e"] {
            assert!(right.parse::<BranchName>().is_ok(), "{right}");
        }
        for wrong in [
            "", "-x", "a..b", "/a", "a/", "a//b", ".a", "a.", "a b", "a~1", "x.lock", "@{u}",
        ] {
            assert!(wrong.parse::<BranchName>().is_err(), "{wrong}");
        }
    }
}
