//! Why a run was woken: in its environment and in its prompt, from one list.

use std::collections::BTreeMap;

use crate::model::id::RunId;
use crate::model::run::RunOrder;
use crate::model::wake::{Wake, WakeReason};

use super::text::{one_line, quote};

/// One fact of a wake.
struct Fact {
    /// Its name in the environment, after `HOMEOSTAT_`.
    variable: &'static str,
    /// Its name in the prompt.
    label: &'static str,
    /// Its value.
    value: String,
}

/// The facts that exist: an id that a wake does not have is not in the list.
fn facts(run: RunId, wake: &Wake) -> Vec<Fact> {
    let all = [
        ("WAKE_REASON", "Reason", Some(wake.reason.to_string())),
        ("RUN_ID", "Run", Some(run.to_string())),
        ("AGENT_ID", "Agent", Some(wake.agent.to_string())),
        (
            "WORKSPACE_ID",
            "Workspace",
            Some(wake.workspace.to_string()),
        ),
        ("SPACE_ID", "Space", Some(wake.space.to_string())),
        (
            "CONVERSATION_ID",
            "Conversation",
            Some(wake.conversation.to_string()),
        ),
        ("TICKET_ID", "Ticket", wake.ticket.map(|id| id.to_string())),
        (
            "MESSAGE_ID",
            "Message",
            wake.message.map(|id| id.to_string()),
        ),
        (
            "PREVIOUS_RUN_ID",
            "Previous run",
            wake.previous_run.map(|id| id.to_string()),
        ),
    ];
    all.into_iter()
        .filter_map(|(variable, label, value)| {
            value.map(|value| Fact {
                variable,
                label,
                value,
            })
        })
        .collect()
}

/// The wake as variables of the run's environment, `HOMEOSTAT_WAKE_REASON`, `HOMEOSTAT_RUN_ID` and
/// so on. An id that the wake does not have is absent, never empty.
pub fn wake_environment(run: RunId, wake: &Wake) -> BTreeMap<String, String> {
    facts(run, wake)
        .into_iter()
        .map(|fact| (format!("HOMEOSTAT_{}", fact.variable), fact.value))
        .collect()
}

/// The layer that says why the agent was woken.
pub(super) fn layer(order: &RunOrder, wake: &Wake) -> String {
    let mut lines = vec![sentence(wake.reason).to_owned()];
    lines.extend(
        facts(order.run, wake)
            .into_iter()
            .map(|fact| format!("- {}: {}", fact.label, fact.value)),
    );
    if wake.reason == WakeReason::UserMessage {
        lines.extend(summons(order, wake));
    }
    if let Some(continuation) = &wake.continuation {
        lines.push(format!(
            "This is attempt {} at the same work. What the one before it had done:\n{}",
            u64::from(wake.attempt) + 1,
            quote(continuation)
        ));
    }
    lines.join("\n")
}

/// Who posted the message, and who else is there to hear the answer.
fn summons(order: &RunOrder, wake: &Wake) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(by) = &wake.requested_by {
        lines.push(format!("- Posted by: {}", one_line(by)));
    }
    if !order.roster.is_empty() {
        lines.push("Beside you these agents serve the space:".to_owned());
        let others = order.roster.iter();
        lines.extend(others.map(|other| {
            let (name, title) = (one_line(&other.name), one_line(&other.title));
            format!("- {name}: {title}")
        }));
    }
    lines
}

/// What a live agent is told of a wake: who says it, then the words as they are.
pub fn aside(wake: &Wake) -> String {
    let by = one_line(wake.requested_by.as_deref().unwrap_or("somebody"));
    format!(
        "<context>\nWhile you work, {by} says this, at {}.\n</context>\n\n{}",
        wake.created_at, wake.prompt
    )
}

/// A reason in words.
const fn sentence(reason: WakeReason) -> &'static str {
    match reason {
        WakeReason::UserMessage => "You were woken because a message was posted for you.",
        WakeReason::Assignment => "You were woken because a ticket was assigned to you.",
        WakeReason::PipelineStep => "You were woken because a pipeline reached a step of yours.",
        WakeReason::ChildCompleted => "You were woken because a child of your ticket finished.",
        WakeReason::FollowUp => "You were woken because a follow-up is due.",
        WakeReason::Recovery => {
            "You were woken because your previous run ended before it could finish. Its changes \
             may still be in the worktrees: look at them before you do anything again."
        }
    }
}
