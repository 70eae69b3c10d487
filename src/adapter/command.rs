//! `command`: any program, with the prompt on its standard input and text or events on its
//! standard output.

use std::collections::BTreeMap;

use crate::model::event::AgentEvent;
use crate::model::process::Exit;
use crate::model::run::EndReason;
use crate::model::spec::{AdapterSpec, OutputFormat};

use super::lines::Line;
use super::note::{self, debug};
use super::{Adapter, Capabilities, EventParser, Launch, LaunchError, LaunchSpec};
use super::{env, program};

/// The adapter.
#[derive(Debug)]
pub(super) struct Command {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    output: OutputFormat,
}

impl Command {
    pub(super) fn new(spec: &AdapterSpec) -> Self {
        Self {
            command: spec.command.clone(),
            args: spec.args.clone(),
            env: spec.env.clone(),
            output: spec.output,
        }
    }
}

impl Adapter for Command {
    fn capabilities(&self) -> Capabilities {
        let speaks_events = self.output == OutputFormat::JsonLines;
        Capabilities {
            reports_usage: speaks_events,
            reports_cost: speaks_events,
            ..Capabilities::default()
        }
    }

    fn launch(&self, spec: &LaunchSpec<'_>) -> Result<Launch, LaunchError> {
        let env = env::build(spec, &self.env)?;
        let command = self.command.as_deref();
        let command = command.ok_or(LaunchError::ProgramNotNamed)?;
        let path = program::resolve(command, spec.search_path)?;
        // Both parts of the path were text.
        let mut argv = vec![path.to_string_lossy().into_owned()];
        argv.extend(self.args.iter().cloned());
        program::refuse_nul(&argv)?;
        Ok(Launch {
            argv,
            env,
            stdin: spec.prompt.to_owned(),
            keeps_stdin: false,
            files: Vec::new(),
        })
    }

    fn parser(&self) -> Box<dyn EventParser> {
        Box::new(Parser {
            output: self.output,
            has_done: false,
            has_error: false,
        })
    }
}

/// Reads one run. In text, every line is text and the process's end is the run's; in JSON lines,
/// what the agent says about its own end goes before its exit code.
#[derive(Debug)]
struct Parser {
    output: OutputFormat,
    has_done: bool,
    has_error: bool,
}

impl EventParser for Parser {
    fn stdout_line(&mut self, line: &Line) -> Vec<AgentEvent> {
        let text = String::from_utf8_lossy(&line.bytes);
        let text = text.strip_suffix('\r').unwrap_or(&text);
        let mut events = match self.output {
            OutputFormat::Text => vec![AgentEvent::Text {
                text: format!("{text}\n"),
            }],
            OutputFormat::JsonLines if text.trim().is_empty() => Vec::new(),
            OutputFormat::JsonLines => self.event(text),
        };
        events.extend(note::dropped("standard output", line));
        events
    }

    fn stderr_line(&mut self, line: &Line) -> Vec<AgentEvent> {
        let text = String::from_utf8_lossy(&line.bytes);
        let mut events = vec![debug("stderr", &text)];
        events.extend(note::dropped("standard error", line));
        events
    }

    fn finish(&mut self, end: EndReason, exit: Exit) -> Vec<AgentEvent> {
        if end != EndReason::AgentFinished {
            return vec![AgentEvent::Debug {
                message: format!("ended: {end}"),
            }];
        }
        if exit == Exit::default() || self.has_done {
            return Vec::new();
        }
        self.has_done = true;
        let failure = match self.has_error {
            true => None,
            false => note::exit_failure(exit).map(|(code, message)| AgentEvent::Error {
                message,
                code: Some(code.to_owned()),
            }),
        };
        failure.into_iter().chain([AgentEvent::Done {}]).collect()
    }
}

impl Parser {
    /// The event of one JSON line. What is none, or what an agent has no business to say, is a
    /// `debug` event that quotes it: nothing is lost, and nothing is believed.
    fn event(&mut self, text: &str) -> Vec<AgentEvent> {
        if !text.trim_start().starts_with('{') {
            return vec![debug("not an event", text)];
        }
        let event = match serde_json::from_str::<AgentEvent>(text) {
            Ok(event) => event,
            Err(error) => return vec![debug(&format!("not an event ({error})"), text)],
        };
        if let AgentEvent::Usage { usage, .. } = &event {
            // Usage counts even after `done`: it was spent.
            return vec![match note::is_plausible(usage) {
                true => event,
                false => debug("usage beyond all measure", text),
            }];
        }
        if self.has_done {
            return vec![debug("after done", text)];
        }
        match event {
            AgentEvent::SandboxViolation { .. } => {
                return vec![debug("only a sandbox reports violations", text)];
            }
            AgentEvent::Debug { message } => return vec![debug("agent", &message)],
            AgentEvent::Done {} => self.has_done = true,
            AgentEvent::Error { .. } => self.has_error = true,
            AgentEvent::Thinking { .. }
            | AgentEvent::Text { .. }
            | AgentEvent::ToolCall { .. }
            | AgentEvent::ToolResult { .. }
            | AgentEvent::Usage { .. } => {}
        }
        vec![event]
    }
}
