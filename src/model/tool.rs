//! What runs can call back into the daemon for, and the deliverable that a mode asks of them.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::id::{ConversationId, RunId, Uid};

/// The verbs that tools are called by (fixed): one name in prompts, protocols and records.
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
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verb {
    /// Reads older messages of the run's conversation.
    GetMessages,
    /// Keeps a fact for later runs of the workspace.
    Remember,
    /// Finds facts that were kept.
    Recall,
    /// Hands in the plan that plan mode asks for.
    SubmitPlan,
}

impl Verb {
    /// Whether a call leaves something behind.
    pub const fn mutates(self) -> bool {
        match self {
            Self::GetMessages | Self::Recall => false,
            Self::Remember | Self::SubmitPlan => true,
        }
    }
}

/// What the server of the daemon's tools is called, in configurations and in the names that agents
/// give its tools.
pub const TOOL_SERVER: &str = "homeostat";

/// A tool as a run has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// What it is called.
    pub verb: Verb,
    /// What it does, for the one who calls it: whole sentences.
    pub description: &'static str,
    /// JSON Schema of its arguments: an object.
    pub schema: serde_json::Map<String, serde_json::Value>,
}

/// The deliverable that a run owes, and whether it was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// The verb that hands it in. One call that succeeds is enough.
    pub verb: Verb,
    /// Whether such a call was accepted.
    pub is_met: bool,
}

/// On whose behalf a tool is called. It comes from the run's own credential, never from arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The run.
    pub run: RunId,
    /// Its agent.
    pub agent: Uid,
    /// Its workspace: what it remembers is kept there, and nothing else is read.
    pub workspace: Uid,
    /// Its conversation: no other is read.
    pub conversation: ConversationId,
}

/// One thing that a workspace's agents have learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFact {
    /// What it is about; one current fact a key.
    pub key: String,
    /// What is so.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn a_verb_is_spelled_in_one_way() {
        let names: Vec<_> = Verb::iter().map(|verb| verb.to_string()).collect();
        assert_eq!(names, ["get_messages", "remember", "recall", "submit_plan"]);
        for verb in Verb::iter() {
            assert_eq!(verb.to_string().parse(), Ok(verb));
            assert_eq!(serde_json::json!(verb), verb.to_string());
        }
    }
}
