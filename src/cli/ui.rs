//! The terminal: results on standard output, talk on standard error.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::error::{CliError, CliResult, Kind, OrFail};

/// Where a command writes. A reader that has seen enough (a closed pipe) is not an error: what
/// follows is dropped, and the exit code stays true.
pub(crate) struct Ui {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    is_coloured: bool,
    is_closed: bool,
    said: BTreeSet<String>,
}

impl fmt::Debug for Ui {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ui")
            .field("is_coloured", &self.is_coloured)
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}

impl Ui {
    /// The process's own streams. Standard output is coloured when it is a terminal, unless
    /// `no_colour`.
    pub(crate) fn of_process(no_colour: bool) -> Self {
        let out = io::stdout();
        let is_coloured = !no_colour && out.is_terminal();
        Self {
            out: Box::new(io::BufWriter::new(out)),
            err: Box::new(io::stderr()),
            is_coloured,
            is_closed: false,
            said: BTreeSet::new(),
        }
    }

    /// Whether results may be coloured.
    pub(crate) const fn is_coloured(&self) -> bool {
        self.is_coloured
    }

    /// Whether nobody reads standard output any more. A stream of results ends then.
    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Writes a result, as it is.
    ///
    /// # Errors
    /// When standard output cannot be written, other than by being closed.
    pub(crate) fn result(&mut self, text: &str) -> CliResult<()> {
        self.write(|out| out.write_all(text.as_bytes()))
    }

    /// Writes a result and a newline.
    ///
    /// # Errors
    /// As [`Ui::result`].
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> CliResult<()> {
        self.write(|out| writeln!(out, "{text}"))
    }

    /// Writes a result as indented JSON and a newline.
    ///
    /// # Errors
    /// As [`Ui::result`].
    pub(crate) fn json(&mut self, value: &impl Serialize) -> CliResult<()> {
        let text = serde_json::to_string_pretty(value)
            .or_fail(Kind::Internal, "failed to write a result as JSON")?;
        self.line(text)
    }

    /// Writes a result as JSON on one line.
    ///
    /// # Errors
    /// As [`Ui::result`].
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> CliResult<()> {
        let text = serde_json::to_string(value)
            .or_fail(Kind::Internal, "failed to write a result as JSON")?;
        self.line(text)
    }

    /// Hands on what was written, for a stream of results.
    ///
    /// # Errors
    /// As [`Ui::result`].
    pub(crate) fn flush(&mut self) -> CliResult<()> {
        self.write(|out| out.flush())
    }

    /// Says something that is not a result. Nobody depends on it: it may be lost.
    pub(crate) fn say(&mut self, text: impl fmt::Display) {
        let _unheard = writeln!(self.err, "{text}").is_err();
    }

    /// Says something that is not a result, unless it was said before: what holds for several
    /// commands of one process is said by the first.
    pub(crate) fn say_once(&mut self, text: impl fmt::Display) {
        let text = text.to_string();
        if !self.said.contains(&text) {
            self.say(&text);
            self.said.insert(text);
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> CliResult<()> {
        if self.is_closed {
            return Ok(());
        }
        match write(&mut self.out) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            Err(error) => Err(CliError::caused(
                Kind::Usage,
                "failed to write to standard output",
                &error,
            )),
        }
    }

    /// A Ui whose streams are `out` and `err`, not coloured.
    #[cfg(test)]
    pub(crate) fn of(out: impl Write + 'static, err: impl Write + 'static) -> Self {
        Self {
            out: Box::new(out),
            err: Box::new(err),
            is_coloured: false,
            is_closed: false,
            said: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
        let mut ui = Ui::of(Broken(io::ErrorKind::BrokenPipe), io::sink());
        assert!(!ui.is_closed());
        assert!(ui.line("one").is_ok() && ui.is_closed());
        assert!(ui.result("two").is_ok());

        let mut ui = Ui::of(Broken(io::ErrorKind::StorageFull), io::sink());
        assert_eq!(ui.line("one").map_err(|e| e.kind()), Err(Kind::Usage));
    }
}
