//! What the program prints, as events. One turn is: `system init`, then `assistant` and `user`
//! lines, one for each block of a message, then a `result`.
//!
//! Three things of it cannot be taken at face value. The usage on `assistant` lines is that of a
//! message's beginning, repeated for each block; only the `result` has sums, and they go on from
//! result to result. A `result` of subtype `success` may be a failure; `is_error` says. And after
//! something else was said to a running agent, a result may end only the turn before that.

use serde_json::Value;

use super::super::lines::Line;
use super::super::note::{self, debug};
use super::super::{EventParser, SESSION_NOT_FOUND, lines::LINE_BYTES_MAX};
use super::usage::Meter;
use crate::model::event::AgentEvent;
use crate::model::process::Exit;
use crate::model::run::EndReason;

/// How far into a line that was cut its call's id is looked for, in bytes.
const CUT_LINE_LOOK: usize = 4 * 1024;

/// The most of the last line of standard error that is kept, in bytes.
const LAST_WORDS_BYTES: usize = 500;

/// Reads one run.
#[derive(Debug, Default)]
pub(super) struct Parser {
    meter: Meter,
    /// Whether the turn has ended and nothing came after it.
    awaits_input: bool,
    /// Whether something was written to the agent after its launch.
    has_input: bool,
    end: End,
    /// What the program calls its session, once it has one.
    session: Option<String>,
    /// Whether the event before was text, so that more text begins a paragraph.
    is_in_text: bool,
    /// The word for the failure that the last `assistant` line stands for.
    failure: Option<String>,
    last_words: Option<String>,
}

/// How far the run's end has come.
#[derive(Debug, Default)]
enum End {
    /// No turn has ended.
    #[default]
    None,
    /// A turn ended so; as another may follow, that is not said yet.
    Held(Verdict),
    /// It is said.
    Said,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Clean,
    /// We interrupted it.
    Interrupted,
    Failed {
        code: String,
        message: String,
    },
}

impl EventParser for Parser {
    fn stdout_line(&mut self, line: &Line) -> Vec<AgentEvent> {
        let text = String::from_utf8_lossy(&line.bytes);
        if line.dropped > 0 {
            return self.cut_line(&text, line);
        }
        if text.trim().is_empty() {
            return Vec::new();
        }
        let events = match serde_json::from_str::<Value>(&text) {
            Ok(value) if value.is_object() => self.message(&value, &text),
            Ok(_) | Err(_) => vec![debug("not an event", &text)],
        };
        self.separated(events)
    }

    fn stderr_line(&mut self, line: &Line) -> Vec<AgentEvent> {
        let text = String::from_utf8_lossy(&line.bytes);
        if !text.trim().is_empty() {
            let kept = text.trim();
            self.last_words = Some(kept[..kept.floor_char_boundary(LAST_WORDS_BYTES)].to_owned());
        }
        let mut events = vec![debug("stderr", &text)];
        events.extend(note::dropped("standard error", line));
        events
    }

    fn note_input(&mut self) {
        self.has_input = true;
        self.awaits_input = false;
    }

    fn has_session(&self) -> bool {
        self.session.is_some()
    }

    fn awaits_input(&self) -> bool {
        self.awaits_input
    }

    fn finish(&mut self, end: EndReason, exit: Exit) -> Vec<AgentEvent> {
        let is_idle = std::mem::take(&mut self.awaits_input);
        if end != EndReason::AgentFinished {
            return vec![AgentEvent::Debug {
                message: format!("ended: {end}"),
            }];
        }
        match std::mem::take(&mut self.end) {
            End::None => {}
            // It went wrong after the turn that went well.
            End::Held(Verdict::Clean | Verdict::Interrupted)
                if !is_idle && note::exit_failure(exit).is_some() => {}
            End::Held(verdict) => return self.close(verdict),
            End::Said => {
                self.end = End::Said;
                return Vec::new();
            }
        }
        let Some((code, what)) = note::exit_failure(exit) else {
            // It ended without a result, or nobody saw it end: that is no end.
            return Vec::new();
        };
        let message = match &self.last_words {
            Some(words) => format!("{what}: {words}"),
            None => what,
        };
        let code = code.to_owned();
        self.close(Verdict::Failed { code, message })
    }
}

impl Parser {
    fn message(&mut self, value: &Value, text: &str) -> Vec<AgentEvent> {
        match str_at(value, "type") {
            Some("assistant") => self.assistant(value, text),
            Some("user") => self.user(value, text),
            Some("system") => self.system(value, text),
            Some("result") => self.result(value, text),
            Some("control_response") => vec![debug("control", text)],
            Some(_) | None => vec![debug("claude", text)],
        }
    }

