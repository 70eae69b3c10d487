//! A text that comes in pieces.

use super::redactor::Redactor;

/// So much is held back at most, in bytes. A finding that is longer than this loses its tail's
/// protection: what lies beyond is judged on its own.
pub const HOLD_MAX: usize = 64 * 1024;

/// One text in the making. It holds what may yet become a finding.
#[derive(Default)]
pub struct Stream {
    /// The last character that was said, as context, and what is held.
    buffer: String,
    /// Where in `buffer` the context ends.
    said: usize,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Takes the next piece and gives what may be said.
    pub fn feed(&mut self, redactor: &Redactor, piece: &str) -> String {
        let mut out = String::new();
        let mut rest = piece;
        while !rest.is_empty() {
            // A huge piece is taken in portions, so that the buffer is bounded.
            let (portion, after) = rest.split_at(rest.floor_char_boundary(HOLD_MAX));
            rest = after;
            self.buffer.push_str(portion);
            out.push_str(&self.advance(redactor, false));
            if self.held() > HOLD_MAX {
                out.push_str(&self.advance(redactor, true));
            }
        }
        out
    }

    /// The text is over: gives what was held.
    pub fn finish(mut self, redactor: &Redactor) -> String {
        self.advance(redactor, true)
    }

    /// How many bytes are held.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.said
    }

    fn advance(&mut self, redactor: &Redactor, is_end: bool) -> String {
        let judgement = redactor.judge(&self.buffer, self.said, is_end);
        self.buffer.drain(..judgement.context);
        self.said = judgement.cut - judgement.context;
        judgement.said
    }
}
