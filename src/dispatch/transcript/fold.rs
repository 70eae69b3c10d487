//! The fold from events to segments.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::model::event::AgentEvent;
use crate::model::run::Usage;

use super::segment::{Segment, ToolState};

/// The most visible text of one run that is kept, in bytes. It has a share of its own, so that no
/// amount of tool output can push the answer out.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The most of everything else, in bytes.
pub const REST_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The most of one tool call's output, and of its arguments, in bytes.
pub const TOOL_BYTES_MAX: usize = 64 * 1024;

/// The most of an error's message, in bytes.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// The most of a call's id, a tool's name and the like, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// What a segment costs besides its text, in bytes: a flood of empty ones is bounded too.
const SEGMENT_BYTES: usize = 64;

/// A failure that an agent or its adapter reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedError {
    /// The structured code.
    pub code: Option<String>,
    /// In words.
    pub message: String,
}

/// The fold. Push every event in order, then [`Fold::close`].
#[derive(Clone, Debug)]
pub struct Fold {
    segments: Vec<Segment>,
    usage: Usage,
    model: Option<String>,
    last_error: Option<ReportedError>,
    has_done: bool,
    /// Where the last call of each id is.
    calls: BTreeMap<String, usize>,
    /// Where the calls without a final result are.
    running: BTreeSet<usize>,
    /// Where the [`Segment::Truncated`] is.
    truncated_at: Option<usize>,
    /// Bytes of visible text that still fit.
    text_left: usize,
    /// Bytes of everything else that still fit.
    rest_left: usize,
}

impl Default for Fold {
    fn default() -> Self {
        Self {
            segments: Vec::new(),
            usage: Usage::default(),
            model: None,
            last_error: None,
            has_done: false,
            calls: BTreeMap::new(),
            running: BTreeSet::new(),
            truncated_at: None,
            text_left: TEXT_BYTES_MAX,
            rest_left: REST_BYTES_MAX,
        }
    }
}

impl Fold {
    /// An empty transcript.
    pub fn new() -> Self {
        Self::default()
    }

    /// The segments so far.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Everything used so far.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The model that served last, if one was named.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The last error that was reported.
    pub const fn last_error(&self) -> Option<&ReportedError> {
        self.last_error.as_ref()
    }

    /// Whether the agent came to its end.
    pub const fn has_done(&self) -> bool {
        self.has_done
    }

    /// The answer: all visible text, its stretches as paragraphs. Empty when nothing was said.
    pub fn reply_text(&self) -> String {
        self.stretches().collect::<Vec<_>>().join("\n\n")
    }

    /// What was said last: between tool calls an agent says what it is about to do, and at its end
    /// what it did. Empty when nothing was said.
    pub fn last_text(&self) -> &str {
        self.stretches().next_back().unwrap_or_default()
    }

    /// The stretches of visible text.
    fn stretches(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.segments
            .iter()
            .enumerate()
            .filter_map(|(at, segment)| {
                let Segment::Text { text } = segment else {
                    return None;
                };
                let text = text.trim();
                (!text.is_empty() && !self.is_echo(at)).then_some(text)
            })
    }