    fn system(&mut self, value: &Value, text: &str) -> Vec<AgentEvent> {
        match str_at(value, "subtype") {
            Some("init") => {
                self.awaits_input = false;
                self.session = str_at(value, "session_id").map(ToOwned::to_owned);
                let field = |name| str_at(value, name).unwrap_or("?");
                let message = format!(
                    "session {} of Claude Code {}, model {}",
                    field("session_id"),
                    field("claude_code_version"),
                    field("model"),
                );
                vec![AgentEvent::Debug { message }]
            }
            // A few a second, and nothing that is not said better later.
            Some("thinking_tokens") => Vec::new(),
            Some("api_retry") => {
                let number = |name| value[name].as_f64().unwrap_or_default();
                let status = match value["error_status"].as_u64() {
                    Some(status) => format!(" ({status})"),
                    None => String::new(),
                };
                let message = format!(
                    "the model did not answer: {}{status}; attempt {} of {} follows in {:.0} ms",
                    str_at(value, "error").unwrap_or("unknown"),
                    number("attempt"),
                    number("max_retries"),
                    number("retry_delay_ms"),
                );
                vec![AgentEvent::Debug { message }]
            }
            Some(_) | None => vec![debug("claude", text)],
        }
    }

    fn assistant(&mut self, value: &Value, text: &str) -> Vec<AgentEvent> {
        self.awaits_input = false;
        if let Some(failure) = str_at(value, "error") {
            // Words of the program, not of the model. The result repeats them.
            self.failure = Some(failure.to_owned());
            return vec![debug("claude", text)];
        }
        self.failure = None;
        let is_sub_agent = value["parent_tool_use_id"].is_string();
        blocks(value)
            .map(|block| content(block, is_sub_agent))
            .collect()
    }

    fn user(&mut self, value: &Value, text: &str) -> Vec<AgentEvent> {
        self.awaits_input = false;
        let results: Vec<_> = blocks(value)
            .filter(|block| str_at(block, "type") == Some("tool_result"))
            .map(tool_result)
            .collect();
        match results.is_empty() {
            // What the program itself says to the model.
            true => vec![debug("claude", text)],
            false => results,
        }
    }

    fn result(&mut self, value: &Value, text: &str) -> Vec<AgentEvent> {
        let mut events = self.meter.read(&value["modelUsage"]);
        for denial in value["permission_denials"].as_array().into_iter().flatten() {
            let operation = str_at(denial, "tool_name").unwrap_or("a tool");
            events.push(AgentEvent::SandboxViolation {
                operation: operation.to_owned(),
                source: "claudeCode".to_owned(),
            });
        }
        let verdict = self.verdict(value);
        self.awaits_input = true;
        match self.end {
            End::Said => events.push(debug("after done", text)),
            End::None | End::Held(_) if self.has_input => self.end = End::Held(verdict),
            End::None | End::Held(_) => events.extend(self.close(verdict)),
        }
        events
    }

    fn verdict(&mut self, value: &Value) -> Verdict {
        let failure = self.failure.take();
        let subtype = str_at(value, "subtype").unwrap_or("none");
        let is_error = value["is_error"].as_bool().unwrap_or(false) || subtype != "success";
        if !is_error {
            return Verdict::Clean;
        }
        let terminal = str_at(value, "terminal_reason").unwrap_or_default();
        if self.has_input && terminal.starts_with("aborted") {
            return Verdict::Interrupted;
        }
        let first_error = value["errors"].get(0).and_then(Value::as_str);
        let message = str_at(value, "result").or(first_error);
        let message = message.filter(|message| !message.is_empty());
        let code = match value["api_error_status"].as_u64() {
            Some(status) => of_status(status).to_owned(),
            None if str_at(value, "stop_reason") == Some("refusal") => "refusal".to_owned(),
            None if first_error.is_some_and(|error| error.starts_with(NO_SESSION)) => {
                SESSION_NOT_FOUND.to_owned()
            }
            None => failure.as_deref().map_or(subtype, of_word).to_owned(),
        };
        Verdict::Failed {
            message: message.unwrap_or(subtype).to_owned(),
            code,
        }
    }

