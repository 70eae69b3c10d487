//! Lines of a pipe, bounded: what an agent prints never decides how much memory we use.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The most of one line that is kept, in bytes.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// How much is read at once, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// One line, without its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its bytes, at most [`LINE_BYTES_MAX`] of them.
    pub bytes: Vec<u8>,
    /// How many bytes of it were dropped.
    pub dropped: u64,
}

impl Line {
    /// Appends what still fits, and counts the rest.
    fn extend(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.bytes.len();
        let (kept, dropped) = bytes.split_at(bytes.len().min(room));
        self.bytes.extend_from_slice(kept);
        self.dropped = self
            .dropped
            .saturating_add(u64::try_from(dropped.len()).unwrap_or(u64::MAX));
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        let mut line = Self::default();
        line.extend(text.as_bytes());
        line
    }
}

impl From<&[u8]> for Line {
    fn from(bytes: &[u8]) -> Self {
        let mut line = Self::default();
        line.extend(bytes);
        line
    }
}

/// Splits a stream at `\n`. A last line without one counts.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    chunk: Box<[u8]>,
    /// The part of `chunk` that was read and not yet looked at.
    unseen: std::ops::Range<usize>,
    line: Line,
    is_line_open: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Nothing is read until [`Lines::next`] is.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            chunk: vec![0; CHUNK_BYTES].into_boxed_slice(),
            unseen: 0..0,
            line: Line::default(),
            is_line_open: false,
        }
    }

    /// The next line; none at the end of the stream. Dropping the future loses nothing: what was
    /// read stays here.
    ///
    /// # Errors
    /// When the stream can't be read. What was read of the open line is kept for a next call.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            let read = self.reader.read(&mut self.chunk).await?;
            self.unseen = 0..read;
            if read == 0 {
                let is_open = std::mem::take(&mut self.is_line_open);
                return Ok(is_open.then(|| std::mem::take(&mut self.line)));
            }
        }
    }

    /// Moves unseen bytes to the open line, up to its end.
    fn take_line(&mut self) -> Option<Line> {
        let unseen = &self.chunk[self.unseen.clone()];
        if unseen.is_empty() {
            return None;
        }
        let Some(end) = unseen.iter().position(|byte| *byte == b'\n') else {
            self.line.extend(unseen);
            self.is_line_open = true;
            self.unseen = 0..0;
            return None;
        };
        self.line.extend(&unseen[..end]);
        self.unseen.start += end + 1;
        self.is_line_open = false;
        Some(std::mem::take(&mut self.line))
    }
}
