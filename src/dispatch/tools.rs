//! What tools need of the records, from the records.

use std::sync::Arc;

use serde_json::json;

use crate::clock::Clock;
use crate::model::chain::chain;
use crate::model::run::RunOrder;
use crate::model::tool::{MemoryFact, Principal, Tool, Verb};
use crate::redact::Redactor;
use crate::store::{Effect, MessageView, NewFact, Noted, Store, StoreError};
use crate::tool::{
    GetMessages, Kept, Line, Messages, Recall, Remember, SubmitPlan, ToolFault, ToolPort,
    materialize,
};

/// Facts that one `recall` answers with at most.
const RECALL_MAX: u32 = 10;
/// Characters of text that one page of messages has at most.
const PAGE_CHARS_MAX: usize = 50_000;

/// The tools of one run.
#[derive(Clone, Debug)]
pub struct RecordTools {
    store: Store,
    clock: Arc<dyn Clock>,
    redactor: Arc<Redactor>,
}

impl RecordTools {
    /// Tools over these records. What the run wants kept is kept without the secrets that
    /// `redactor` knows.
    pub const fn new(store: Store, clock: Arc<dyn Clock>, redactor: Arc<Redactor>) -> Self {
        Self {
            store,
            clock,
            redactor,
        }
    }

    /// What may be kept of a text.
    fn kept(&self, text: &str) -> String {
        self.redactor.text(text.trim()).into_owned()
    }
}

impl ToolPort for RecordTools {
    async fn get_messages(&self, by: Principal, ask: GetMessages) -> Result<Messages, ToolFault> {
        // One more than asked for says whether there is an older page.
        let limit = ask.limit.saturating_add(1);
        let stored = self
            .store
            .messages(by.conversation, ask.before, limit)
            .await
            .map_err(|error| unavailable(by, &error))?;
        Ok(page(stored, ask.limit))
    }

    async fn remember(&self, by: Principal, ask: Remember) -> Result<Kept, ToolFault> {
        let fact = NewFact {
            workspace: by.workspace,
            key: self.kept(&ask.key),
            text: self.kept(&ask.text),
            agent: by.agent,
            run: by.run,
            created_at: self.clock.now(),
        };
        match self.store.remember(fact).await {
            Ok(Noted::New) => Ok(Kept::New),
            Ok(Noted::Superseding) => Ok(Kept::Superseding),
            Ok(Noted::Already) => Ok(Kept::Already),
            Ok(Noted::Full) => Err(ToolFault::Refused(
                "the workspace remembers as much as it can: reuse the key of a fact that is no \
                 longer needed"
                    .to_owned(),
            )),
            Err(error) => Err(unavailable(by, &error)),
        }
    }

    async fn recall(&self, by: Principal, ask: Recall) -> Result<Vec<MemoryFact>, ToolFault> {
        self.store
            .recall(by.workspace, &ask.query, RECALL_MAX)
            .await
            .map_err(|error| unavailable(by, &error))
    }

    async fn submit_plan(&self, by: Principal, ask: SubmitPlan) -> Result<(), ToolFault> {
        let output = json!({ "plan": self.kept(&ask.plan) });
        match self.store.hand_in(by.run, Verb::SubmitPlan, output).await {
            Ok(Effect::Applied | Effect::Unchanged) => Ok(()),
            Ok(Effect::Stale(why)) => Err(ToolFault::Refused(why)),
            Err(error) => Err(unavailable(by, &error)),
        }
    }
}

/// The tools of a run; none where its agent can't be given any. What it is told of, and what it can
/// call, are both this.
pub(super) fn tools_of(order: &RunOrder) -> Vec<Tool> {
    match order.adapter.r#type.observes_contract() {
        true => materialize(order.mode),
        false => Vec::new(),
    }
}

/// The verb that hands in what a run owes; none where it owes nothing in particular, or has no way
/// to call it.
pub(super) fn contract_of(order: &RunOrder) -> Option<Verb> {
    let tools = tools_of(order);
    let contract = order.mode.contract();
    contract.filter(|verb| tools.iter().any(|tool| tool.verb == *verb))
}

/// Says in the log what the agent is not told.
fn unavailable(by: Principal, error: &StoreError) -> ToolFault {
    tracing::warn!(run = %by.run, error = chain(error), "tool call came to nothing");
    ToolFault::Unavailable
}

/// The newest of `stored` that fit on a page, oldest first. The first that does not fit ends it; a
/// message that is longer than a page stands alone, cut.
fn page(stored: Vec<MessageView>, limit: u32) -> Messages {
    let total = stored.len();
    let mut left = PAGE_CHARS_MAX;
    let mut lines = Vec::new();
    for message in stored.into_iter().rev().take(count(limit)) {
        let chars = message.text.chars().count();
        let is_cut = chars > PAGE_CHARS_MAX;
        match left.checked_sub(chars) {
            Some(rest) => left = rest,
            None if lines.is_empty() => left = 0,
            None => break,
        }
        let text = if is_cut {
            message.text.chars().take(PAGE_CHARS_MAX).collect()
        } else {
            message.text
        };
        lines.push(Line {
            number: message.seq,
            from: message.author.name().to_owned(),
            at: message.created_at,
            text,
            is_cut,
        });
    }
    let has_older = lines.len() < total;
    let before = lines.last().map(|oldest| oldest.number);
    lines.reverse();
    Messages {
        messages: lines,
        before: before.filter(|_| has_older),
    }
}

fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::id::{ConversationId, MessageId, Uid};
    use crate::store::Author;

    fn message(seq: i64, text: &str) -> MessageView {
        MessageView {
            seq,
            id: MessageId::derived(&[&seq.to_string()]),
            space: Uid::derived(&["room"]),
            conversation: ConversationId::derived(&["c"]),
            author: Author::System,
            text: text.to_owned(),
            run: None,
            requested_by: None,
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// The numbers on the page, and where the older one is.
    fn shown(stored: Vec<MessageView>, limit: u32) -> (Vec<i64>, Option<i64>) {
        let page = page(stored, limit);
        let numbers = page.messages.iter().map(|line| line.number).collect();
        (numbers, page.before)
    }

    #[test]
    fn a_page_is_bounded_in_messages_and_characters() {
        let few = || vec![message(1, "a"), message(2, "b"), message(3, "c")];
        assert_eq!(shown(few(), 3), (vec![1, 2, 3], None));
        assert_eq!(shown(few(), 2), (vec![2, 3], Some(2)));
        assert_eq!(shown(Vec::new(), 2), (vec![], None));

        let half = "é".repeat(PAGE_CHARS_MAX / 2);
        let big = vec![message(1, "a"), message(2, &half), message(3, &half)];
        assert_eq!(shown(big, 3), (vec![2, 3], Some(2)));

        let huge = "é".repeat(PAGE_CHARS_MAX + 1);
        let page = page(vec![message(1, "a"), message(2, &huge)], 3);
        assert_eq!(page.before, Some(2));
        assert_eq!(page.messages.len(), 1);
        let text = &page.messages[0].text;
        assert_eq!(text.chars().count(), PAGE_CHARS_MAX);
        assert!(page.messages[0].is_cut);
    }
}
