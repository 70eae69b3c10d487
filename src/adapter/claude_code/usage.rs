//! Usage out of sums that go on from result to result.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::note::{self, debug};
use crate::model::event::{AgentEvent, UsageReport};

/// The most models of one process that are told apart.
const MODELS_MAX: usize = 100;

/// What each model of this process had used, by the last result.
#[derive(Debug, Default)]
pub(super) struct Meter {
    seen: BTreeMap<String, Sums>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    input: u64,
    output: u64,
    cached_read: u64,
    cached_write: u64,
    /// In dollars, as the program prints it.
    cost: Option<f64>,
}

impl Meter {
    /// One event for each model of a result's `modelUsage` that has used something since the last.
    pub(super) fn read(&mut self, by_model: &Value) -> Vec<AgentEvent> {
        let models = by_model.as_object().into_iter().flatten();
        models
            .filter_map(|(model, entry)| self.window(model, entry))
            .collect()
    }

    fn window(&mut self, model: &str, entry: &Value) -> Option<AgentEvent> {
        let count = |name: &str| entry[name].as_u64().unwrap_or(0);
        let now = Sums {
            input: count("inputTokens"),
            output: count("outputTokens"),
            cached_read: count("cacheReadInputTokens"),
            cached_write: count("cacheCreationInputTokens"),
            cost: entry["costUSD"].as_f64(),
        };
        let before = self.seen.get(model).copied().unwrap_or_default();
        if now == before {
            return None;
        }
        let usage = UsageReport {
            input_tokens: now.input.saturating_sub(before.input),
            output_tokens: now.output.saturating_sub(before.output),
            thought_tokens: 0,
            cached_read_tokens: now.cached_read.saturating_sub(before.cached_read),
            cached_write_tokens: now.cached_write.saturating_sub(before.cached_write),
            cost_micros: micros(now.cost, before.cost),
        };
        if !note::is_plausible(&usage) || self.seen.len() >= MODELS_MAX {
            return Some(debug("usage beyond all measure", &entry.to_string()));
        }
        self.seen.insert(model.to_owned(), now);
        Some(AgentEvent::Usage {
            model: Some(model.to_owned()),
            usage,
        })
    }
}

/// The difference of two sums of dollars, each in whole micro-dollars, so that differences add up
/// to the last sum. None when there is no sum, or none that can be true.
fn micros(now: Option<f64>, before: Option<f64>) -> Option<u32> {
    let whole = |dollars: f64| {
        let micros = (dollars * 1e6).round();
        // Within these bounds the conversion is exact.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range is checked"
        )]
        (0.0..=f64::from(u32::MAX))
            .contains(&micros)
            .then_some(micros as u32)
    };
    whole(now?)?.checked_sub(whole(before.unwrap_or(0.0))?)
}
