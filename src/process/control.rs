//! What the daemon and a shim say to each other, as JSON lines over one socket pair.
//!
//! ```text
//! shim   → started   version, identity          nothing else has happened yet
//! daemon → prepare   version, uid, gid, cgroup  after the identity is stored
//! shim   → attested  what the kernel says of it  after privileges are gone for good
//! daemon → launch    argv, env, cwd, stdin       secrets and prompt, only now
//! shim   → running   child
//! daemon → input     more for standard input     any number of times, if it was left open
//! daemon → closeInput                            its end
//! shim   → inputRefused                          what could not be kept for the agent
//! shim   → exited    code or signal, what was killed, what is left
//! ```
//!
//! Input is taken whole or not at all, in order, and waits in the shim until the agent reads it: an
//! agent that never does costs the shim [`INPUT_BYTES_MAX`] and nothing else.
//!
//! `failed` may stand for any of the shim's messages and is its last. The end of the stream, in
//! either direction, means that the other side is gone: the shim ends the run, the daemon looks for
//! what is left of it. Both sides refuse another [`VERSION`] before they read anything else.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::process::{Exit, ProcessIdentity};

/// The version of this protocol. Daemon and shim are one binary; they differ when the file was
/// replaced under a running daemon.
pub const VERSION: u32 = 2;

/// The longest message, its line end included: 8 MiB.
pub const MAX_MESSAGE: usize = 8 << 20;

/// The most input that a shim keeps for an agent that does not read it: 16 MiB. It has room for the
/// longest launch and the longest input after it.
pub const INPUT_BYTES_MAX: usize = 2 * MAX_MESSAGE;

/// Why the other side can't be understood.
#[derive(Debug, Error)]
pub enum ControlError {
    /// A message is longer than [`MAX_MESSAGE`].
    #[error("exchange a message of more than {MAX_MESSAGE} bytes")]
    TooLong,
    /// A message could not be written as JSON.
    #[error("encode a control message")]
    Encode(#[source] serde_json::Error),
    /// A line is not a message that we know.
    #[error("decode a control message")]
    Decode(#[source] serde_json::Error),
    /// The other side is another version.
    #[error("speak version {theirs} of the control protocol, as this is version {VERSION}")]
    Version {
        /// What the other side said.
        theirs: u32,
    },
}

/// From the daemon to the shim.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Order {
    /// Give up privileges.
    Prepare(Prepare),
    /// Start the agent.
    Launch(Launch),
    /// Give the agent more to read.
    Input(Input),
    /// Give it no more: its standard input ends where what it was given ends.
    CloseInput,
}

/// What the shim is to become. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prepare {
    /// [`VERSION`] of the daemon.
    pub version: u32,
    /// The user to become; never 0.
    pub uid: u32,
    /// The group to become; 0 only for who is in it and is not root.
    pub gid: u32,
    /// The control group to join, which exists.
    pub cgroup: Option<PathBuf>,
    /// What the agent gets between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
}

/// The agent to start. It holds secrets and the prompt, so that it prints neither.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Launch {
    /// The program's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// What the agent reads first on standard input.
    pub stdin: String,
    /// Whether standard input then stays open for [`Order::Input`]; else it ends there.
    pub keeps_stdin: bool,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("program", &self.argv.first())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// More for the agent's standard input. It may be anything that people write, so that it is not
/// printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Input {
    /// The bytes, line ends included.
    pub text: String,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("bytes", &self.text.len())
            .finish_non_exhaustive()
    }
}

/// From the shim to the daemon.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Report {
    /// It is there and has done nothing yet.
    Started(Started),
    /// It can do no more than the run may.
    Attested(Attestation),
    /// The agent's program runs.
    Running(Running),
    /// Input was not taken; the agent goes on.
    InputRefused(InputRefused),
    /// It gave up; nothing runs.
    Failed(Failed),
    /// The agent has ended.
    Exited(Exited),
}

/// The shim's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Started {
    /// [`VERSION`] of the shim.
    pub version: u32,
    /// Who it is.
    pub identity: ProcessIdentity,
}

/// What the kernel says of the shim after it gave up its privileges; the agent inherits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attestation {
    /// The user; real, effective and saved are the same.
    pub uid: u32,
    /// The group; real, effective and saved are the same.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether no program that it starts can gain privileges.
    pub no_new_privs: bool,
    /// All capabilities that it holds or could raise, as the kernel's bits.
    pub capabilities: u64,
    /// The sandbox around it.
    pub sandbox: SandboxKind,
}

/// Which sandbox confines a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SandboxKind {
    /// None: it sees what its user sees.
    None,
}

impl SandboxKind {
    /// The word for records and for the line at start.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
        }
    }
}

/// The agent's program was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Running {
    /// Its pid.
    pub child_pid: u32,
}

/// Input that the agent will not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InputRefused {
    /// Why the last of it was refused.
    pub reason: InputRefusal,
    /// How many inputs were refused since the last such report, the latest of all that came. One
    /// that was taken and then found no reader, or not for all of it, counts.
    pub inputs: u32,
}

/// Why input is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum InputRefusal {
    /// With it, more than [`INPUT_BYTES_MAX`] would wait to be read.
    Full,
    /// Standard input has ended, or the agent has closed it.
    Closed,
}

/// Why the shim gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[error("{stage}: {message}")]
pub struct Failed {
    /// What it was doing.
    pub stage: Stage,
    /// The system's error number, if it was the system that refused.
    pub errno: Option<i32>,
    /// What happened, in words.
    pub message: String,
}

