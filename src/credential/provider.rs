//! Who serves models, and how they are told who asks.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

use super::secret::Secret;
use crate::model::spec::AdapterType;

/// A model provider.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
    IntoStaticStr,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Provider {
    /// Claude models.
    Anthropic,
    /// GPT models, and whatever speaks their protocol.
    Openai,
    /// Gemini models.
    Google,
}

/// How a credential is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Scheme {
    /// In the provider's own key header.
    ApiKey,
    /// `Authorization: Bearer`.
    Bearer,
}

impl Provider {
    /// Whose models runs on an Adapter of that type ask; none where we know of no model.
    pub const fn of_adapter(adapter: AdapterType) -> Option<Self> {
        match adapter {
            AdapterType::Command => None,
            AdapterType::ClaudeCode => Some(Self::Anthropic),
        }
    }

    /// The variables that hold a credential, the first that is set wins.
    pub const fn variables(self) -> &'static [(&'static str, Scheme)] {
        match self {
            Self::Anthropic => &[
                ("ANTHROPIC_AUTH_TOKEN", Scheme::Bearer),
                ("ANTHROPIC_API_KEY", Scheme::ApiKey),
                ("CLAUDE_CODE_OAUTH_TOKEN", Scheme::Bearer),
            ],
            Self::Openai => &[("OPENAI_API_KEY", Scheme::Bearer)],
            Self::Google => &[
                ("GEMINI_API_KEY", Scheme::ApiKey),
                ("GOOGLE_API_KEY", Scheme::ApiKey),
            ],
        }
    }

    /// The variable that says where it is.
    pub const fn base_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Openai => "OPENAI_BASE_URL",
            Self::Google => "GOOGLE_GEMINI_BASE_URL",
        }
    }

    /// Where it is unless that variable says otherwise.
    pub const fn base_default(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::Openai => "https://api.openai.com/v1",
            Self::Google => "https://generativelanguage.googleapis.com",
        }
    }

    /// How a credential is presented, as far as its text says it.
    pub fn scheme_of(self, secret: &Secret) -> Scheme {
        match self {
            // What `claude setup-token` gives.
            Self::Anthropic if secret.expose().starts_with("sk-ant-oat") => Scheme::Bearer,
            Self::Anthropic | Self::Google => Scheme::ApiKey,
            Self::Openai => Scheme::Bearer,
        }
    }

    /// How what one of its variables holds is presented; none of a variable that isn't its.
    pub fn scheme_of_variable(self, name: &str) -> Option<Scheme> {
        let mut variables = self.variables().iter();
        let found = variables.find(|(variable, _)| *variable == name);
        found.map(|(_, scheme)| *scheme)
    }
}
