//! What comes of a running agent: its output as events, what it asked the daemon for, and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::classify::Exit;
use super::reach::{Heard, Reach};
use super::record::RecordError;
use crate::adapter::EventParser;
use crate::adapter::lines::{Line, Lines};
use crate::model::event::AgentEvent;
use crate::model::run::EndReason;
use crate::process::control::{self, Decoder, Input, Order, Report};

/// How long a shim may take to read an order. It does little else.
const SEND: Duration = Duration::from_secs(10);
/// How long the output of a process that is gone may take to run dry.
const DRAIN: Duration = Duration::from_secs(5);

/// What comes next of a run.
pub(super) enum Said {
    Agent(Vec<AgentEvent>),
    Daemon(Heard),
    /// So many of the last inputs did not reach the agent.
    Refused(u32),
}

/// The agent's next events, or what the daemon's side of it has to say. Cancel-safe: both are.
pub(super) async fn next_said(stream: &mut Stream, reach: &mut Reach) -> Said {
    tokio::select! {
        biased;
        heard = reach.next() => Said::Daemon(heard),
        said = stream.next() => said,
    }
}

/// What an agent says, as events.
pub(super) struct Stream {
    stdout: Option<Lines<pipe::Receiver>>,
    stderr: Option<Lines<pipe::Receiver>>,
    control: Control,
    parser: Box<dyn EventParser>,
    exit: Option<Exit>,
    /// Whether the agent can be given more to read.
    takes_input: bool,
    /// How many inputs were sent.
    inputs: u32,
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
            takes_input: true,
            inputs: 0,
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

    /// Whether its process is gone.
    pub(super) const fn has_exited(&self) -> bool {
        self.exit.is_some()
    }

    /// Whether the agent has ended its turn, and waits for more or for the end of its input.
    pub(super) fn awaits_input(&self) -> bool {
        self.takes_input && self.parser.awaits_input()
    }

    /// Gives the agent whole lines to read; whether they are on their way.
    pub(super) async fn send_input(&mut self, text: String) -> bool {
        if !self.takes_input {
            return false;
        }
        self.parser.note_input();
        self.takes_input = self.control.send(&Order::Input(Input { text })).await;
        self.inputs += u32::from(self.takes_input);
        self.takes_input
    }

    /// Ends the agent's input: there is nothing more to say to it.
    pub(super) async fn close_input(&mut self) {
        if std::mem::take(&mut self.takes_input) {
            self.control.send(&Order::CloseInput).await;
        }
    }

    /// Whether the agent's program has its session now.
    pub(super) fn has_session(&self) -> bool {
        self.parser.has_session()
    }

    /// Whether nothing can come any more.
    pub(super) const fn is_over(&self) -> bool {
        self.exit.is_some() && self.stdout.is_none() && self.stderr.is_none()
    }

    /// What comes next; empty when something ended. Cancel-safe: each branch is.
    async fn next(&mut self) -> Said {
        Said::Agent(tokio::select! {
            line = next_line(&mut self.stdout) => match line {
                Some(line) => self.parser.stdout_line(&line),
                None => { self.stdout = None; Vec::new() }
            },
            line = next_line(&mut self.stderr) => match line {
                Some(line) => self.parser.stderr_line(&line),
                None => { self.stderr = None; Vec::new() }
            },
            word = self.control.word(), if self.exit.is_none() => match word {
                Word::Exited(exit, heard) => {
                    self.exit = Some(exit);
                    self.drained_at = Some(Instant::now() + DRAIN);
                    self.takes_input = false;
                    match heard.map_or(0, |heard| self.inputs.saturating_sub(heard)) {
                        0 => Vec::new(),
                        unheard => return Said::Refused(unheard),
                    }
                }
                Word::Refused(inputs) => return Said::Refused(inputs),
            },
            () = at(self.drained_at) => {
                // Something outside the run holds the pipe open; what it says is not the run's.
                (self.stdout, self.stderr) = (None, None);
                Vec::new()
            }
        })
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

    /// Sends an order whole; whether it is on its way. Nothing more can be sent after one that is
    /// not.
    async fn send(&self, order: &Order) -> bool {
        let sent = match control::encode(order) {
            Ok(line) => tokio::time::timeout(SEND, self.write(&line)).await,
            Err(error) => Ok(Err(io::Error::other(error))),
        };
        let error = match sent {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error,
            Err(_elapsed) => io::ErrorKind::TimedOut.into(),
        };
        tracing::warn!(%error, "shim not told");
        false
    }

    async fn write(&self, mut line: &[u8]) -> io::Result<()> {
        while !line.is_empty() {
            self.socket.writable().await?;
            match self.socket.try_write(line) {
                Ok(written) => line = line.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next thing that it reports of the agent; an empty exit when it went away without saying.
    /// Cancel-safe: what was read is kept.
    async fn word(&mut self) -> Word {
        let mut piece = [0; 4096];
        loop {
            match self.decoder.message::<Report>() {
                Ok(Some(Report::Exited(exited))) => {
                    return Word::Exited(exited.exit, Some(exited.inputs));
                }
                Ok(Some(Report::InputRefused(refused))) => {
                    tracing::info!(reason = %refused.reason, inputs = refused.inputs, "input refused");
                    return Word::Refused(refused.inputs);
                }
                Ok(Some(Report::Failed(failed))) => {
                    tracing::warn!(%failed, "shim gave up");
                    return Word::Exited(Exit::default(), None);
                }
                Ok(Some(Report::Started(_) | Report::Attested(_) | Report::Running(_))) => {}
                Ok(None) => match self.socket.read(&mut piece).await {
                    Ok(0) | Err(_) => return Word::Exited(Exit::default(), None),
                    Ok(read) => self.decoder.push(piece.get(..read).unwrap_or_default()),
                },
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "shim not understood"
                    );
                    return Word::Exited(Exit::default(), None);
                }
            }
        }
    }
}

/// What a shim reports of its agent.
enum Word {
    /// It ended so; of the inputs that were sent, so many came as far as the shim, if it says.
    Exited(Exit, Option<u32>),
    /// It can't read so many inputs.
    Refused(u32),
}

fn lines(descriptor: OwnedFd) -> Result<Lines<pipe::Receiver>, RecordError> {
    let receiver = pipe::Receiver::from_owned_fd(descriptor).map_err(RecordError::Listen)?;
    Ok(Lines::new(receiver))
}
