//! The built-in table; the only file that names its crate.

use genai_prices::{Calculator, ErrorKind, PriceRequest, Usage as Reported, UsageKey};
use jiff::Timestamp;

use super::table::Unpriced;
use crate::model::run::Usage;

/// The crate's version, which is the data's. A test holds it against the lock file.
pub(super) const VERSION: &str = "0.2.1";

/// Tokens that the table's arithmetic takes exactly.
const TOKENS_MAX: u64 = 1 << 52;

/// Decodes the table if nobody has yet.
pub(super) fn load() {
    let _calculator = Calculator::bundled();
}

/// The price in dollars.
pub(super) fn dollars(
    model: &str,
    provider: Option<&str>,
    usage: &Usage,
    at: Timestamp,
) -> Result<f64, Unpriced> {
    // The table counts the tokens of the prompt cache as tokens in; `Usage` counts them apart.
    let (read, write) = (usage.cached_read_tokens, usage.cached_write_tokens);
    let input = usage
        .input_tokens
        .saturating_add(read)
        .saturating_add(write);
    let reported = Reported::from([
        (UsageKey::INPUT_TOKENS, count(input)?),
        (UsageKey::CACHE_READ_TOKENS, count(read)?),
        (UsageKey::CACHE_WRITE_TOKENS, count(write)?),
        (UsageKey::OUTPUT_TOKENS, count(usage.output_tokens)?),
    ]);
    let mut request = PriceRequest::new(model, &reported).with_timestamp(at);
    if let Some(provider) = provider {
        request = request.with_provider_id(provider);
    }
    let price = Calculator::bundled()
        .calculate(&request)
        .map_err(|error| match error.kind() {
            ErrorKind::ProviderNotFound if provider.is_some() => Unpriced::UnknownProvider,
            ErrorKind::ProviderNotFound | ErrorKind::ModelNotFound => Unpriced::UnknownModel,
            // The kinds are open-ended: the others blame the figures or the data.
            _ => Unpriced::InvalidUsage,
        })?;
    // A side without a price counts as zero there.
    let is_free = |tokens: u64, price: f64| tokens > 0 && price <= 0.0;
    if is_free(input, price.input_price) || is_free(usage.output_tokens, price.output_price) {
        return Err(Unpriced::NoRate);
    }
    Ok(price.total_price)
}

fn count(tokens: u64) -> Result<f64, Unpriced> {
    if tokens > TOKENS_MAX {
        return Err(Unpriced::InvalidUsage);
    }
    let (high, low) = (tokens >> 32, tokens & u64::from(u32::MAX));
    let part = |half: u64| u32::try_from(half).map_or(0.0, f64::from);
    Ok(part(high) * 4_294_967_296.0 + part(low))
}
