//! From a run back to what made it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Run;
use crate::model::kind::{Origin, Revision};

/// Which commit, file and line made a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The run.
    pub run: Run,
    /// The revision that it was planned against.
    pub revision: TracedRevision,
    /// The objects that it is made of, cause first. One that is gone is left out.
    pub objects: Vec<TracedObject>,
}

/// A revision as a trace shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedRevision {
    /// Which.
    pub revision: Revision,
    /// Author of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// When it was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<Timestamp>,
    /// Whether it still serves.
    pub is_current: bool,
}

/// One object behind a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedObject {
    /// What it is to the run: `cause`, `ticket`, `agent`, `adapter`, `space`.
    pub role: String,
    /// `Kind/name`, or `Kind/workspace/name`.
    pub object: String,
    /// Where it is written in the revision that serves now; absent while it is being removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The revision that brought it as it is now.
    pub revision: Revision,
    /// Its generation now.
    pub generation: i64,
    /// Whether it was changed after the run began.
    pub has_changed: bool,
}
