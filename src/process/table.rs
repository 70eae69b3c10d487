//! Who belongs to whom: the process table, read from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::identity::{LookError, Stat, boot_id};
use crate::model::id::RunId;
use crate::model::process::ProcessIdentity;

/// The environment variable that marks a run's processes; its value is the run's id.
pub const RUN_MARK: &str = "HOMEOSTAT_RUN_ID";

/// How much of a process's environment is searched: the kernel's limit on arguments and
/// environment together is below this under every ordinary stack limit.
const ENVIRONMENT_LIMIT: u64 = 4 << 20;

/// The processes below `root` that have not ended, in order of pid. Empty when `root` is gone.
///
/// # Errors
/// When the process table could not be read.
pub fn descendants(root: &ProcessIdentity) -> Result<Vec<ProcessIdentity>, LookError> {
    let boot_id = boot_id()?;
    let table = snapshot()?;
    let rooted = |stat: &Stat| stat.start_time == root.start_time && !stat.ended;
    if boot_id != root.boot_id || !table.get(&root.pid).is_some_and(rooted) {
        return Ok(Vec::new());
    }
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for (pid, stat) in &table {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut below = BTreeSet::new();
    let mut open = vec![root.pid];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if below.insert(*child) {
                open.push(*child);
            }
        }
    }
    let mut found = Vec::new();
    for pid in below {
        let stat = table[&pid];
        // The table was not read at one instant. Only if the parent is still the one that we read
        // was it that one all the time, and the child not a stranger's under a reused pid. A child
        // that is left out for that is found by the next look, below who has adopted it.
        if !stat.ended && still(pid, &table)? && still(stat.parent, &table)? {
            found.push(ProcessIdentity {
                pid,
                start_time: stat.start_time,
                boot_id: boot_id.clone(),
            });
        }
    }
    Ok(found)
}

/// The processes that carry the mark of `run` in the environment they were started with and have
/// not ended, except the calling one; in order of pid.
///
/// This finds what has left every ancestor. It cannot find a process that was started with another
/// environment, nor one that refuses to be read by us (we are not root, and it is not ours or has
/// made itself undumpable).
///
/// # Errors
/// When the process table could not be read.
pub fn sweep(run: RunId) -> Result<Vec<ProcessIdentity>, LookError> {
    sweep_since(run, 0)
}

/// As [`sweep`], among the processes that started not before `start_time` (in the unit of
/// [`ProcessIdentity::start_time`]): a run has none that is older than its shim, and on a busy host
/// most are.
pub(super) fn sweep_since(run: RunId, start_time: u64) -> Result<Vec<ProcessIdentity>, LookError> {
    let boot_id = boot_id()?;
    let table = snapshot()?;
    let mark = format!("{RUN_MARK}={run}");
    let mut found = Vec::new();
    for (pid, stat) in &table {
        if *pid == std::process::id()
            || stat.ended
            || stat.start_time < start_time
            || !carries(*pid, mark.as_bytes())
        {
            continue;
        }
        // The same process before and after: the environment was its own.
        if still(*pid, &table)? {
            found.push(ProcessIdentity {
                pid: *pid,
                start_time: stat.start_time,
                boot_id: boot_id.clone(),
            });
        }
    }
    Ok(found)
}

/// Every process that `/proc` shows.
fn snapshot() -> Result<BTreeMap<u32, Stat>, LookError> {
    let failed = |source: io::Error| LookError::Read {
        path: PathBuf::from("/proc"),
        source,
    };
    let mut table = BTreeMap::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match Stat::of(pid) {
            Ok(Some(stat)) => {
                table.insert(pid, stat);
            }
            Ok(None) => {}
            // Another user's, on a host that hides those: not below us, and not to be read anyway.
            Err(LookError::Read { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(table)
}

/// Whether `pid` is now who it was in `table`.
fn still(pid: u32, table: &BTreeMap<u32, Stat>) -> Result<bool, LookError> {
    let now = Stat::of(pid)?.map(|stat| stat.start_time);
    Ok(now.is_some() && now == table.get(&pid).map(|stat| stat.start_time))
}

/// Whether the process was started with exactly `entry` in its environment. What we may not read
/// is not ours.
fn carries(pid: u32, entry: &[u8]) -> bool {
    read_bounded(Path::new(&format!("/proc/{pid}/environ")))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|found| found == entry))
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(ENVIRONMENT_LIMIT)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
