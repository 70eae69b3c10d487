//! What tools need of the records. Implemented where the records are, in `dispatch`.

use jiff::Timestamp;
use serde::Serialize;

use super::args::{GetMessages, Recall, Remember, SubmitPlan};
use crate::model::tool::{MemoryFact, Principal};

/// Reads and writes on behalf of a run. Whose behalf comes from the run's credential alone:
/// nothing in the arguments names a run, a workspace or a conversation.
pub trait ToolPort: Send + Sync + 'static {
    /// A page of the run's conversation.
    fn get_messages(
        &self,
        by: Principal,
        ask: GetMessages,
    ) -> impl Future<Output = Result<Messages, ToolFault>> + Send;

    /// Keeps a fact in the run's workspace. Twice is as good as once.
    fn remember(
        &self,
        by: Principal,
        ask: Remember,
    ) -> impl Future<Output = Result<Kept, ToolFault>> + Send;

    /// Current facts of the run's workspace, best match first.
    fn recall(
        &self,
        by: Principal,
        ask: Recall,
    ) -> impl Future<Output = Result<Vec<MemoryFact>, ToolFault>> + Send;

    /// Takes the run's plan in. The latest one stands.
    fn submit_plan(
        &self,
        by: Principal,
        ask: SubmitPlan,
    ) -> impl Future<Output = Result<(), ToolFault>> + Send;
}

/// A page of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Messages {
    /// Oldest first.
    pub messages: Vec<Line>,
    /// The `before` of the next older page; none when there is nothing older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Its number.
    pub number: i64,
    /// Who wrote it.
    pub from: String,
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
    /// Whether the end of the text is missing, because it is longer than a page.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// What became of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is kept.
    New,
    /// It is kept, and an older one with its key is current no more.
    Superseding,
    /// It was kept before.
    Already,
}

/// Why a call that was understood came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFault {
    /// The run may not, or not now; the words are for the agent.
    #[error("{0}")]
    Refused(String),
    /// The records could not be read or written. The cause is in the daemon's log.
    #[error("the daemon could not do it just now; try again in a moment")]
    Unavailable,
}
