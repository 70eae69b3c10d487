//! One call: arguments in, words for the agent out.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::args::Check;
use super::port::{Kept, ToolFault, ToolPort};
use crate::model::tool::{Principal, Tool, Verb};

/// Why a call has no answer. The words are for the agent that called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The run has no such tool.
    #[error("there is no tool {name:?} in this run")]
    Unknown {
        /// What was called.
        name: String,
    },
    /// The arguments are not what the schema says.
    #[error("{verb} was called wrongly: {because}")]
    Arguments {
        /// What was called.
        verb: Verb,
        /// What is wrong.
        because: String,
    },
    /// It was understood, and came to nothing.
    #[error(transparent)]
    Fault(#[from] ToolFault),
}

/// Calls the tool of that name, if it is among `tools`, on behalf of `by`. The answer is text: JSON
/// where it has structure.
///
/// # Errors
/// When there is no such tool, the arguments are wrong, or the port refused.
pub async fn call<P: ToolPort>(
    port: &P,
    by: Principal,
    tools: &[Tool],
    name: &str,
    args: Map<String, Value>,
) -> Result<String, CallError> {
    let found = tools.iter().find(|tool| tool.verb.to_string() == name);
    let Some(verb) = found.map(|tool| tool.verb) else {
        let name = name.chars().take(100).collect();
        return Err(CallError::Unknown { name });
    };
    Ok(match verb {
        Verb::GetMessages => {
            let page = port.get_messages(by, decode(verb, args)?).await?;
            json!(page).to_string()
        }
        Verb::Remember => match port.remember(by, decode(verb, args)?).await? {
            Kept::New => "Kept.".to_owned(),
            Kept::Superseding => "Kept; it takes the place of an older fact.".to_owned(),
            Kept::Already => "That was kept already.".to_owned(),
        },
        Verb::Recall => {
            let facts = port.recall(by, decode(verb, args)?).await?;
            json!({ "facts": facts }).to_string()
        }
        Verb::SubmitPlan => {
            port.submit_plan(by, decode(verb, args)?).await?;
            "The plan is handed in.".to_owned()
        }
    })
}

fn decode<T: DeserializeOwned + Check>(
    verb: Verb,
    args: Map<String, Value>,
) -> Result<T, CallError> {
    let wrong = |because| CallError::Arguments { verb, because };
    let args: T = serde_json::from_value(Value::Object(args))
        .map_err(|error| wrong(error.to_string().chars().take(300).collect()))?;
    match args.fault() {
        Some(because) => Err(wrong(because)),
        None => Ok(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{ConversationId, RunId, Uid};
    use crate::model::spec::Mode;
    use crate::model::tool::MemoryFact;
    use crate::tool::{GetMessages, Messages, Recall, Remember, SubmitPlan, materialize};

    /// Answers everything, and refuses what says so.
    struct Echo;

    impl ToolPort for Echo {
        async fn get_messages(
            &self,
            _by: Principal,
            ask: GetMessages,
        ) -> Result<Messages, ToolFault> {
            Ok(Messages {
                messages: Vec::new(),
                before: ask.before.map(|before| before - i64::from(ask.limit)),
            })
        }

        async fn remember(&self, _by: Principal, ask: Remember) -> Result<Kept, ToolFault> {
            match ask.key.as_str() {
                "no" => Err(ToolFault::Refused("not that".to_owned())),
                _ => Ok(Kept::New),
            }
        }

        async fn recall(&self, _by: Principal, ask: Recall) -> Result<Vec<MemoryFact>, ToolFault> {
            Ok(vec![MemoryFact {
                key: "asked".to_owned(),
                text: ask.query,
            }])
        }

        async fn submit_plan(&self, _by: Principal, _ask: SubmitPlan) -> Result<(), ToolFault> {
            Err(ToolFault::Unavailable)
        }
    }

    async fn said(mode: Mode, name: &str, args: Value) -> Result<String, String> {
        let by = Principal {
            run: RunId::derived(&["r"]),
            agent: Uid::derived(&["a"]),
            workspace: Uid::derived(&["w"]),
            conversation: ConversationId::derived(&["c"]),
        };
        let Value::Object(args) = args else {
            unreachable!("an object is given")
        };
        call(&Echo, by, &materialize(mode), name, args)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_call_is_checked_before_the_port_hears_of_it() {
        let long = "x".repeat(2_001);
        for (name, args, expected) in [
            (
                "get_messages",
                json!({"before": 30}),
                Ok(r#"{"messages":[],"before":10}"#),
            ),
            (
                "get_messages",
                json!({"limit": 51}),
                Err("get_messages was called wrongly: `limit` must be from 1 to 50"),
            ),
            (
                "get_messages",
                json!({"conversation": "other"}),
                Err(
                    "get_messages was called wrongly: unknown field `conversation`, expected \
                     `before` or `limit`",
                ),
            ),
            ("remember", json!({"key": "k", "text": "t"}), Ok("Kept.")),
            (
                "remember",
                json!({"key": "no", "text": "t"}),
                Err("not that"),
            ),
            (
                "remember",
                json!({"key": " ", "text": "t"}),
                Err("remember was called wrongly: `key` must not be blank"),
            ),
            (
                "remember",
                json!({"key": "k", "text": long}),
                Err(
                    "remember was called wrongly: `text` has 2001 characters; at most 2000 are \
                     taken",
                ),
            ),
            (
                "recall",
                json!({"query": "flaky"}),
                Ok(r#"{"facts":[{"key":"asked","text":"flaky"}]}"#),
            ),
            (
                "recall",
                json!({}),
                Err("recall was called wrongly: missing field `query`"),
            ),
            (
                "submit_plan",
                json!({"plan": "p"}),
                Err("the daemon could not do it just now; try again in a moment"),
            ),
            (
                "bash",
                json!({}),
                Err("there is no tool \"bash\" in this run"),
            ),
        ] {
            let answer = said(Mode::Plan, name, args.clone()).await;
            let answer = answer.as_ref().map(String::as_str);
            assert_eq!(answer.map_err(String::as_str), expected, "{name} {args}");
        }
    }

    #[tokio::test]
    async fn a_tool_of_another_mode_is_not_there() {
        assert_eq!(
            said(Mode::Chat, "submit_plan", json!({"plan": "p"})).await,
            Err("there is no tool \"submit_plan\" in this run".to_owned())
        );
    }
}
