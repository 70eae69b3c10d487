//! Usage read from an answer on its way, whatever pieces it comes in.

use serde::Deserialize;

use crate::model::event::UsageReport;

/// The longest line of a stream that is looked at, in bytes. Those with usage are short.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// The longest answer in one piece whose usage can be read, in bytes.
const WHOLE_BYTES_MAX: usize = 8 << 20;

/// What was read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) model: Option<String>,
    pub(super) usage: UsageReport,
    /// Whether there was any usage in it.
    pub(super) has_usage: bool,
    /// Whether the answer's own end was seen.
    pub(super) is_complete: bool,
    /// The type of an error in the middle of it.
    pub(super) error: Option<String>,
}

/// Reads one answer.
#[derive(Debug)]
pub(super) enum Meter {
    /// Server-sent events.
    Stream(Lines),
    /// One JSON object.
    Whole {
        /// What came of it; none when it was too long.
        kept: Option<Vec<u8>>,
    },
    /// Nothing that is metered.
    Nothing,
}

/// The part of a stream that is not a whole line yet, and what the whole ones said.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// Whether the open line is longer than is looked at.
    is_skipped: bool,
    reading: Reading,
}

/// The parts of an event, or of a whole answer, that say something of usage.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    r#type: String,
    model: Option<String>,
    message: Option<Box<Part>>,
    usage: Option<Usage>,
    error: Option<ApiError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiError {
    r#type: String,
}

impl Meter {
    pub(super) fn stream() -> Self {
        Self::Stream(Lines::default())
    }

    pub(super) const fn whole() -> Self {
        Self::Whole {
            kept: Some(Vec::new()),
        }
    }

    /// Looks at the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Stream(lines) => lines.push(piece),
            Self::Whole { kept } => {
                if let Some(bytes) = kept
                    && bytes.len() + piece.len() <= WHOLE_BYTES_MAX
                {
                    bytes.extend_from_slice(piece);
                } else {
                    *kept = None;
                }
            }
            Self::Nothing => {}
        }
    }

    /// What was read, at the end or before it; none of what is not metered.
    pub(super) fn read(&self) -> Option<Reading> {
        match self {
            Self::Stream(lines) => Some(lines.reading.clone()),
            Self::Whole { kept } => {
                let mut reading = Reading::default();
                let part = kept.as_deref().map(serde_json::from_slice::<Part>);
                if let Some(Ok(part)) = part {
                    reading.take(&part);
                    reading.is_complete = reading.has_usage;
                }
                Some(reading)
            }
            Self::Nothing => None,
        }
    }
}

impl Lines {
    fn push(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.extend(&piece[..end]);
            self.end_line();
            piece = &piece[end + 1..];
        }
        self.extend(piece);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > LINE_BYTES_MAX {
            self.is_skipped = true;
            self.line.clear();
        }
        if !self.is_skipped {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        if !std::mem::take(&mut self.is_skipped)
            && let Some(data) = self.line.strip_prefix(b"data:")
            && is_of_interest(data)
            && let Ok(part) = serde_json::from_slice::<Part>(data)
        {
            self.reading.take(&part);
        }
        self.line.clear();
    }
}

/// Most lines carry a few words of text; to parse them all would cost more than to pass them on.
fn is_of_interest(data: &[u8]) -> bool {
    const WORDS: [&[u8]; 3] = [b"\"message_", b"\"usage\"", b"\"error\""];
    WORDS
        .iter()
        .any(|word| data.windows(word.len()).any(|part| part == *word))
}

