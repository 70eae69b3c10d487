//! The layers that name tools: what there is, and what the mode asks for. Both read the list of
//! the tools that the run really has, and nothing else.

use crate::model::spec::Mode;
use crate::model::tool::{TOOL_SERVER, Tool, Verb};

/// The layer that lists the tools; none when there are none.
pub(super) fn catalogue(tools: &[Tool]) -> Option<String> {
    if tools.is_empty() {
        return None;
    }
    let lines = tools
        .iter()
        .map(|tool| format!("- `{}`: {}", tool.verb, tool.description));
    let mut text = vec![format!(
        "Beside your own tools you have these, of the MCP server {TOOL_SERVER}:"
    )];
    text.extend(lines);
    Some(text.join("\n"))
}

/// The layer that says what is to be done here; none when there is nothing in particular to say.
pub(super) fn mode(mode: Mode, tools: &[Tool]) -> Option<String> {
    match mode {
        Mode::Chat => None,
        Mode::Plan => {
            let mut text = "You are in plan mode. Study the work and make a plan for it; change \
                            no file, and commit nothing."
                .to_owned();
            if let Some(verb) = mode.contract().filter(|verb| has(tools, *verb)) {
                text.push_str(&format_contract(verb));
            }
            Some(text)
        }
    }
}

fn format_contract(verb: Verb) -> String {
    format!(
        "\nWhen the plan is complete, hand it in by calling `{verb}` once. A run that ends without \
         that call counts as having delivered nothing, whatever it says in words."
    )
}

/// Whether the run has the tool.
pub(super) fn has(tools: &[Tool], verb: Verb) -> bool {
    tools.iter().any(|tool| tool.verb == verb)
}
