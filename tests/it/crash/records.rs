//! What the database says, read as an operator would, by a connection that only reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::model::process::ProcessIdentity;
use rusqlite::{Connection, OpenFlags, Row};

use super::fleet::Fleet;

/// A wake's row.
#[derive(Clone, Debug)]
pub(super) struct Wake {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) previous_run: Option<String>,
}

/// A run's row, in the order in which the rows were written.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) wake: String,
    pub(super) retry_of: Option<String>,
    pub(super) attempt: i64,
    pub(super) space: String,
    pub(super) ticket: Option<String>,
    pub(super) status: String,
    pub(super) liveness: String,
    pub(super) end_reason: Option<String>,
    /// Shown when something is wrong.
    #[expect(
        dead_code,
        reason = "read through Debug, in the message of a failed check"
    )]
    pub(super) summary: Option<String>,
    pub(super) started_at: String,
    pub(super) ended_at: Option<String>,
    pub(super) is_settled: bool,
    pub(super) identity: Option<ProcessIdentity>,
    pub(super) cgroup: Option<PathBuf>,
    /// Whether the agent itself was heard, as opposed to what was recorded about its launch.
    pub(super) was_heard: bool,
}

/// All that a test looks at.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pub(super) wakes: Vec<Wake>,
    pub(super) runs: Vec<Run>,
    /// Ticket to status.
    pub(super) tickets: BTreeMap<String, String>,
    /// Run to how many rows it has: in the ledger, as a reply, as events of each type.
    pub(super) ledger: BTreeMap<String, i64>,
    pub(super) replies: BTreeMap<String, i64>,
    pub(super) completions: BTreeMap<String, i64>,
    pub(super) starts: BTreeMap<String, i64>,
    pub(super) transcripts: BTreeMap<String, i64>,
    /// Worktrees that are there.
    pub(super) trees: Vec<Tree>,
    /// Roots of spaces that are there.
    pub(super) roots: usize,
    /// Ref and commit of what was salvaged.
    pub(super) salvages: Vec<(String, String)>,
    /// Rows that are of no use when all is over, as text.
    pub(super) leftovers: Vec<String>,
}

/// A worktree's row.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The reference of its space.
    pub(super) of: String,
    pub(super) space: String,
    pub(super) path: PathBuf,
}

/// Rows that nothing may need once all work is over.
const LEFTOVERS: [(&str, &str); 6] = [
    ("lease", "SELECT worktree || ' by ' || run FROM leases"),
    (
        "hold",
        "SELECT subject || ': ' || reason || ', ' || message FROM holds WHERE is_current = 1",
    ),
    (
        "condition",
        "SELECT o.reference || ' ' || c.type || '=' || c.status || ': ' || c.reason
         FROM conditions c JOIN objects o ON o.uid = c.uid
         WHERE (c.type IN ('Reconciling', 'Stalled') AND c.status = 'True'
             AND c.reason <> 'LastRunFailed')
            OR (c.type = 'Provisioned' AND c.status <> 'True')",
    ),
    ("backoff", "SELECT key || ': ' || message FROM backoffs"),
    (
        "worktree",
        "SELECT path || ' is ' || phase FROM worktrees WHERE phase <> 'ready'",
    ),
    (
        "root",
        "SELECT path || ' is ' || phase FROM roots WHERE phase <> 'ready'",
    ),
];