    /// The run's end, as far as the agent is concerned.
    fn close(&mut self, verdict: Verdict) -> Vec<AgentEvent> {
        self.end = End::Said;
        let first = match verdict {
            Verdict::Clean => None,
            Verdict::Interrupted => Some(AgentEvent::Debug {
                message: "interrupted".to_owned(),
            }),
            Verdict::Failed { code, message } => Some(AgentEvent::Error {
                message,
                code: Some(code),
            }),
        };
        first.into_iter().chain([AgentEvent::Done {}]).collect()
    }

    /// What is known of a line that was too long to keep. A tool's answer is the one kind that
    /// grows so long, and its call has got one.
    fn cut_line(&mut self, text: &str, line: &Line) -> Vec<AgentEvent> {
        self.is_in_text = false;
        let mut events = Vec::new();
        if let Some(id) = cut_result_id(text) {
            events.push(AgentEvent::ToolResult {
                id,
                output: format!("(more than {LINE_BYTES_MAX} bytes, not kept)"),
                is_error: false,
                is_partial: false,
            });
        }
        events.extend(note::dropped("standard output", line));
        events
    }

    /// Blocks of text come without a line end, one event each.
    fn separated(&mut self, mut events: Vec<AgentEvent>) -> Vec<AgentEvent> {
        for event in &mut events {
            match event {
                AgentEvent::Text { text } => {
                    if self.is_in_text {
                        text.insert_str(0, "\n\n");
                    }
                    self.is_in_text = true;
                }
                AgentEvent::Thinking { .. }
                | AgentEvent::ToolCall { .. }
                | AgentEvent::ToolResult { .. } => self.is_in_text = false,
                AgentEvent::Usage { .. }
                | AgentEvent::Error { .. }
                | AgentEvent::SandboxViolation { .. }
                | AgentEvent::Debug { .. }
                | AgentEvent::Done {} => {}
            }
        }
        events
    }
}

/// How the program says that it has no session of the id that it is to resume.
const NO_SESSION: &str = "No conversation found with session ID";

/// The provider's word for a status of its API.
const fn of_status(status: u64) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "upstream_error",
    }
}

/// The provider's word for the program's, where they differ.
fn of_word(word: &str) -> &str {
    match word {
        "authentication_failed" => "authentication_error",
        "invalid_request" => "invalid_request_error",
        "overloaded" => "overloaded_error",
        "rate_limit" => "rate_limit_error",
        "server_error" => "api_error",
        // It got an answer, and no status and no error in it: nothing that it could read.
        "unknown" => "api_error",
        other => other,
    }
}

fn content(block: &Value, is_sub_agent: bool) -> AgentEvent {
    let text = |name| str_at(block, name).unwrap_or_default().to_owned();
    match str_at(block, "type") {
        Some("text") if is_sub_agent => debug("sub-agent", &text("text")),
        Some("text") => AgentEvent::Text { text: text("text") },
        Some("thinking") => AgentEvent::Thinking {
            text: text("thinking"),
        },
        Some("tool_use" | "server_tool_use" | "mcp_tool_use") => AgentEvent::ToolCall {
            id: text("id"),
            name: text("name"),
            args: block["input"].clone(),
        },
        Some(kind) if kind.ends_with("tool_result") => tool_result(block),
        Some(_) | None => debug("block", &block.to_string()),
    }
}

fn tool_result(block: &Value) -> AgentEvent {
    AgentEvent::ToolResult {
        id: str_at(block, "tool_use_id").unwrap_or_default().to_owned(),
        output: flat(&block["content"]),
        is_error: block["is_error"].as_bool().unwrap_or(false),
        is_partial: false,
    }
}

/// The text of a tool's answer. What is no text is named.
fn flat(content: &Value) -> String {
    let part = |part: &Value| match (str_at(part, "type"), str_at(part, "text")) {
        (_, Some(text)) => text.to_owned(),
        (Some(kind), None) => format!("[{kind}]"),
        (None, None) => part.to_string(),
    };
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part).collect::<Vec<_>>().join("\n"),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
    }
}

/// The id of the call that a cut line answers.
fn cut_result_id(text: &str) -> Option<String> {
    let start = &text[..text.floor_char_boundary(CUT_LINE_LOOK)];
    if !start.starts_with(r#"{"type":"user""#) {
        return None;
    }
    let (_, rest) = start.split_once(r#""tool_use_id":""#)?;
    let (id, _) = rest.split_once('"')?;
    Some(id.to_owned())
}

/// The blocks of a line's message.
fn blocks(value: &Value) -> impl Iterator<Item = &Value> {
    let content = value["message"]["content"].as_array();
    content.into_iter().flatten()
}

fn str_at<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}
