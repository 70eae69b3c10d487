//! Every tool, once: its verb, its words, its schema, and the modes that have it.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};
use strum::IntoEnumIterator;

use super::args::{GetMessages, Recall, Remember, SubmitPlan};
use crate::model::spec::Mode;
use crate::model::tool::{Tool, Verb};

/// The tools of a run in a space of this mode whose agent can be given tools, in the order in
/// which they are shown. What an agent is told and what it is offered are both this list.
pub fn materialize(mode: Mode) -> Vec<Tool> {
    Verb::iter()
        .filter(|verb| is_offered(*verb, mode))
        .map(tool)
        .collect()
}

/// Whether the mode has the tool.
const fn is_offered(verb: Verb, mode: Mode) -> bool {
    match verb {
        Verb::GetMessages | Verb::Remember | Verb::Recall => true,
        Verb::SubmitPlan => match mode {
            Mode::Plan => true,
            Mode::Chat => false,
        },
    }
}

fn tool(verb: Verb) -> Tool {
    let (description, schema) = match verb {
        Verb::GetMessages => (
            "Reads messages of this conversation, oldest first: the latest ones, or those before a \
             number that an earlier page gave.",
            schema_of::<GetMessages>(),
        ),
        Verb::Remember => (
            "Keeps a fact that later runs in this workspace will need: a decision, a convention, a \
             trap. A fact with the same key takes its place. Never keep secrets.",
            schema_of::<Remember>(),
        ),
        Verb::Recall => (
            "Finds facts that were kept in this workspace, best match first.",
            schema_of::<Recall>(),
        ),
        Verb::SubmitPlan => (
            "Hands in the finished plan. The run owes exactly this; a later call takes the place \
             of an earlier one.",
            schema_of::<SubmitPlan>(),
        ),
    };
    Tool {
        verb,
        description,
        schema,
    }
}

/// The schema of a tool's arguments, without what only a schema in a file of its own needs.
fn schema_of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    let Value::Object(mut schema) = schema.to_value() else {
        return Map::new();
    };
    for name in ["title", "description"] {
        schema.remove(name);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_tools() {
        let verbs = |mode| {
            materialize(mode)
                .iter()
                .map(|tool| tool.verb.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(verbs(Mode::Chat), ["get_messages", "remember", "recall"]);
        assert_eq!(
            verbs(Mode::Plan),
            ["get_messages", "remember", "recall", "submit_plan"]
        );
    }

    #[test]
    fn a_contract_can_be_met_in_its_mode() {
        for mode in Mode::iter() {
            let tools = materialize(mode);
            let can_meet = |verb| tools.iter().any(|tool| tool.verb == verb);
            assert!(mode.contract().is_none_or(can_meet), "{mode}");
        }
    }

    #[test]
    fn a_schema_is_an_object_that_takes_nothing_else() {
        for tool in materialize(Mode::Plan) {
            assert_eq!(tool.schema.get("type"), Some(&Value::from("object")));
            assert_eq!(
                tool.schema.get("additionalProperties"),
                Some(&Value::from(false)),
                "{}",
                tool.verb
            );
        }
        let shown: Vec<_> = materialize(Mode::Plan)
            .iter()
            .map(|tool| {
                let schema = serde_json::to_string_pretty(&tool.schema).expect("plain JSON");
                format!("{}: {}\n{schema}\n", tool.verb, tool.description)
            })
            .collect();
        snapbox::assert_data_eq!(
            shown.join("\n"),
            snapbox::file!["../../tests/data/tool/catalog.txt"].raw()
        );
    }
}
