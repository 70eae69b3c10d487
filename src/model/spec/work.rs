//! What makes agents work: Ticket, Dispatch, Schedule.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::GitIdentity;
use crate::model::units::Name;

/// A piece of work. Assigning it wakes the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TicketSpec {
    /// What is wanted, in a line.
    #[schemars(length(min = 1, max = 500))]
    pub title: String,
    /// What is wanted, at length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its place in the queue.
    #[serde(default)]
    pub priority: Priority,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The agent that does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<Name>,
    /// The person who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The space it is done in.
    pub space: Name,
    /// Whether assignment wakes the agent.
    #[serde(default = "wake_on_assign_default")]
    pub wake_on_assign: bool,
}

/// A place in the queue. Ordered from first to last.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Priority {
    /// Before everything.
    Urgent,
    /// Early.
    High,
    /// In turn.
    Medium,
    /// Late.
    Low,
    /// After everything that says more.
    #[default]
    None,
}

/// One run. It runs once for each generation, never again on resync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DispatchSpec {
    /// Who runs.
    pub agent: Name,
    /// Where.
    pub space: Name,
    /// A side conversation of the space; its main one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Name>,
    /// The ticket that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Name>,
    /// What the agent is told.
    #[schemars(length(min = 1, max = 100_000))]
    pub prompt: String,
    /// The person who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Variables of the run's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Author and committer of its commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_identity: Option<GitIdentity>,
}

/// Recurring follow-up wakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Who is woken.
    pub agent: Name,
    /// Where.
    pub space: Name,
    /// What the agent is told.
    #[schemars(length(min = 1, max = 100_000))]
    pub prompt: String,
    /// When: five cron fields (minute, hour, day of month, month, day of week).
    #[schemars(length(min = 9, max = 200))]
    pub cron: String,
    /// IANA time zone of `cron`; the Fleet's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
    /// What happens when the last one still waits or runs.
    #[serde(default)]
    pub overlap: Overlap,
}

/// What a schedule does when its last wake is not over.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Overlap {
    /// Skip this time.
    #[default]
    Skip,
    /// Keep one waiting.
    QueueOne,
}

const fn wake_on_assign_default() -> bool {
    true
}
