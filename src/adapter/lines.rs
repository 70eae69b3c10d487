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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// A stream that arrives in these pieces; before each it makes the reader wait once.
    struct Pieces {
        pieces: Vec<Vec<u8>>,
        is_ready: bool,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.is_ready = !self.is_ready;
            if self.is_ready {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(piece) = self.pieces.first_mut() {
                let some = piece.len().min(buffer.remaining());
                buffer.put_slice(&piece[..some]);
                piece.drain(..some);
                if piece.is_empty() {
                    self.pieces.remove(0);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    /// All lines. Every future that has to wait is dropped, as a `select!` would.
    async fn lines_of(pieces: Vec<Vec<u8>>) -> Vec<Line> {
        let mut lines = Lines::new(Pieces {
            pieces,
            is_ready: false,
        });
        let mut all = Vec::new();
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line.expect("a stream that works"),
                () = std::future::ready(()) => continue,
            };
            match line {
                Some(line) => all.push(line),
                None => return all,
            }
        }
    }

    #[tokio::test]
    async fn lines_do_not_depend_on_how_they_arrive() {
        let text = b"one\n\ntwo\r\nno newline";
        let expected: Vec<Line> = ["one", "", "two\r", "no newline"]
            .into_iter()
            .map(Line::from)
            .collect();
        for size in 1..=text.len() {
            let pieces = text.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(lines_of(pieces).await, expected, "in pieces of {size}");
        }
        assert!(lines_of(Vec::new()).await.is_empty());
        assert_eq!(lines_of(vec![b"\n".to_vec()]).await, [Line::default()]);
    }

    #[tokio::test]
    async fn a_long_line_is_cut_and_the_next_one_is_whole() {
        let mut stream = vec![b'x'; LINE_BYTES_MAX + 3];
        stream.extend(b"\nnext\n");
        stream.extend(vec![b'y'; LINE_BYTES_MAX]);
        let lines = lines_of(vec![stream]).await;
        let sizes: Vec<_> = lines
            .iter()
            .map(|line| (line.bytes.len(), line.dropped))
            .collect();
        assert_eq!(sizes, [(LINE_BYTES_MAX, 3), (4, 0), (LINE_BYTES_MAX, 0)]);
    }

    #[tokio::test]
    async fn the_end_stays_the_end() {
        let mut lines = Lines::new(&b"half"[..]);
        assert_eq!(lines.next().await.ok(), Some(Some(Line::from("half"))));
        assert_eq!(lines.next().await.ok(), Some(None));
        assert_eq!(lines.next().await.ok(), Some(None));
    }
}