impl Reading {
    fn take(&mut self, part: &Part) {
        match part.r#type.as_str() {
            "message_start" => {
                if let Some(message) = &part.message {
                    self.take_message(message);
                }
            }
            "message" | "message_delta" => self.take_message(part),
            "message_stop" => self.is_complete = true,
            "error" => {
                let error = part.error.as_ref().map(|error| error.r#type.clone());
                self.error = Some(error.unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Each figure is a sum so far: a later one replaces it.
    fn take_message(&mut self, part: &Part) {
        if let Some(model) = &part.model {
            self.model = Some(model.clone());
        }
        let Some(usage) = &part.usage else {
            return;
        };
        self.has_usage = true;
        let sums = &mut self.usage;
        for (sum, figure) in [
            (&mut sums.input_tokens, usage.input_tokens),
            (&mut sums.output_tokens, usage.output_tokens),
            (
                &mut sums.cached_write_tokens,
                usage.cache_creation_input_tokens,
            ),
            (&mut sums.cached_read_tokens, usage.cache_read_input_tokens),
        ] {
            if let Some(figure) = figure {
                *sum = figure;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m1\",\"model\":\"claude-x\",\"usage\":{\"input_tokens\":1200,\"cache_creation_input_tokens\":300,\"cache_read_input_tokens\":800,\"output_tokens\":1}}}\r\n\r\n\
        event: ping\ndata: {\"type\":\"ping\"}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"\\\"usage\\\": {} \\n message_stop\"}}\n\n\
        event: message_delta\ndata:{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":40}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

    fn read(mut meter: Meter, text: &str) -> Reading {
        meter.push(text.as_bytes());
        meter.read().expect("metered")
    }

    fn whole_stream() -> Reading {
        Reading {
            model: Some("claude-x".to_owned()),
            usage: UsageReport {
                input_tokens: 1200,
                output_tokens: 40,
                cached_read_tokens: 800,
                cached_write_tokens: 300,
                ..UsageReport::default()
            },
            has_usage: true,
            is_complete: true,
            error: None,
        }
    }

    #[test]
    fn a_stream_says_what_it_used_at_its_start_and_at_its_end() {
        assert_eq!(read(Meter::stream(), STREAM), whole_stream());
        let cut = &STREAM[..STREAM.find("event: message_delta").expect("there")];
        let seen = read(Meter::stream(), cut);
        assert_eq!(
            (seen.usage.input_tokens, seen.usage.output_tokens),
            (1200, 1)
        );
        assert!(seen.has_usage && !seen.is_complete);
    }

    #[test]
    fn an_error_in_a_stream_is_named() {
        let text = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
        let seen = read(Meter::stream(), text);
        assert_eq!(seen.error.as_deref(), Some("overloaded_error"));
        assert!(!seen.has_usage && !seen.is_complete);
    }

    #[test]
    fn an_answer_in_one_piece_is_read_at_its_end() {
        let text = r#"{"type":"message","model":"m","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":7,"output_tokens":3}}"#;
        let seen = read(Meter::whole(), text);
        assert_eq!(seen.usage.input_tokens, 7);
        assert!(seen.is_complete);
        let half = read(Meter::whole(), &text[..text.len() / 2]);
        assert_eq!(half, Reading::default());
        let mut meter = Meter::whole();
        for _ in 0..9 {
            meter.push(&vec![b' '; 1 << 20]);
        }
        assert_eq!(meter.read(), Some(Reading::default()));
    }

    #[test]
    fn what_is_no_event_changes_nothing() {
        for text in [
            "data: {not json \"usage\"\n\n",
            "data: {\"type\":\"message_start\"}\n",
            "data: {\"type\":\"message_delta\",\"usage\":7}\n",
            "data: []\n\"usage\"\n",
            ": comment \"usage\"\n",
        ] {
            assert_eq!(read(Meter::stream(), text), Reading::default(), "{text}");
        }
        let long = format!("data: {}\"usage\"\n", "x".repeat(LINE_BYTES_MAX));
        let both = format!("{long}{STREAM}");
        assert_eq!(read(Meter::stream(), &both), whole_stream());
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(cuts in vec(1..60_usize, 0..200)) {
            let mut meter = Meter::stream();
            let mut rest = STREAM.as_bytes();
            for cut in cuts {
                let (piece, left) = rest.split_at(cut.min(rest.len()));
                meter.push(piece);
                rest = left;
            }
            meter.push(rest);
            prop_assert_eq!(meter.read(), Some(whole_stream()));
        }

        #[test]
        fn no_bytes_make_it_panic(pieces in vec(vec(any::<u8>(), 0..100), 0..20)) {
            for mut meter in [Meter::stream(), Meter::whole()] {
                for piece in &pieces {
                    meter.push(piece);
                }
                let reading = meter.read().unwrap_or_default();
                prop_assert!(!reading.has_usage);
            }
        }
    }
}