impl Records {
    pub(super) fn read(data: &Path) -> rusqlite::Result<Self> {
        let conn = open(data)?;
        let conn = conn.unchecked_transaction()?;
        let mut leftovers = Vec::new();
        for (what, query) in LEFTOVERS {
            let found: Vec<String> = rows(&conn, query, |row| row.get(0))?;
            leftovers.extend(found.into_iter().map(|it| format!("{what} {it}")));
        }
        let count = |query| rows(&conn, query, |row| Ok((row.get(0)?, row.get(1)?)));
        let pairs = |it: Vec<(String, i64)>| it.into_iter().collect();
        Ok(Self {
            wakes: rows(&conn, "SELECT * FROM wakes ORDER BY seq", |row| {
                Ok(Wake {
                    id: row.get("id")?,
                    state: row.get("state")?,
                    previous_run: row.get("previous_run")?,
                })
            })?,
            runs: rows(
                &conn,
                "SELECT *, EXISTS (SELECT 1 FROM run_events WHERE run = id AND type = 'thinking')
                   AS was_heard
                 FROM runs ORDER BY seq",
                run,
            )?,
            tickets: rows(&conn, "SELECT uid, status FROM tickets", |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .into_iter()
            .collect(),
            ledger: pairs(count("SELECT run, count(*) FROM ledger GROUP BY run")?),
            replies: pairs(count(
                "SELECT run, count(*) FROM messages WHERE run IS NOT NULL GROUP BY run",
            )?),
            completions: pairs(count(
                "SELECT subject, count(*) FROM outbox WHERE type = 'AgentRunCompleted' GROUP BY 1",
            )?),
            starts: pairs(count(
                "SELECT subject, count(*) FROM outbox WHERE type = 'AgentRunStarted' GROUP BY 1",
            )?),
            transcripts: pairs(count("SELECT run, count(*) FROM transcripts GROUP BY run")?),
            trees: rows(
                &conn,
                "SELECT *, (SELECT reference FROM objects WHERE uid = space) AS of FROM worktrees",
                |row| {
                    Ok(Tree {
                        of: row.get("of")?,
                        space: row.get("space")?,
                        path: row.get::<_, String>("path")?.into(),
                    })
                },
            )?,
            roots: rows(&conn, "SELECT space FROM roots", |row| {
                row.get::<_, String>(0)
            })?
            .len(),
            salvages: rows(&conn, "SELECT reference, commit_id FROM salvages", |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?,
            leftovers,
        })
    }

    /// What SQLite finds wrong with the file: `ok`.
    pub(super) fn integrity(data: &Path) -> String {
        let conn = open(data).unwrap();
        let said: Vec<String> = rows(&conn, "PRAGMA integrity_check", |row| row.get(0)).unwrap();
        said.join("\n")
    }

    /// Whether every wake that the fleet asks for has been recorded, and nothing waits or runs or
    /// is left to be drawn from what has ended.
    pub(super) fn are_all_over(&self, fleet: &Fleet) -> bool {
        let asked = self.wakes.iter().filter(|wake| wake.previous_run.is_none());
        asked.count() == fleet.wakes
            && self.wakes.iter().all(|wake| wake.state == "finished")
            && self.runs.iter().all(|run| run.is_settled)
            && self.leftovers.is_empty()
    }
}

fn open(data: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(data.join("homeostat.db"), flags)?;
    conn.busy_timeout(Duration::from_secs(10))?;
    Ok(conn)
}

fn rows<T>(
    conn: &Connection,
    query: &str,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare(query)?.query_map([], row)?.collect()
}

fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let pid: Option<u32> = row.get("pid")?;
    let identity = match pid {
        Some(pid) => Some(ProcessIdentity {
            pid,
            start_time: row.get::<_, i64>("process_start_time")?.cast_unsigned(),
            boot_id: row.get("boot_id")?,
        }),
        None => None,
    };
    Ok(Run {
        id: row.get("id")?,
        wake: row.get("wake")?,
        retry_of: row.get("retry_of")?,
        attempt: row.get("attempt")?,
        space: row.get("space")?,
        ticket: row.get("ticket")?,
        status: row.get("status")?,
        liveness: row.get("liveness")?,
        end_reason: row.get("end_reason")?,
        summary: row.get("summary")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        is_settled: row.get("is_settled")?,
        identity,
        cgroup: row.get::<_, Option<String>>("cgroup")?.map(Into::into),
        was_heard: row.get("was_heard")?,
    })
}
