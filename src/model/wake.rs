//! Wakes: why an agent is woken, durable before it is acknowledged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

use super::id::{ConversationId, MessageId, RunId, Uid, WakeId};
use super::kind::Revision;
use super::spec::{GitIdentity, Priority};

/// Why an agent is woken: exactly six reasons (fixed).
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
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum WakeReason {
    /// A message was posted in a space that the agent serves.
    UserMessage,
    /// A ticket was assigned to it.
    Assignment,
    /// A pipeline step dispatched it.
    PipelineStep,
    /// A child ticket finished.
    ChildCompleted,
    /// A schedule or a Dispatch follows up.
    FollowUp,
    /// Its previous run was lost, or its model's provider failed it.
    Recovery,
}

/// What becomes of a wake while a run of its conversation is live.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
    IntoStaticStr,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Delivery {
    /// The run is told, if it is the same agent's and takes messages; else it waits.
    Steer,
    /// It waits for its own run.
    #[default]
    FollowUp,
    /// The run is ended, and the wake has the next one.
    Interrupt,
}

impl Delivery {
    /// Of a message that does not say.
    pub const fn of_messages() -> Self {
        Self::Steer
    }
}

/// How far a wake has come.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum WakeState {
    /// It waits.
    Pending,
    /// A run serves it.
    Claimed,
    /// Its run closed.
    Finished,
    /// Its agent, space or ticket went away first, or an operator dropped it.
    Cancelled,
}

/// Why a wake is not served before some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Not before this.
    pub until: Timestamp,
    /// Why, in words.
    pub because: String,
}

/// One wake, with everything that its run is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Derived from the cause, or minted for a message.
    pub id: WakeId,
    /// Why.
    pub reason: WakeReason,
    /// The workspace's uid.
    pub workspace: Uid,
    /// Who is woken.
    pub agent: Uid,
    /// Where.
    pub space: Uid,
    /// In which thread.
    pub conversation: ConversationId,
    /// The ticket that it is about.
    pub ticket: Option<Uid>,
    /// The message that caused it.
    pub message: Option<MessageId>,
    /// The Dispatch or Schedule that caused it.
    pub cause: Option<Uid>,
    /// The run that it continues (recovery).
    pub previous_run: Option<RunId>,
    /// Ordinal in the retry lineage, from 0.
    pub attempt: u32,
    /// What the previous attempt had done (recovery).
    pub continuation: Option<String>,
    /// How long it waits at least (recovery).
    pub delay: Option<Delay>,
    /// The text that the agent is told, after the layers.
    pub prompt: String,
    /// The person who asked.
    pub requested_by: Option<String>,
    /// Variables of the run's environment.
    pub env: BTreeMap<String, String>,
    /// Author and committer, set by the caller.
    pub git_identity: Option<GitIdentity>,
    /// What becomes of it while a run of its conversation is live.
    pub delivery: Delivery,
    /// Its place in the queue.
    pub priority: Priority,
    /// The revision that it was planned against.
    pub revision: Option<Revision>,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// A wake in the queue. Order: priority, then sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedWake {
    /// Rises with every wake recorded.
    pub sequence: i64,
    /// The wake.
    pub wake: Wake,
}
