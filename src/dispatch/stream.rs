//! What comes of a running agent: its output as events, its gateway's notices, and its end.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::classify::Exit;
use super::model::ModelAccess;
use super::record::RecordError;
use crate::adapter::EventParser;
use crate::adapter::lines::{Line, Lines};
use crate::gateway::Notice;
use crate::model::event::AgentEvent;
use crate::model::run::EndReason;
use crate::process::control::{self, Decoder, Order, Report};

/// How long the output of a process that is gone may take to run dry.
const DRAIN: Duration = Duration::from_secs(5);

/// What comes next of a run.
pub(super) enum Said {
    Agent(Vec<AgentEvent>),
    Gateway(Notice),
}

/// The agent's next events, or what its gateway has to say. Cancel-safe: both are.
pub(super) async fn next_said(stream: &mut Stream, access: Option<&mut ModelAccess>) -> Said {
    let notice = async {
        match access {
            Some(access) => match access.notices.recv().await {
                Some(notice) => notice,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        notice = notice => Said::Gateway(notice),
        events = stream.next() => Said::Agent(events),
    }
}

/// What an agent says, as events.
pub(super) struct Stream {
    stdout: Option<Lines<pipe::Receiver>>,
    stderr: Option<Lines<pipe::Receiver>>,
    control: Control,
    parser: Box<dyn EventParser>,
    exit: Option<Exit>,
    /// When the output of a process that is gone is read no longer.
    drained_at: Option<Instant>,
}

impl Stream {
    /// The agent's descriptors, and who understands it.
    pub(super) fn new(
        outputs: [OwnedFd; 2],
        control: std::os::unix::net::UnixStream,
        decoder: Decoder,
        parser: Box<dyn EventParser>,
    ) -> Result<Self, RecordError> {
        let [stdout, stderr] = outputs;
        Ok(Self {
            stdout: Some(lines(stdout)?),
            stderr: Some(lines(stderr)?),
            control: Control::new(control, decoder)?,
            parser,
            exit: None,
            drained_at: None,
        })
    }

    /// How the agent's process went; nothing while nobody saw it end.
    pub(super) fn exit(&self) -> Exit {
        self.exit.unwrap_or_default()
    }

    /// What the agent's end is, as events.
    pub(super) fn finish(&mut self, end: EndReason) -> Vec<AgentEvent> {
        let exit = self.exit();
        self.parser.finish(end, exit)
    }

    /// Whether nothing can come any more.
    pub(super) const fn is_over(&self) -> bool {
        self.exit.is_some() && self.stdout.is_none() && self.stderr.is_none()
    }

    /// What comes next; empty when something ended. Cancel-safe: each branch is.
    async fn next(&mut self) -> Vec<AgentEvent> {
        tokio::select! {
            line = next_line(&mut self.stdout) => match line {
                Some(line) => {
                    let events = self.parser.stdout_line(&line);
                    if self.parser.awaits_input() {
                        self.control.close_input();
                    }
                    events
                }
                None => { self.stdout = None; Vec::new() }
            },
            line = next_line(&mut self.stderr) => match line {
                Some(line) => self.parser.stderr_line(&line),
                None => { self.stderr = None; Vec::new() }
            },
            exit = self.control.exit(), if self.exit.is_none() => {
                self.exit = Some(exit);
                self.drained_at = Some(Instant::now() + DRAIN);
                Vec::new()
            }
            () = at(self.drained_at) => {
                // Something outside the run holds the pipe open; what it says is not the run's.
                (self.stdout, self.stderr) = (None, None);
                Vec::new()
            }
        }
    }
}

/// Waits until then; for ever where there is no then.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The next line; none at the end, or when it can't be read; never, when there is no stream.
async fn next_line(lines: &mut Option<Lines<pipe::Receiver>>) -> Option<Line> {
    match lines {
        Some(lines) => lines.next().await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// The shim's reports, until it is gone.
struct Control {
    socket: UnixStream,
    decoder: Decoder,
}

impl Control {
    fn new(socket: std::os::unix::net::UnixStream, decoder: Decoder) -> Result<Self, RecordError> {
        let socket = UnixStream::from_std(socket).map_err(RecordError::Listen)?;
        Ok(Self { socket, decoder })
    }

    /// Ends the agent's standard input: there is nothing to say to it. A few bytes on a socket that
    /// carries little else; where they find no room, the agent's silence ends it.
    fn close_input(&self) {
        let sent = control::encode(&Order::CloseInput)
            .map_err(|error| error.to_string())
            .and_then(|line| {
                self.socket
                    .try_write(&line)
                    .map_err(|error| error.to_string())
            });
        if let Err(error) = sent {
            tracing::warn!(error, "input not closed");
        }
    }

    /// How the agent ended; an empty exit when the shim went away without saying.
    async fn exit(&mut self) -> Exit {
        let mut piece = [0; 4096];
        loop {
            match self.decoder.message::<Report>() {
                Ok(Some(Report::Exited(exited))) => return exited.exit,
                Ok(Some(Report::InputRefused(refused))) => {
                    tracing::warn!(reason = %refused.reason, inputs = refused.inputs, "input refused");
                }
                Ok(Some(Report::Failed(failed))) => {
                    tracing::warn!(%failed, "shim gave up");
                    return Exit::default();
                }
                Ok(Some(Report::Started(_) | Report::Attested(_) | Report::Running(_))) => {}
                Ok(None) => match self.socket.read(&mut piece).await {
                    Ok(0) | Err(_) => return Exit::default(),
                    Ok(read) => self.decoder.push(piece.get(..read).unwrap_or_default()),
                },
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "shim not understood"
                    );
                    return Exit::default();
                }
            }
        }
    }
}

fn lines(descriptor: OwnedFd) -> Result<Lines<pipe::Receiver>, RecordError> {
    let receiver = pipe::Receiver::from_owned_fd(descriptor).map_err(RecordError::Listen)?;
    Ok(Lines::new(receiver))
}
