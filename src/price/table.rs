//! Which price holds, and what comes of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use strum::{Display, EnumIter};

use super::builtin;
use crate::model::price::PriceOverride;
use crate::model::run::Usage;
use crate::model::units::Money;

/// What some tokens cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// So much.
    Priced {
        /// Micro-dollars; at least one for any token that has a price.
        micros: i64,
    },
    /// Nobody knows.
    Unpriced {
        /// Why not.
        reason: Unpriced,
    },
}

/// Why tokens have no price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "camelCase")]
pub enum Unpriced {
    /// No table names the model.
    UnknownModel,
    /// No table names the provider.
    UnknownProvider,
    /// The model is known, but not what tokens of a kind that was used cost.
    NoRate,
    /// The figures contradict each other or are beyond counting.
    InvalidUsage,
}

/// The prices of one adapter.
#[derive(Clone, Debug)]
pub struct PriceTable {
    overrides: BTreeMap<String, PriceOverride>,
    version: String,
}

impl PriceTable {
    /// The built-in table under these prices; the last of two for one model holds.
    pub fn embedded(overrides: &[PriceOverride]) -> Self {
        builtin::load();
        let by_model = |price: &PriceOverride| (price.model.to_lowercase(), price.clone());
        let overrides: BTreeMap<_, _> = overrides.iter().map(by_model).collect();
        let version = version(&overrides);
        Self { overrides, version }
    }

    /// What `usage` of `model` at the instant `at` costs. Tokens of the prompt cache are not among
    /// the tokens in; reasoning is among the tokens out. `provider` tells apart equal names of
    /// models; one that the table doesn't know makes the model unpriced.
    pub fn cost(&self, model: &str, provider: Option<&str>, usage: &Usage, at: Timestamp) -> Cost {
        let micros = match self.overrides.get(&model.to_lowercase()) {
            Some(price) => overridden(price, usage),
            None => builtin::dollars(model, provider, usage, at).map(micros),
        };
        match micros {
            Ok(micros) => Cost::Priced { micros },
            Err(reason) => Cost::Unpriced { reason },
        }
    }

    /// Whether tokens in and out of `model` have a price at the instant `at`.
    pub fn has_price(&self, model: &str, at: Timestamp) -> bool {
        let usage = Usage {
            input_tokens: 1,
            output_tokens: 1,
            ..Usage::default()
        };
        matches!(self.cost(model, None, &usage, at), Cost::Priced { .. })
    }

    /// Which prices these are, for the run's record: the built-in table's version and, with
    /// overrides, a digest of those.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn version(overrides: &BTreeMap<String, PriceOverride>) -> String {
    let mut version = format!("genai-prices {}", builtin::VERSION);
    if overrides.is_empty() {
        return version;
    }
    let mut digest = Sha256::new();
    for (model, price) in overrides {
        let rate = |rate: Option<Money>| rate.map_or(-1, Money::micros).to_be_bytes();
        digest.update(model.len().to_be_bytes());
        digest.update(model);
        for rate in [
            Some(price.input),
            Some(price.output),
            price.cache_read,
            price.cache_write,
        ]
        .map(rate)
        {
            digest.update(rate);
        }
    }
    version.push_str(" + overrides ");
    for byte in digest.finalize().iter().take(4) {
        write!(version, "{byte:02x}").expect("a string takes all that is written to it");
    }
    version
}

/// Exact, in integers.
fn overridden(price: &PriceOverride, usage: &Usage) -> Result<i64, Unpriced> {
    let kinds = [
        (usage.input_tokens, Some(price.input)),
        (usage.output_tokens, Some(price.output)),
        (usage.cached_read_tokens, price.cache_read),
        (usage.cached_write_tokens, price.cache_write),
    ];
    let mut sum: i128 = 0;
    for (tokens, rate) in kinds.into_iter().filter(|(tokens, _)| *tokens > 0) {
        let rate = rate.ok_or(Unpriced::NoRate)?;
        let product = i128::from(tokens) * i128::from(rate.micros());
        sum = sum.checked_add(product).ok_or(Unpriced::InvalidUsage)?;
    }
    let rounded = (sum + 500_000) / 1_000_000;
    let micros = if sum > 0 { rounded.max(1) } else { rounded };
    i64::try_from(micros).map_err(|_beyond| Unpriced::InvalidUsage)
}

/// To the nearest, but a price is never rounded to nothing.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, at more money than there is"
)]
fn micros(dollars: f64) -> i64 {
    let micros = (dollars * 1_000_000.0).round() as i64;
    if dollars > 0.0 { micros.max(1) } else { micros }
}
