use jiff::Timestamp;

use super::{Cost, PriceTable, Unpriced, builtin};
use crate::model::price::PriceOverride;
use crate::model::run::Usage;
use crate::model::units::Money;

/// 2,400 in, 1,600 read from the cache, 600 written to it, 80 out.
const TWO_TURNS: Usage = usage(2_400, 1_600, 600, 80);

const fn usage(input: u64, read: u64, write: u64, output: u64) -> Usage {
    Usage {
        input_tokens: input,
        output_tokens: output,
        thought_tokens: 0,
        cached_read_tokens: read,
        cached_write_tokens: write,
        cost_micros: None,
    }
}

fn at() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn price(model: &str, input: &str, output: &str) -> PriceOverride {
    PriceOverride {
        model: model.to_owned(),
        input: input.parse().unwrap(),
        output: output.parse().unwrap(),
        cache_read: None,
        cache_write: None,
    }
}

fn cost(overrides: &[PriceOverride], model: &str, provider: Option<&str>, usage: &Usage) -> Cost {
    PriceTable::embedded(overrides).cost(model, provider, usage, at())
}

#[test]
fn the_built_in_table_prices_to_the_micro_dollar() {
    let expected = Cost::Priced { micros: 11_130 };
    for provider in [None, Some("anthropic")] {
        assert_eq!(
            cost(&[], "claude-sonnet-4-5", provider, &TWO_TURNS),
            expected
        );
    }
    let dated = cost(&[], "claude-sonnet-4-5-20250929", None, &TWO_TURNS);
    assert_eq!(dated, expected);
    let million = usage(1_000_000, 0, 0, 0);
    assert_eq!(
        cost(&[], "claude-sonnet-4-5", None, &usage(100_000, 0, 0, 0)),
        Cost::Priced { micros: 300_000 }
    );
    assert!(matches!(
        cost(&[], "gpt-5", Some("openai"), &million),
        Cost::Priced { micros: 1.. }
    ));
}

#[test]
fn what_nobody_knows_is_unpriced_and_not_free() {
    let huge = usage(u64::MAX, u64::MAX, 0, 0);
    let cases = [
        ("no-such-model", None, TWO_TURNS, Unpriced::UnknownModel),
        (
            "no-such-model",
            Some("anthropic"),
            TWO_TURNS,
            Unpriced::UnknownModel,
        ),
        ("", None, TWO_TURNS, Unpriced::UnknownModel),
        (
            "claude-sonnet-4-5",
            Some("no-such-provider"),
            TWO_TURNS,
            Unpriced::UnknownProvider,
        ),
        ("claude-sonnet-4-5", None, huge, Unpriced::InvalidUsage),
    ];
    for (model, provider, usage, reason) in cases {
        let found = cost(&[], model, provider, &usage);
        assert_eq!(found, Cost::Unpriced { reason }, "{model} {provider:?}");
    }
}

#[test]
fn the_smallest_cost_is_one_micro_dollar() {
    let one = usage(1, 0, 0, 0);
    let cheap = [price("m", "$0.000001", "$0.000001")];
    assert_eq!(cost(&cheap, "m", None, &one), Cost::Priced { micros: 1 });
    assert_eq!(
        cost(&cheap, "m", None, &usage(0, 0, 0, 0)),
        Cost::Priced { micros: 0 }
    );
}

#[test]
fn an_override_wins_and_is_exact() {
    let full = PriceOverride {
        cache_read: Some("$1".parse().unwrap()),
        cache_write: Some("$2".parse().unwrap()),
        ..price("Claude-Sonnet-4-5", "$10", "$100")
    };
    let expected = 2_400 * 10 + 1_600 + 600 * 2 + 80 * 100;
    for provider in [None, Some("house")] {
        assert_eq!(
            cost(
                std::slice::from_ref(&full),
                "claude-sonnet-4-5",
                provider,
                &TWO_TURNS
            ),
            Cost::Priced { micros: expected }
        );
    }
    let free = [price("house", "$0", "$0")];
    assert_eq!(
        cost(&free, "house", None, &usage(5, 0, 0, 5)),
        Cost::Priced { micros: 0 }
    );
}

#[test]
fn an_override_without_a_rate_leaves_that_kind_unpriced() {
    let bare = [price("m", "$1", "$2")];
    assert_eq!(
        cost(&bare, "m", None, &usage(1_000_000, 0, 0, 1)),
        Cost::Priced { micros: 1_000_002 }
    );
    for usage in [usage(1, 1, 0, 1), usage(1, 0, 1, 1)] {
        let reason = Unpriced::NoRate;
        assert_eq!(cost(&bare, "m", None, &usage), Cost::Unpriced { reason });
    }
}

#[test]
fn prices_have_dates() {
    // The table says that this model became cheaper in June 2025.
    let on = |day: &str| {
        let at: Timestamp = format!("{day}T00:00:00Z").parse().unwrap();
        PriceTable::embedded(&[]).cost("o3", Some("openai"), &usage(1_000_000, 0, 0, 0), at)
    };
    assert_eq!(on("2025-05-01"), Cost::Priced { micros: 10_000_000 });
    assert_eq!(on("2025-07-01"), Cost::Priced { micros: 2_000_000 });
}

#[test]
fn the_version_names_the_table_and_the_overrides() {
    let built_in = PriceTable::embedded(&[]);
    assert_eq!(
        built_in.version(),
        format!("genai-prices {}", builtin::VERSION)
    );
    let one = PriceTable::embedded(&[price("m", "$1", "$2")]);
    let other = PriceTable::embedded(&[price("m", "$1", "$2.01")]);
    let again = PriceTable::embedded(&[price("m", "$9", "$9"), price("M", "$1", "$2")]);
    assert!(
        one.version()
            .starts_with(&format!("{} + overrides ", built_in.version()))
    );
    assert_ne!(one.version(), other.version());
    assert_eq!(one.version(), again.version());
    let lock = include_str!("../../Cargo.lock");
    let entry = format!(
        "name = \"genai-prices\"\nversion = \"{}\"\n",
        builtin::VERSION
    );
    assert!(
        lock.contains(&entry),
        "the constant is behind the lock file"
    );
}

#[test]
fn an_override_is_written_as_documented() {
    let text = r#"{"model":"m","input":"$1.00","output":"$2.00","cacheRead":"$0.10"}"#;
    let read: PriceOverride = serde_json::from_str(text).unwrap();
    let cache_read = Some(Money::from_cents(10));
    assert_eq!(
        read,
        PriceOverride {
            cache_read,
            ..price("m", "$1", "$2")
        }
    );
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(serde_json::from_str::<PriceOverride>(r#"{"model":"m","input":"$1"}"#).is_err());
}
