//! The layers and their order.

use strum::{Display, EnumIter};

use crate::model::run::RunOrder;
use crate::model::tool::{MemoryFact, Tool};
use crate::model::wake::Wake;

use super::history::{self, HistoryMessage};
use super::text::{escape, one_line};
use super::{identity, memory, tools, wake};

/// Everything that a prompt is made of.
#[derive(Clone, Copy, Debug)]
pub struct PromptInput<'a> {
    /// The run.
    pub order: &'a RunOrder,
    /// Why it runs, with the text that it is told.
    pub wake: &'a Wake,
    /// The end of the conversation, oldest message first. The message that caused the wake may be
    /// among them; it is shown once, as the user's text.
    pub history: &'a [HistoryMessage],
    /// Messages of the conversation that are older than `history`.
    pub older: usize,
    /// Whether the agent remembers the conversation up to where `history` begins.
    pub is_resumed: bool,
    /// The tools that the run has beside its own: exactly these are named.
    pub tools: &'a [Tool],
    /// What its workspace remembers of the matter, best match first.
    pub facts: &'a [MemoryFact],
}

/// What a layer is, in the order in which the layers stand (fixed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
pub enum Label {
    /// Who the agent is.
    #[strum(serialize = "Identity")]
    Identity,
    /// What it can call.
    #[strum(serialize = "Tools")]
    Tools,
    /// Where it works.
    #[strum(serialize = "Workspace layout")]
    WorkspaceLayout,
    /// How it should work.
    #[strum(serialize = "Persona")]
    Persona,
    /// What it has learned.
    #[strum(serialize = "Skills")]
    Skills,
    /// Why it was woken.
    #[strum(serialize = "Why you were woken")]
    WakeContext,
    /// What it is to do here, and what it owes.
    #[strum(serialize = "Mode")]
    Mode,
    /// What was learned before.
    #[strum(serialize = "Memory")]
    Memory,
    /// What was said before.
    #[strum(serialize = "Conversation")]
    Conversation,
}

/// One labelled section, its text already safe to stand in the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What it is.
    pub label: Label,
    /// What it says.
    pub text: String,
}

/// A prompt: layers, then the user's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The layers that have something to say, in order.
    pub layers: Vec<Layer>,
    /// The user's text, verbatim.
    pub user_text: String,
}

impl Prompt {
    /// The text that the agent is given: the layers in one `<context>` block, a blank line, the
    /// user's text as it is. No layer's text can end the block; what stands after its end is the
    /// user's, whatever it looks like.
    pub fn render(&self) -> String {
        let sections: Vec<_> = self
            .layers
            .iter()
            .map(|layer| format!("## {}\n{}", layer.label, layer.text))
            .collect();
        format!(
            "<context>\n{}\n</context>\n\n{}",
            sections.join("\n\n"),
            self.user_text
        )
    }
}

/// Makes a run's prompt.
pub fn assemble(input: &PromptInput<'_>) -> Prompt {
    let PromptInput {
        order, wake: why, ..
    } = *input;
    let said_before: Vec<_> = input
        .history
        .iter()
        .filter(|message| Some(message.id) != why.message)
        .collect();
    let layers = [
        (
            Label::Identity,
            Some(identity::layer(order, why.requested_by.as_deref())),
        ),
        (Label::Tools, tools::catalogue(input.tools)),
        (Label::WorkspaceLayout, Some(workspace_layout(order))),
        (Label::Persona, persona(order)),
        (Label::Skills, skills(order)),
        (Label::WakeContext, Some(wake::layer(order, why))),
        (Label::Mode, tools::mode(order.mode, input.tools)),
        (Label::Memory, memory::layer(input.facts, &why.prompt)),
        (Label::Conversation, history::layer(input, &said_before)),
    ];
    Prompt {
        layers: layers
            .into_iter()
            .filter_map(|(label, text)| text.map(|text| Layer { label, text }))
            .collect(),
        user_text: why.prompt.clone(),
    }
}

fn workspace_layout(order: &RunOrder) -> String {
    let mut lines = vec![
        format!("Space: {} ({}).", one_line(&order.space_name), order.space),
        format!("Working directory: {}", one_line(&order.cwd)),
    ];
    if order.trees.is_empty() {
        lines.push("There is no repository in this space.".to_owned());
        return lines.join("\n");
    }
    lines.push("Repositories, each a worktree of your own:".to_owned());
    for tree in &order.trees {
        lines.push(format!(
            "- {} at {}, on branch {}, which began at commit {}",
            one_line(&tree.repo_name),
            one_line(&tree.path),
            one_line(&tree.branch),
            one_line(&tree.base)
        ));
    }
    lines.push(
        "Work in these worktrees only, and commit on their branches. The checkouts that they were \
         made from belong to people: never touch those."
            .to_owned(),
    );
    lines.join("\n")
}

/// The operator's words, from git: trusted to have headings of their own, not to end the block.
fn persona(order: &RunOrder) -> Option<String> {
    let text = escape(order.persona.as_deref()?.trim());
    (!text.is_empty()).then_some(text)
}

fn skills(order: &RunOrder) -> Option<String> {
    let names: Vec<_> = order
        .skills
        .iter()
        .map(|name| format!("- {}", one_line(name)))
        .collect();
    (!names.is_empty()).then(|| names.join("\n"))
}
