//! What an operator says tokens of a model cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Money;

/// Prices of one model, each of a million tokens. They win over the built-in table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PriceOverride {
    /// The model's name, as the provider reports it.
    #[schemars(length(min = 1, max = 256))]
    pub model: String,
    /// Tokens in, those of the prompt cache apart.
    pub input: Money,
    /// Tokens out, reasoning included.
    pub output: Money,
    /// Tokens read from the prompt cache. Without it, a call that reads the cache is unpriced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Money>,
    /// Tokens written to the prompt cache. Without it, a call that writes it is unpriced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Money>,
}
