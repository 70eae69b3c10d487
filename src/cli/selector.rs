//! Label selectors, as kubectl spells them.

use std::str::FromStr;

use serde_json::Value;
use thiserror::Error;

/// What labels have to be: every term holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    /// `key=value`, `key==value`
    Is(String, String),
    /// `key!=value`, which a missing label meets.
    IsNot(String, String),
    /// `key`
    Has(String),
    /// `!key`
    HasNot(String),
}

/// A selector that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no term; terms are KEY=VALUE, KEY!=VALUE, KEY and !KEY, with commas between them"
)]
pub(crate) struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let terms = text.split(',').map(|term| {
            let term = term.trim();
            let read = match term.split_once("!=") {
                Some((key, value)) => Term::IsNot(key.trim().into(), value.trim().into()),
                None => match term.split_once('=') {
                    Some((key, value)) => {
                        let value = value.strip_prefix('=').unwrap_or(value);
                        Term::Is(key.trim().into(), value.trim().into())
                    }
                    None => match term.strip_prefix('!') {
                        Some(key) => Term::HasNot(key.trim().into()),
                        None => Term::Has(term.into()),
                    },
                },
            };
            let is_key = |key: &str| !key.is_empty() && !key.contains(['=', '!', ' ']);
            match is_key(read.key()) {
                true => Ok(read),
                false => Err(SelectorError(term.to_owned())),
            }
        });
        terms.collect::<Result<_, _>>().map(Self)
    }
}

impl Term {
    fn key(&self) -> &str {
        match self {
            Self::Is(key, _) | Self::IsNot(key, _) | Self::Has(key) | Self::HasNot(key) => key,
        }
    }

    fn holds(&self, label: Option<&str>) -> bool {
        match self {
            Self::Is(_, value) => label == Some(value),
            Self::IsNot(_, value) => label != Some(value),
            Self::Has(_) => label.is_some(),
            Self::HasNot(_) => label.is_none(),
        }
    }
}

impl Selector {
    /// Whether an object with this manifest is meant; one that has none any more has no labels.
    pub(crate) fn selects(&self, manifest: Option<&Value>) -> bool {
        let labels = manifest.map(|it| &it["metadata"]["labels"]);
        let label = |key: &str| labels?.get(key)?.as_str();
        self.0.iter().all(|term| term.holds(label(term.key())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_term_has_to_hold() {
        let manifest = json!({"metadata": {"labels": {"team": "red", "tier": ""}}});
        for (selector, expected) in [
            ("team=red", true),
            ("team==red", true),
            ("team = red", true),
            ("team=blue", false),
            ("team!=blue", true),
            ("team!=red", false),
            ("other!=x", true),
            ("tier", true),
            ("tier=", true),
            ("!tier", false),
            ("!other", true),
            ("team=red,tier", true),
            ("team=red,other", false),
        ] {
            let parsed: Selector = selector.parse().unwrap();
            assert_eq!(parsed.selects(Some(&manifest)), expected, "{selector}");
        }
        assert!("!team".parse::<Selector>().unwrap().selects(None));
        for wrong in ["", ",", "=red", "team=red,", "a b", "!", "!!team"] {
            assert!(wrong.parse::<Selector>().is_err(), "{wrong}");
        }
    }
}
