//! Plain scalars: the core schema of YAML 1.2 (§10.3.2), with one narrowing: a whole number that
//! 64 bits do not hold is a float, as in JSON.

use std::borrow::Cow;

use super::tree::Value;

/// What a scalar without quotes and without a tag means.
pub(super) fn resolve(text: Cow<'_, str>) -> Value<'_> {
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(&text).unwrap_or(Value::String(text)),
    }
}

/// Whether programs that read YAML 1.1 take this scalar for a truth value.
pub fn is_ambiguous(text: &str) -> bool {
    const WORDS: [&str; 4] = ["yes", "no", "on", "off"];
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn number<'a>(text: &str) -> Option<Value<'a>> {
    // Numbers begin with one of these; most text does not.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    if let Some(value) = integer(text) {
        let held = i64::try_from(value).is_ok() || u64::try_from(value).is_ok();
        return Some(if held {
            Value::Integer(value)
        } else {
            float(text).unwrap_or(Value::Float(f64::INFINITY))
        });
    }
    float(text)
}

fn integer(text: &str) -> Option<i128> {
    let radix = |digits: &str, radix| {
        let legal = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        legal.then(|| i128::from_str_radix(digits, radix).unwrap_or(i128::MAX))
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    match text.strip_prefix('-') {
        Some(digits) => radix(digits, 10).map(|value| -value),
        None => radix(text.strip_prefix('+').unwrap_or(text), 10),
    }
}

fn float<'a>(text: &str) -> Option<Value<'a>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let value = match unsigned {
        ".inf" | ".Inf" | ".INF" if text.starts_with('-') => f64::NEG_INFINITY,
        ".inf" | ".Inf" | ".INF" => f64::INFINITY,
        ".nan" | ".NaN" | ".NAN" if unsigned == text => f64::NAN,
        _ if is_decimal(unsigned) => text.parse().ok()?,
        _ => return None,
    };
    Some(Value::Float(value))
}

/// Digits with a point somewhere and perhaps an exponent.
fn is_decimal(text: &str) -> bool {
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|it| it.strip_prefix(['+', '-']).unwrap_or(it));
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|it| !it.is_empty() && digits(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_the_core_schema_says() {
        let show = |text| match resolve(Cow::Borrowed(text)) {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("bool {value}"),
            Value::Integer(value) => format!("int {value}"),
            Value::Float(value) => format!("float {value}"),
            Value::String(text) => format!("text {text}"),
            Value::Sequence(_) | Value::Mapping(_) => unreachable!("scalars"),
        };
        for (text, meaning) in [
            ("", "null"),
            ("~", "null"),
            ("true", "bool true"),
            ("no", "text no"),
            ("on", "text on"),
            ("3", "int 3"),
            ("-0", "int 0"),
            ("0777", "int 777"),
            ("0o17", "int 15"),
            ("0xfF", "int 255"),
            ("1_000", "text 1_000"),
            ("1:30", "text 1:30"),
            ("18446744073709551615", "int 18446744073709551615"),
            ("18446744073709551616", "float 18446744073709552000"),
            ("1.5", "float 1.5"),
            ("1.", "float 1"),
            (".5", "float 0.5"),
            ("1e3", "float 1000"),
            ("1e", "text 1e"),
            (".", "text ."),
            ("-.inf", "float -inf"),
            ("+.nan", "text +.nan"),
            ("1.2.3", "text 1.2.3"),
            ("--1", "text --1"),
            ("2026-01-01", "text 2026-01-01"),
        ] {
            assert_eq!(show(text), meaning, "{text}");
        }
    }
}
