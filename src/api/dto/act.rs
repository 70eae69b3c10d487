//! Requests that act, and their answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::model::id::{MessageId, OverrideId, RunId, WakeId};
use crate::model::run::Liveness;
use crate::model::spec::{GitIdentity, Priority};
use crate::model::wake::Delivery;

/// Asks for a run. Objects are named `name` or `workspace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DispatchRequest {
    /// Who runs.
    pub agent: String,
    /// Where.
    pub space: String,
    /// A side conversation of the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The ticket that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// What the agent is told.
    pub prompt: String,
    /// Its place in the queue.
    #[serde(default)]
    pub priority: Priority,
    /// Variables of the run's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Author and committer of its commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_identity: Option<GitIdentity>,
    /// The same key is answered again, not dispatched again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// A run that will be, once nothing holds it. It is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The run's id.
    pub run_id: RunId,
    /// The wake's id.
    pub wake_id: WakeId,
    /// When it was stored.
    pub accepted_at: Timestamp,
}

/// Posts a message in a space's main conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageRequest {
    /// Where: `name` or `workspace/name`.
    pub space: String,
    /// The words.
    pub text: String,
    /// What becomes of it while a run of the conversation is live.
    #[serde(default = "Delivery::of_messages")]
    pub delivery: Delivery,
    /// The same key is answered again, not posted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Takes a space over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakeoverRequest {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A space that was taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakenOver {
    /// The override's id.
    pub id: OverrideId,
    /// The space.
    pub space: String,
    /// Its runs, which are being ended.
    pub ending: Vec<RunId>,
    /// Its worktrees' paths.
    pub trees: Vec<String>,
}

/// A space that was handed back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedBack {
    /// The space.
    pub space: String,
    /// What its agents are told.
    pub message: String,
}

/// Says something to the agent of a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SteerRequest {
    /// The words.
    pub text: String,
    /// The same key is answered again, not posted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What becomes of words for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum SteerOutcome {
    /// The agent takes messages: it is told between two steps of its work. Should it end before
    /// that, the words are answered by a run of their own.
    Steering,
    /// It can't be told now: the words are answered by a run of their own.
    QueuedAsFollowUp,
}

/// Words for a run that were saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SteerAccepted {
    /// What becomes of them.
    pub outcome: SteerOutcome,
    /// The message.
    pub message_id: MessageId,
    /// By this id the run that answers can be asked for, whichever it is.
    pub run_id: RunId,
    /// When it was saved.
    pub accepted_at: Timestamp,
}

/// A message that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageAccepted {
    /// The message.
    pub message_id: MessageId,
    /// By this id the run that answers can be asked for; absent when no agent serves the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// When it was saved.
    pub accepted_at: Timestamp,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum WaitStatus {
    /// The run delivered or answered.
    Ok,
    /// The run ended in any other way.
    Error,
    /// The run goes on, or waits.
    #[default]
    Timeout,
}

/// What became of a run within the time that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waited {
    /// How the wait ended.
    pub status: WaitStatus,
    /// When the run's row was written; absent while its wake waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An act that has nothing to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Empty {}

/// Pauses an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseRequest {
    /// For how long; absent: until it is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_secs: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An operator's pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// The override.
    pub id: OverrideId,
    /// The agent's whole reference.
    pub agent: String,
    /// When it expires by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What a resume did. Pauses by git or by a budget stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// The agent's whole reference.
    pub agent: String,
    /// How many overrides were removed.
    pub removed: u32,
}
