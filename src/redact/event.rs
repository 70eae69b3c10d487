//! Events of a run, every string of them.

use serde_json::{Map, Value};

use super::redactor::Redactor;
use super::stream::Stream;
use crate::model::event::AgentEvent;

impl Redactor {
    /// The event with every string redacted, names and values of arguments too. What is spread
    /// over several events is [`EventStream`]'s business.
    pub fn redact_event(&self, event: &AgentEvent) -> AgentEvent {
        let clean = |text: &str| self.text(text).into_owned();
        match event {
            AgentEvent::Thinking { text } => AgentEvent::Thinking { text: clean(text) },
            AgentEvent::Text { text } => AgentEvent::Text { text: clean(text) },
            AgentEvent::ToolCall { id, name, args } => AgentEvent::ToolCall {
                id: clean(id),
                name: clean(name),
                args: self.json(args),
            },
            AgentEvent::ToolResult {
                id,
                output,
                is_error,
                is_partial,
            } => AgentEvent::ToolResult {
                id: clean(id),
                output: clean(output),
                is_error: *is_error,
                is_partial: *is_partial,
            },
            AgentEvent::Usage { model, usage } => AgentEvent::Usage {
                model: model.as_deref().map(clean),
                usage: *usage,
            },
            AgentEvent::Error { message, code } => AgentEvent::Error {
                message: clean(message),
                code: code.as_deref().map(clean),
            },
            AgentEvent::SandboxViolation { operation, source } => AgentEvent::SandboxViolation {
                operation: clean(operation),
                source: clean(source),
            },
            AgentEvent::Debug { message } => AgentEvent::Debug {
                message: clean(message),
            },
            AgentEvent::Done {} => AgentEvent::Done {},
        }
    }

    /// The value with every string redacted, keys too. Two keys that become the same stay two.
    pub fn json(&self, value: &Value) -> Value {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => Value::String(self.text(text).into_owned()),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.json(item)).collect()),
            Value::Object(entries) => {
                let mut clean = Map::with_capacity(entries.len());
                for (key, value) in entries {
                    let key = free_key(&clean, self.text(key).into_owned());
                    clean.insert(key, self.json(value));
                }
                Value::Object(clean)
            }
        }
    }
}

fn free_key(taken: &Map<String, Value>, key: String) -> String {
    if !taken.contains_key(&key) {
        return key;
    }
    let numbered = (2_usize..).map(|number| format!("{key}#{number}"));
    let mut free = numbered.filter(|key| !taken.contains_key(key));
    free.next().expect("a finite map leaves numbers free")
}

/// Which text an event goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lane {
    Thinking,
    Text,
    /// What one call says.
    Result {
        id: String,
        is_error: bool,
    },
}

/// The events of one run in their order. Words that come in pieces are judged as one text, so that
/// a value spread over several events doesn't get through.
#[derive(Debug, Default)]
pub struct EventStream {
    open: Option<(Lane, Stream)>,
}

impl EventStream {
    /// Takes the next event and gives those that may be recorded: at most one more than came in.
    /// An event of mere words may give none until more of them is known. Figures, violations and
    /// debug lines don't end a text; they may overtake the held end of it.
    pub fn feed(&mut self, redactor: &Redactor, event: &AgentEvent) -> Vec<AgentEvent> {
        let mut out = Vec::new();
        match event {
            AgentEvent::Thinking { text } => self.words(redactor, Lane::Thinking, text, &mut out),
            AgentEvent::Text { text } => self.words(redactor, Lane::Text, text, &mut out),
            AgentEvent::ToolResult {
                id,
                output,
                is_error,
                is_partial,
            } => {
                let lane = Lane::Result {
                    id: id.clone(),
                    is_error: *is_error,
                };
                if *is_partial {
                    self.words(redactor, lane, output, &mut out);
                } else {
                    out.extend(self.last_words(redactor, &lane, output));
                }
            }
            AgentEvent::ToolCall { .. } | AgentEvent::Error { .. } | AgentEvent::Done {} => {
                out.extend(self.flush(redactor));
                out.push(redactor.redact_event(event));
            }
            AgentEvent::Usage { .. }
            | AgentEvent::SandboxViolation { .. }
            | AgentEvent::Debug { .. } => out.push(redactor.redact_event(event)),
        }
        out
    }

    /// The text that comes in pieces is over, or the run is: gives what was held of it.
    pub fn flush(&mut self, redactor: &Redactor) -> Option<AgentEvent> {
        let (lane, stream) = self.open.take()?;
        let words = stream.finish(redactor);
        (!words.is_empty()).then(|| said(redactor, &lane, words, true))
    }

    fn words(&mut self, redactor: &Redactor, lane: Lane, text: &str, out: &mut Vec<AgentEvent>) {
        if self
            .open
            .as_ref()
            .is_some_and(|(open, _)| !same_text(open, &lane))
        {
            out.extend(self.flush(redactor));
        }
        let (lane, stream) = self.open.get_or_insert_with(|| (lane, Stream::default()));
        let words = stream.feed(redactor, text);
        if !words.is_empty() {
            out.push(said(redactor, lane, words, true));
        }
    }

    /// The end of a result goes on with its parts.
    fn last_words(&mut self, redactor: &Redactor, lane: &Lane, text: &str) -> Vec<AgentEvent> {
        let mut out = Vec::new();
        let mut stream = match self.open.take() {
            Some((open, stream)) if same_text(&open, lane) => stream,
            other => {
                self.open = other;
                out.extend(self.flush(redactor));
                Stream::default()
            }
        };
        let mut words = stream.feed(redactor, text);
        words.push_str(&stream.finish(redactor));
        out.push(said(redactor, lane, words, false));
        out
    }
}

/// Whether `lane` goes on with the text of `open`; a failure is known only at the end.
fn same_text(open: &Lane, lane: &Lane) -> bool {
    match (open, lane) {
        (Lane::Result { id: open, .. }, Lane::Result { id, .. }) => open == id,
        (Lane::Thinking | Lane::Text | Lane::Result { .. }, _) => open == lane,
    }
}

fn said(redactor: &Redactor, lane: &Lane, text: String, is_partial: bool) -> AgentEvent {
    match lane {
        Lane::Thinking => AgentEvent::Thinking { text },
        Lane::Text => AgentEvent::Text { text },
        Lane::Result { id, is_error } => AgentEvent::ToolResult {
            id: redactor.text(id).into_owned(),
            output: text,
            is_error: *is_error,
            is_partial,
        },
    }
}
