//! The run log: one NDJSON file a run, written before anything else hears of an event.
//!
//! It is the record that survives the daemon. A run whose log ends with an `end` line finished
//! before the daemon died, and is closed from what the log says. A torn last line is the mark of a
//! crash, not an error.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
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

/// How much of a log is read at once, in bytes; the line that reaches it is read whole.
const BATCH_BYTES: usize = 1 << 20;

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

    /// Appends one line, in one write. How many bytes it has.
    pub(crate) fn append(&mut self, record: &Record) -> Result<usize, LogError> {
        let line = serde_json::to_vec(record)
            .map_err(|source| error("encode", &self.path, io::Error::other(source)));
        let mut line = line?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|source| error("append to", &self.path, source))?;
        Ok(line.len())
    }

    /// Appends the last line and waits until it is on disk.
    pub(crate) fn finish(&mut self, end: &Record) -> Result<(), LogError> {
        self.append(end)?;
        self.file
            .sync_data()
            .map_err(|source| error("sync", &self.path, source))
    }
}

/// A log that is read from its beginning, a batch at a time.
#[derive(Debug)]
pub(crate) struct LogReader {
    /// None when there is no log.
    lines: Option<BufReader<File>>,
    path: PathBuf,
}

impl LogReader {
    /// Opens the log at `path`; one that is not there is empty.
    pub(crate) fn open(path: PathBuf) -> Result<Self, LogError> {
        let lines = match File::open(&path) {
            Ok(file) => Some(BufReader::new(file)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(error("open", &path, source)),
        };
        Ok(Self { lines, path })
    }

    /// The next whole lines, some [`BATCH_BYTES`] of them; empty at the end, which is at the first
    /// torn line.
    pub(crate) fn next_batch(&mut self) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        while let Some(lines) = &mut self.lines
            && bytes < BATCH_BYTES
        {
            let mut line = Vec::new();
            lines
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
                .map_err(|source| error("read", &self.path, source))?;
            bytes += line.len();
            let line = line.strip_suffix(b"\n");
            match line.and_then(|line| serde_json::from_slice(line).ok()) {
                Some(record) => records.push(record),
                None => self.lines = None,
            }
        }
        Ok(records)
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
    use super::{BATCH_BYTES, LogReader, Record, RunLog};
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

    /// All that the log says, and in how many batches.
    fn read(path: &std::path::Path) -> (Vec<Record>, usize) {
        let mut reader = LogReader::open(path.to_owned()).unwrap();
        let (mut records, mut batches) = (Vec::new(), 0);
        loop {
            let batch = reader.next_batch().unwrap();
            if batch.is_empty() {
                return (records, batches);
            }
            batches += 1;
            records.extend(batch);
        }
    }

    #[test]
    fn a_long_log_is_read_in_batches() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("run.ndjson");
        let mut log = RunLog::create(&path, &start()).unwrap();
        let mut written = vec![start()];
        for seq in 1..=5 {
            let event = Record::Event {
                seq,
                at: Timestamp::UNIX_EPOCH,
                event: AgentEvent::Text {
                    text: "y".repeat(BATCH_BYTES / 2),
                },
            };
            assert!(log.append(&event).unwrap() > BATCH_BYTES / 2);
            written.push(event);
        }
        assert_eq!(read(&path), (written, 3));
    }

    #[test]
    fn a_log_reads_back_up_to_a_torn_line() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("run.ndjson");
        assert_eq!(read(&path).0, []);
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
        assert_eq!(read(&path).0, [start(), event.clone()]);
        std::fs::remove_file(&path).unwrap();
        let mut log = RunLog::create(&path, &start()).unwrap();
        log.append(&event).unwrap();
        log.finish(&end).unwrap();
        assert_eq!(read(&path).0, [start(), event, end]);
    }
}
