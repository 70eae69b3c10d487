//! The shim's end of the control socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::signals::{Notice, Signals};
use crate::process::control::{self, ControlError, Decoder, Failed, Order, Report, Stage};
use crate::process::deadline::{Deadline, poll_until};

/// How long the daemon may leave a few hundred bytes unread before it counts as gone.
const DELIVERY: Duration = Duration::from_secs(10);

/// The control socket, non-blocking.
#[derive(Debug)]
pub(super) struct Link {
    socket: UnixStream,
    decoder: Decoder,
}

/// What the daemon has to say.
#[derive(Debug)]
pub(super) enum Heard {
    /// This.
    Order(Order),
    /// Nothing at the moment.
    Nothing,
    /// Nothing any more: it is gone, or has asked for an end.
    Over,
}

impl Link {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            decoder: Decoder::default(),
        }
    }

    /// Says something. That the daemon is gone is noticed when listening to it.
    pub(super) fn send(&mut self, report: &Report) {
        // No report comes near the limit, and none holds a path.
        if let Ok(line) = control::encode(report) {
            self.write(&line);
        }
    }

    /// Says something if the daemon has room for it, without waiting. Whether it is said.
    pub(super) fn try_send(&mut self, report: &Report) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        let has_room = matches!(
            poll_until(&mut fds, Some(Deadline::after(Duration::ZERO))),
            Ok(true)
        );
        if has_room {
            self.send(report);
        }
        has_room
    }

    fn write(&mut self, line: &[u8]) {
        let deadline = Deadline::after(DELIVERY);
        let mut rest = line;
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
                    if !matches!(poll_until(&mut fds, Some(deadline)), Ok(true)) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Waits for the next order before there is an agent; a request to end is an end.
    pub(super) fn wait(&mut self, signals: &Signals) -> Result<Heard, Failed> {
        loop {
            match self.hear()? {
                Heard::Nothing => {}
                heard @ (Heard::Order(_) | Heard::Over) => return Ok(heard),
            }
            let mut fds = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            poll_until(&mut fds, None).map_err(|error| failed(Stage::Protocol, "wait", &error))?;
            while let Some(notice) = signals
                .next()
                .map_err(|error| failed(Stage::Protocol, "read a signal", &error))?
            {
                match notice {
                    Notice::End => return Ok(Heard::Over),
                    Notice::Child => {}
                }
            }
        }
    }

    /// What has arrived.
    pub(super) fn hear(&mut self) -> Result<Heard, Failed> {
        let mut piece = [0; 64 << 10];
        loop {
            if let Some(order) = self
                .decoder
                .message()
                .map_err(|error| misunderstood(&error))?
            {
                return Ok(Heard::Order(order));
            }
            match self.socket.read(&mut piece) {
                Ok(0) => return Ok(Heard::Over),
                Ok(read) => self.decoder.push(piece.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Heard::Nothing);
                }
                Err(_) => return Ok(Heard::Over),
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A failure of the system, said with what it was about.
pub(super) fn failed(stage: Stage, doing: &str, error: &io::Error) -> Failed {
    Failed {
        stage,
        errno: error.raw_os_error(),
        message: format!("{doing}: {error}"),
    }
}

/// A failure that is nobody's but ours or the daemon's.
pub(super) fn refused(stage: Stage, message: impl Into<String>) -> Failed {
    Failed {
        stage,
        errno: None,
        message: message.into(),
    }
}

/// The parser's own words may quote the message, and with it a secret.
fn misunderstood(error: &ControlError) -> Failed {
    let message = match error {
        ControlError::Decode(at) => format!("not an order, at column {}", at.column()),
        ControlError::TooLong | ControlError::Encode(_) | ControlError::Version { .. } => {
            error.to_string()
        }
    };
    refused(Stage::Protocol, message)
}
