//! The arguments of each tool: their schema, and the bounds that a call is held to.

use schemars::JsonSchema;
use serde::Deserialize;

/// Messages that one page holds at most.
pub(super) const MESSAGES_MAX: u32 = 50;
/// Characters of a fact's key.
pub(super) const KEY_CHARS_MAX: usize = 120;
/// Characters of a fact.
pub(super) const FACT_CHARS_MAX: usize = 2_000;
/// Characters of a query.
pub(super) const QUERY_CHARS_MAX: usize = 500;
/// Characters of a plan.
pub(super) const PLAN_CHARS_MAX: usize = 100_000;

/// Arguments of `get_messages`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetMessages {
    /// Only messages older than the one with this number, as an earlier page gave it.
    #[serde(default)]
    pub before: Option<i64>,
    /// How many messages at most.
    #[serde(default = "limit_default")]
    #[schemars(range(min = 1, max = MESSAGES_MAX))]
    pub limit: u32,
}

/// Arguments of `remember`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remember {
    /// What the fact is about, in a few words.
    #[schemars(length(min = 1, max = KEY_CHARS_MAX))]
    pub key: String,
    /// The fact, complete in itself.
    #[schemars(length(min = 1, max = FACT_CHARS_MAX))]
    pub text: String,
}

/// Arguments of `recall`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recall {
    /// Words that the fact is likely to contain.
    #[schemars(length(min = 1, max = QUERY_CHARS_MAX))]
    pub query: String,
}

/// Arguments of `submit_plan`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitPlan {
    /// The whole plan, in Markdown: goal, steps in order, how each is verified, open questions.
    #[schemars(length(min = 1, max = PLAN_CHARS_MAX))]
    pub plan: String,
}

const fn limit_default() -> u32 {
    20
}

/// What is wrong with arguments that have the right shape, in words for the caller.
pub(super) trait Check {
    /// The first fault.
    fn fault(&self) -> Option<String>;
}

impl Check for GetMessages {
    fn fault(&self) -> Option<String> {
        let is_legal = (1..=MESSAGES_MAX).contains(&self.limit);
        (!is_legal).then(|| format!("`limit` must be from 1 to {MESSAGES_MAX}"))
    }
}

impl Check for Remember {
    fn fault(&self) -> Option<String> {
        text_fault("key", &self.key, KEY_CHARS_MAX)
            .or_else(|| text_fault("text", &self.text, FACT_CHARS_MAX))
    }
}

impl Check for Recall {
    fn fault(&self) -> Option<String> {
        text_fault("query", &self.query, QUERY_CHARS_MAX)
    }
}

impl Check for SubmitPlan {
    fn fault(&self) -> Option<String> {
        text_fault("plan", &self.plan, PLAN_CHARS_MAX)
    }
}

/// What is wrong with a text that must say something, in at most `max` characters.
fn text_fault(name: &str, text: &str, max: usize) -> Option<String> {
    if text.trim().is_empty() {
        return Some(format!("`{name}` must not be blank"));
    }
    let chars = text.chars().count();
    (chars > max).then(|| format!("`{name}` has {chars} characters; at most {max} are taken"))
}