/// The steps of a shim, as its failures name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Stage {
    /// Become leader of a session and adopter of orphans.
    Setup,
    /// Understand the daemon.
    Protocol,
    /// Join the control group.
    Cgroup,
    /// Become the run's user.
    Identity,
    /// Prove that privileges are gone.
    Attest,
    /// Enter the working directory.
    WorkingDirectory,
    /// Execute the agent's program.
    Exec,
    /// Watch over the agent.
    Supervise,
}

/// How the agent ended, after nothing of it was left or everything was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exited {
    /// The agent's own end; neither is set when it could not be ended.
    pub exit: Exit,
    /// Processes that it left behind and that were killed.
    pub leftovers_killed: u32,
    /// Processes that could not be killed, the agent included.
    pub left: u32,
    /// How many inputs came, refused ones included. One that was sent and is not among them came too
    /// late.
    pub inputs: u32,
}

/// One line.
///
/// # Errors
/// When it would be longer than [`MAX_MESSAGE`], or holds a path that is not Unicode.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, ControlError> {
    let mut line = serde_json::to_vec(message).map_err(ControlError::Encode)?;
    line.push(b'\n');
    if line.len() > MAX_MESSAGE {
        return Err(ControlError::TooLong);
    }
    Ok(line)
}

/// Splits a stream of bytes into messages. It holds at most one message and what came with its end.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
}

impl Decoder {
    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message; none when more bytes are needed. Ask until there is none before
    /// the next [`push`](Self::push).
    ///
    /// # Errors
    /// When the other side is another version, or is not a speaker of this protocol at all. Nothing
    /// after that can be trusted.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ControlError> {
        let new = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.buffer.len() >= MAX_MESSAGE {
                return Err(ControlError::TooLong);
            }
            return Ok(None);
        };
        let end = self.searched + end;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        self.searched = 0;
        if line.len() > MAX_MESSAGE {
            return Err(ControlError::TooLong);
        }
        refuse_other_versions(&line)?;
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(ControlError::Decode)
    }
}

/// Reads the version alone, where there is one: the rest of another version's message is not ours
/// to understand.
fn refuse_other_versions(line: &[u8]) -> Result<(), ControlError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: Option<u32>,
    }
    match serde_json::from_slice(line) {
        Ok(Versioned {
            version: Some(theirs),
        }) if theirs != VERSION => Err(ControlError::Version { theirs }),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(stdin: &str) -> Launch {
        Launch {
            argv: vec!["agent".to_owned(), "--key=s3cret".to_owned()],
            env: BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]),
            cwd: PathBuf::from("/work"),
            stdin: stdin.to_owned(),
            keeps_stdin: true,
        }
    }

    #[test]
    fn messages_survive_any_cut() {
        let sent = [
            Order::Prepare(Prepare {
                version: VERSION,
                uid: 1,
                gid: 2,
                cgroup: Some(PathBuf::from("/c")),
                grace_ms: 3_000,
            }),
            Order::Launch(launch("two\nlines \u{1f980} \0")),
            Order::Input(Input {
                text: "more\n".to_owned(),
            }),
            Order::CloseInput,
        ];
        let bytes = sent
            .iter()
            .flat_map(|order| encode(order).unwrap())
            .collect::<Vec<_>>();
        for cut in 1..40 {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                got.extend(std::iter::from_fn(|| decoder.message::<Order>().unwrap()));
            }
            assert_eq!(got, sent, "in pieces of {cut}");
        }
    }

    #[test]
    fn another_version_is_refused_whatever_else_it_says() {
        let lines = [
            r#"{"type":"started","version":3,"identity":{"pid":1,"startTime":2,"bootId":"b"}}"#,
            r#"{"type":"greeting","version":3,"more":[]}"#,
        ];
        for line in lines {
            let mut decoder = Decoder::default();
            decoder.push(line.as_bytes());
            decoder.push(b"\n");
            let got = decoder.message::<Report>();
            assert!(
                matches!(got, Err(ControlError::Version { theirs: 3 })),
                "{got:?}"
            );
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for line in [
            "",
            "{}",
            "nonsense",
            r#"{"type":"running"}"#,
            r#"{"type":"running","childPid":1,"x":2}"#,
        ] {
            let mut decoder = Decoder::default();
            decoder.push(line.as_bytes());
            decoder.push(b"\n");
            let got = decoder.message::<Report>();
            assert!(
                matches!(got, Err(ControlError::Decode(_))),
                "{line}: {got:?}"
            );
        }
    }

    #[test]
    fn length_is_bounded_both_ways() {
        assert!(matches!(
            encode(&Order::Launch(launch(&"x".repeat(MAX_MESSAGE)))),
            Err(ControlError::TooLong)
        ));
        let mut decoder = Decoder::default();
        let piece = vec![b' '; 1 << 20];
        for _ in 0..7 {
            decoder.push(&piece);
            assert!(decoder.message::<Report>().unwrap().is_none());
        }
        decoder.push(&piece);
        assert!(matches!(
            decoder.message::<Report>(),
            Err(ControlError::TooLong)
        ));
    }

    #[test]
    fn secrets_do_not_print() {
        let shown = format!("{:?}", Order::Launch(launch("the s3cret prompt")));
        assert!(
            shown.contains("TOKEN") && shown.contains("agent"),
            "{shown}"
        );
        assert!(!shown.contains("s3cret"), "{shown}");
        let text = "the s3cret message".to_owned();
        let shown = format!("{:?}", Order::Input(Input { text }));
        assert_eq!(shown, "Input(Input { bytes: 18, .. })");
    }
}
