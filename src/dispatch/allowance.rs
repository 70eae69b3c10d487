//! How much of what one run emits is kept: what an agent prints never decides how much disk, or
//! memory at its recovery, it takes.

use super::transcript::TEXT_BYTES_MAX;
use crate::model::event::AgentEvent;

/// The most that a run may log before only the essential is kept, in bytes.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// The same in events.
const EVENTS_MAX: usize = 200_000;
/// The most of usage and errors that is kept after that, in bytes.
const ESSENTIAL_BYTES_MAX: usize = 8 << 20;
/// The same in events.
const ESSENTIAL_EVENTS_MAX: usize = 20_000;

/// What an event is taken out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// What is there for every event.
    Any,
    /// The answer's own: tool output that filled the log cannot push it out.
    Text,
    /// That of usage and errors.
    Essential,
    /// That of the word that the agent is done.
    Done,
}

/// What is left of a share. The event that uses it up is still kept.
#[derive(Clone, Copy, Debug)]
struct Left {
    bytes: usize,
    events: usize,
}

impl Left {
    const fn is_some(self) -> bool {
        self.bytes > 0 && self.events > 0
    }
}

/// What one run may still log.
#[derive(Debug)]
pub(super) struct Allowance {
    any: Left,
    text: Left,
    essential: Left,
    done: Left,
    dropped_events: u64,
    dropped_bytes: u64,
}

impl Allowance {
    pub(super) const fn new() -> Self {
        Self {
            any: Left {
                bytes: EVENT_BYTES_MAX,
                events: EVENTS_MAX,
            },
            text: Left {
                bytes: TEXT_BYTES_MAX,
                events: ESSENTIAL_EVENTS_MAX,
            },
            essential: Left {
                bytes: ESSENTIAL_BYTES_MAX,
                events: ESSENTIAL_EVENTS_MAX,
            },
            done: Left {
                bytes: usize::MAX,
                events: 1,
            },
            dropped_events: 0,
            dropped_bytes: 0,
        }
    }

    /// What `event` may be taken out of; none: it is to be dropped.
    pub(super) const fn share_for(&self, event: &AgentEvent) -> Option<Share> {
        let (share, left) = if self.any.is_some() {
            (Share::Any, self.any)
        } else {
            match event {
                AgentEvent::Text { .. } => (Share::Text, self.text),
                AgentEvent::Usage { .. } | AgentEvent::Error { .. } => {
                    (Share::Essential, self.essential)
                }
                AgentEvent::Done {} => (Share::Done, self.done),
                AgentEvent::Thinking { .. }
                | AgentEvent::ToolCall { .. }
                | AgentEvent::ToolResult { .. }
                | AgentEvent::SandboxViolation { .. }
                | AgentEvent::Debug { .. } => return None,
            }
        };
        if left.is_some() { Some(share) } else { None }
    }

    /// Takes an event that is `bytes` long in the log out of `share`.
    pub(super) const fn spend(&mut self, share: Share, bytes: usize) {
        let left = match share {
            Share::Any => &mut self.any,
            Share::Text => &mut self.text,
            Share::Essential => &mut self.essential,
            Share::Done => &mut self.done,
        };
        left.bytes = left.bytes.saturating_sub(bytes);
        left.events = left.events.saturating_sub(1);
    }

    /// Notes that `event` was dropped.
    pub(super) fn note_dropped(&mut self, event: &AgentEvent) {
        let bytes = serde_json::to_vec(event).map_or(0, |json| json.len());
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.dropped_events = self.dropped_events.saturating_add(1);
        self.dropped_bytes = self.dropped_bytes.saturating_add(bytes);
    }

    /// What is said at the end of what was dropped, if anything was.
    pub(super) fn last_word(&self) -> Option<AgentEvent> {
        let Self {
            dropped_events,
            dropped_bytes,
            ..
        } = self;
        (*dropped_events > 0).then(|| AgentEvent::Debug {
            message: format!(
                "dropped {dropped_events} events ({dropped_bytes} bytes): after {EVENTS_MAX} \
                 events or {EVENT_BYTES_MAX} bytes only the essential is kept"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Allowance, ESSENTIAL_BYTES_MAX, ESSENTIAL_EVENTS_MAX, EVENT_BYTES_MAX, EVENTS_MAX,
    };
    use crate::dispatch::transcript::TEXT_BYTES_MAX;
    use crate::model::event::{AgentEvent, UsageReport};

    /// How many of `count` events of `bytes` each are kept.
    fn kept(allowance: &mut Allowance, event: &AgentEvent, count: usize, bytes: usize) -> usize {
        let mut kept = 0;
        for _ in 0..count {
            match allowance.share_for(event) {
                Some(share) => {
                    allowance.spend(share, bytes);
                    kept += 1;
                }
                None => allowance.note_dropped(event),
            }
        }
        kept
    }

    fn text() -> AgentEvent {
        AgentEvent::Text {
            text: "y".to_owned(),
        }
    }

    fn tool() -> AgentEvent {
        AgentEvent::ToolResult {
            id: "1".to_owned(),
            output: "y".to_owned(),
            is_error: false,
            is_partial: true,
        }
    }

    #[test]
    fn a_flood_is_bounded_by_events_and_by_bytes() {
        let most = EVENTS_MAX + ESSENTIAL_EVENTS_MAX;
        assert_eq!(kept(&mut Allowance::new(), &text(), 10 * most, 40), most);
        let piece = 1 << 20;
        let most = (EVENT_BYTES_MAX + TEXT_BYTES_MAX) / piece;
        assert_eq!(kept(&mut Allowance::new(), &text(), 10 * most, piece), most);
        let error = AgentEvent::Error {
            message: String::new(),
            code: None,
        };
        let most = (EVENT_BYTES_MAX + ESSENTIAL_BYTES_MAX) / piece;
        assert_eq!(kept(&mut Allowance::new(), &error, 10 * most, piece), most);
    }

    #[test]
    fn after_a_flood_the_essential_is_kept_and_the_rest_is_counted() {
        let mut allowance = Allowance::new();
        assert_eq!(allowance.last_word(), None);
        assert_eq!(
            kept(&mut allowance, &tool(), EVENTS_MAX + 7, 40),
            EVENTS_MAX
        );
        let usage = AgentEvent::Usage {
            model: None,
            usage: UsageReport::default(),
        };
        let error = AgentEvent::Error {
            message: "no".to_owned(),
            code: None,
        };
        for event in [text(), usage, error] {
            assert_eq!(kept(&mut allowance, &event, 3, 40), 3, "{event:?}");
        }
        let size = serde_json::to_vec(&tool()).unwrap().len();
        let Some(AgentEvent::Debug { message }) = allowance.last_word() else {
            panic!("nothing is said of it");
        };
        let told = format!("dropped 7 events ({} bytes)", 7 * size);
        assert!(message.starts_with(&told), "{message}");
        // An agent says only once that it is done.
        assert_eq!(kept(&mut allowance, &AgentEvent::Done {}, 3, 40), 1);
    }
}