    /// How often each tool was called, by name.
    pub fn tools(&self) -> BTreeMap<&str, u32> {
        let mut calls: BTreeMap<_, u32> = BTreeMap::new();
        for segment in &self.segments {
            if let Segment::Tool {
                name: Some(name), ..
            } = segment
            {
                let count = calls.entry(name.as_str()).or_default();
                *count = count.saturating_add(1);
            }
        }
        calls
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Thinking { text } => self.push_reasoning(text),
            AgentEvent::Text { text } => self.push_text(text),
            AgentEvent::ToolCall { id, name, args } => self.push_call(id, name, args),
            AgentEvent::ToolResult {
                id,
                output,
                is_error,
                is_partial,
            } => {
                let state = match (is_partial, is_error) {
                    (true, _) => ToolState::Running,
                    (false, true) => ToolState::Error,
                    (false, false) => ToolState::Ok,
                };
                self.push_result(id, output, state);
            }
            AgentEvent::Usage { model, usage } => {
                self.usage.add(&Usage::from(*usage));
                if let Some(model) = model {
                    self.model = Some(fitting(model, NAME_BYTES_MAX).to_owned());
                }
            }
            AgentEvent::Error { message, code } => self.push_error(message, code.as_deref()),
            AgentEvent::SandboxViolation { operation, source } => {
                let operation = fitting(operation, NAME_BYTES_MAX).to_owned();
                let source = fitting(source, NAME_BYTES_MAX).to_owned();
                let size = operation.len() + source.len();
                self.open_rest(size, Segment::Violation { operation, source });
            }
            AgentEvent::Debug { message: _ } => {}
            AgentEvent::Done {} => self.has_done = true,
        }
    }

    /// No more events come: what still runs was interrupted. Closing twice changes nothing.
    pub fn close(&mut self) {
        self.blank_if_echo(self.segments.len().wrapping_sub(1));
        for at in std::mem::take(&mut self.running) {
            if let Some(Segment::Tool { state, .. }) = self.segments.get_mut(at) {
                *state = ToolState::Interrupted;
            }
        }
    }

    fn push_reasoning(&mut self, more: &str) {
        if !matches!(self.segments.last(), Some(Segment::Reasoning { .. })) {
            let text = String::new();
            if !self.open_rest(0, Segment::Reasoning { text }) {
                return self.note_dropped(more.len());
            }
        }
        let kept = fitting(more, self.rest_left);
        self.rest_left -= kept.len();
        if let Some(Segment::Reasoning { text }) = self.segments.last_mut() {
            text.push_str(kept);
        }
        self.note_dropped(more.len() - kept.len());
    }

    fn push_text(&mut self, more: &str) {
        if !matches!(self.segments.last(), Some(Segment::Text { .. })) {
            let Some(left) = self.text_left.checked_sub(SEGMENT_BYTES) else {
                return self.note_dropped(more.len());
            };
            self.text_left = left;
            let text = String::new();
            self.open(Segment::Text { text });
        }
        let kept = fitting(more, self.text_left);
        self.text_left -= kept.len();
        if let Some(Segment::Text { text }) = self.segments.last_mut() {
            text.push_str(kept);
        }
        self.note_dropped(more.len() - kept.len());
    }

    fn push_call(&mut self, id: &str, name: &str, args: &Value) {
        let id = fitting(id, NAME_BYTES_MAX);
        let name = fitting(name, NAME_BYTES_MAX);
        let json = args.to_string();
        let short = fitting(&json, TOOL_BYTES_MAX);
        let args = match short.len() == json.len() {
            true => args.clone(),
            false => Value::String(short.to_owned()),
        };
        let call = Segment::Tool {
            id: id.to_owned(),
            name: Some(name.to_owned()),
            args,
            output: String::new(),
            output_dropped: 0,
            state: ToolState::Running,
        };
        if self.open_rest(id.len() + name.len() + short.len(), call) {
            let at = self.segments.len() - 1;
            self.calls.insert(id.to_owned(), at);
            self.running.insert(at);
        }
    }

    /// A result belongs to the call with its id, else to the last call that has none yet, else to
    /// no call. Once calls may be missing, the second would be a guess.
    fn push_result(&mut self, id: &str, more: &str, new_state: ToolState) {
        let id = fitting(id, NAME_BYTES_MAX);
        let last_running = || self.running.last().copied();
        let found = match (self.calls.get(id), self.truncated_at) {
            (Some(at), _) => Some(*at),
            (None, None) => last_running(),
            (None, Some(_)) => return self.note_dropped(more.len()),
        };
        let at = if let Some(at) = found {
            at
        } else {
            let orphan = Segment::Tool {
                id: id.to_owned(),
                name: None,
                args: Value::Null,
                output: String::new(),
                output_dropped: 0,
                state: new_state,
            };
            if !self.open_rest(id.len(), orphan) {
                return self.note_dropped(more.len());
            }
            self.calls.insert(id.to_owned(), self.segments.len() - 1);
            self.segments.len() - 1
        };
        let mut unseen = 0;
        if let Some(Segment::Tool {
            output,
            output_dropped,
            state,
            ..
        }) = self.segments.get_mut(at)
        {
            let by_call = fitting(more, TOOL_BYTES_MAX - output.len());
            let kept = fitting(by_call, self.rest_left);
            self.rest_left -= kept.len();
            output.push_str(kept);
            *output_dropped = output_dropped.saturating_add(count(more.len() - kept.len()));
            *state = new_state;
            unseen = by_call.len() - kept.len();
        }
        match new_state {
            ToolState::Running => self.running.insert(at),
            ToolState::Ok | ToolState::Error | ToolState::Interrupted => self.running.remove(&at),
        };
        self.note_dropped(unseen);
    }

    fn push_error(&mut self, message: &str, code: Option<&str>) {
        let message = fitting(message, MESSAGE_BYTES_MAX).to_owned();
        let code = code.map(|code| fitting(code, NAME_BYTES_MAX).to_owned());
        self.last_error = Some(ReportedError {
            code: code.clone(),
            message: message.clone(),
        });
        let size = message.len() + code.as_ref().map_or(0, String::len);
        self.open_rest(size, Segment::Error { message, code });
    }

    /// Opens a segment of `size` bytes of text if it fits; else notes what is missing.
    fn open_rest(&mut self, size: usize, segment: Segment) -> bool {
        let Some(left) = self.rest_left.checked_sub(size + SEGMENT_BYTES) else {
            self.note_dropped(size);
            return false;
        };
        self.rest_left = left;
        self.open(segment);
        true
    }

    fn open(&mut self, segment: Segment) {
        self.segments.push(segment);
        // The one before is complete now, and both its neighbours are known.
        self.blank_if_echo(self.segments.len().wrapping_sub(2));
    }

    fn note_dropped(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let at = *self.truncated_at.get_or_insert_with(|| {
            self.segments.push(Segment::Truncated { bytes: 0 });
            self.segments.len() - 1
        });
        if let Some(Segment::Truncated { bytes: sum }) = self.segments.get_mut(at) {
            *sum = sum.saturating_add(count(bytes));
        }
    }

    /// Some agents print a tool's arguments as text beside the call. They are shown once.
    fn blank_if_echo(&mut self, at: usize) {
        if self.is_echo(at)
            && let Some(Segment::Text { text }) = self.segments.get_mut(at)
        {
            text.clear();
        }
    }

    /// Whether the segment is text that says just what the call before or after it has as
    /// arguments.
    fn is_echo(&self, at: usize) -> bool {
        let Some(Segment::Text { text }) = self.segments.get(at) else {
            return false;
        };
        let text = text.trim();
        let neighbours = [at.checked_sub(1), at.checked_add(1)];
        let mut args =
            neighbours
                .into_iter()
                .flatten()
                .filter_map(|at| match self.segments.get(at) {
                    Some(Segment::Tool { args, .. }) => Some(args),
                    _ => None,
                });
        let is_structured = text.starts_with(['{', '[']) && text.len() <= TOOL_BYTES_MAX;
        is_structured
            && args.any(|args| {
                serde_json::from_str::<Value>(text).is_ok_and(|repeated| repeated == *args)
            })
    }
}

/// As much of the beginning of `text` as fits in `room` bytes.
fn fitting(text: &str, room: usize) -> &str {
    &text[..text.floor_char_boundary(room)]
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
