//! The run log: one NDJSON file a run, written before anything else hears of an event.
//!
//! It is the record that survives the daemon. A run whose log ends with an `end` line finished
//! before the daemon died, and is closed from what the log says. A torn last line is the mark of a
//! crash, not an error.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::event::{AgentEvent, EVENT_VERSION};
use crate::model::id::{ConversationId, RunId, Uid};
use crate::model::run::EndReason;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "record",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(crate) enum Record {
    /// The first line.
    Start {
        version: u32,
        run_id: RunId,
        agent_id: Uid,
        workspace_id: Uid,
        space_id: Uid,
        conversation_id: ConversationId,
        adapter: String,
        silence_secs: u64,
        at: Timestamp,
    },
    /// One event, in the order of its sequence.
    Event {
        seq: u64,
        at: Timestamp,
        event: AgentEvent,
    },
    /// The last line: the process is gone, and how it went.
    End {
        code: Option<i32>,
        signal: Option<i32>,
        end_reason: EndReason,
        at: Timestamp,
    },
}

/// A log that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{operation} the run log {path}")]
pub struct LogError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A run's log, open for appending.
#[derive(Debug)]
pub(crate) struct RunLog {
    file: File,
    path: PathBuf,
}

/// Lines longer than this are not ours.
const LINE_BYTES_MAX: u64 = 8 << 20;

impl RunLog {
    /// Opens the log at `path` and writes its first line.
    pub(crate) fn create(path: &Path, start: &Record) -> Result<Self, LogError> {
        let open = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path);
        let file = open.map_err(|source| error("create", path, source))?;
        let mut log = Self {
            file,
            path: path.to_owned(),
        };
        log.append(start)?;
        Ok(log)
    }

    /// The version that every first line names.
    pub(crate) const VERSION: u32 = EVENT_VERSION;

    /// Appends one line, in one write.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), LogError> {
        let line = serde_json::to_vec(record)
            .map_err(|source| error("encode", &self.path, io::Error::other(source)));
        let mut line = line?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|source| error("append to", &self.path, source))
    }

    /// Appends the last line and waits until it is on disk.
    pub(crate) fn finish(&mut self, end: &Record) -> Result<(), LogError> {
        self.append(end)?;
        self.file
            .sync_data()
            .map_err(|source| error("sync", &self.path, source))
    }
}

/// Every whole line of the log at `path`; empty if there is none. Stops at the first torn line.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, LogError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(error("open", path, source)),
    };
    let mut reader = BufReader::new(file);
    let mut records = Vec::new();
    loop {
        let mut line = Vec::new();
        io::Read::take(&mut reader, LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|source| error("read", path, source))?;
        let Some(line) = line.strip_suffix(b"\n") else {
            return Ok(records);
        };
        let Ok(record) = serde_json::from_slice(line) else {
            return Ok(records);
        };
        records.push(record);
    }
}

fn error(operation: &'static str, path: &Path, source: io::Error) -> LogError {
    LogError {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, RunLog, read};
    use crate::model::event::AgentEvent;
    use crate::model::id::{ConversationId, RunId, Uid};
    use crate::model::run::EndReason;
    use jiff::Timestamp;
    use std::io::Write;

    fn start() -> Record {
        Record::Start {
            version: RunLog::VERSION,
            run_id: RunId::derived(&["r"]),
            agent_id: Uid::derived(&["a"]),
            workspace_id: Uid::derived(&["w"]),
            space_id: Uid::derived(&["s"]),
            conversation_id: ConversationId::derived(&["c"]),
            adapter: "shell".to_owned(),
            silence_secs: 900,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_log_reads_back_up_to_a_torn_line() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("run.ndjson");
        assert_eq!(read(&path).unwrap(), []);
        let event = Record::Event {
            seq: 1,
            at: Timestamp::UNIX_EPOCH,
            event: AgentEvent::Text {
                text: "line\nbreak".to_owned(),
            },
        };
        let end = Record::End {
            code: Some(0),
            signal: None,
            end_reason: EndReason::AgentFinished,
            at: Timestamp::UNIX_EPOCH,
        };
        let mut log = RunLog::create(&path, &start()).unwrap();
        log.append(&event).unwrap();
        let mut torn = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        torn.write_all(b"{\"record\":\"ev").unwrap();
        assert_eq!(read(&path).unwrap(), [start(), event.clone()]);
        std::fs::remove_file(&path).unwrap();
        let mut log = RunLog::create(&path, &start()).unwrap();
        log.append(&event).unwrap();
        log.finish(&end).unwrap();
        assert_eq!(read(&path).unwrap(), [start(), event, end]);
    }
}
