//! Who serves models, and how they are told who asks.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

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
}
