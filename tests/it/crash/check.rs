//! What must be so when all work is over, whatever died on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use homeostat::git::command::Git;
use homeostat::model::run::ATTEMPTS_MAX;
use homeostat::process::{Presence, is_alive};

use super::records::{Records, Run};
use super::rig::World;

/// What a world came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Wakes that somebody asked for.
    pub(super) wakes: usize,
    /// Runs that were recorded for them.
    pub(super) runs: usize,
    /// Lineages that ended in success; the others ended with their last attempt lost.
    pub(super) completed: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wakes,
            runs,
            completed,
        } = self;
        write!(
            f,
            "{wakes} wakes, {runs} runs, {completed} lineages completed"
        )
    }
}

/// Holds everything against everything else. To be called when the daemon is gone.
///
/// # Panics
/// With all that is wrong.
pub(super) fn check(world: &World) -> Tally {
    let records = Records::read(&world.data()).unwrap();
    let mut wrong = Vec::new();
    let tally = lineages(&records, &mut wrong);
    overlaps(&records, &mut wrong);
    rows_once(&records, &mut wrong);
    marks(world, &records, &mut wrong);
    processes(world, &records, &mut wrong);
    trees(&records, &mut wrong);
    disk(&world.data(), &mut wrong);
    wrong.extend(records.leftovers.iter().map(|it| format!("left: {it}")));
    let integrity = Records::integrity(&world.data());
    if integrity != "ok" {
        wrong.push(format!("the database is damaged: {integrity}"));
    }
    if tally.wakes != world.fleet.wakes {
        wrong.push(format!("{} wakes of {}", tally.wakes, world.fleet.wakes));
    }
    assert!(
        wrong.is_empty(),
        "{}\n{:#?}\n{}",
        wrong.join("\n"),
        records.runs,
        fs::read_to_string(world.marks()).unwrap_or_default()
    );
    tally
}

/// Each wake that was asked for ends in one chain of runs with one last one.
fn lineages(records: &Records, wrong: &mut Vec<String>) -> Tally {
    let mut tally = Tally {
        runs: records.runs.len(),
        ..Tally::default()
    };
    let mut reached = 0;
    for wake in &records.wakes {
        if wake.state != "finished" {
            wrong.push(format!("wake {} is {}", wake.id, wake.state));
        }
        if wake.previous_run.is_some() {
            continue;
        }
        tally.wakes += 1;
        let Some(first) = records.runs.iter().find(|run| run.wake == wake.id) else {
            wrong.push(format!("wake {} has no run", wake.id));
            continue;
        };
        let chain = chain(records, first, wrong);
        reached += chain.len();
        tally.completed += usize::from(is_terminal(records, &chain, wrong));
    }
    if reached != records.runs.len() {
        wrong.push(format!(
            "{reached} of {} runs are in a lineage",
            records.runs.len()
        ));
    }
    tally
}

/// The attempts from the first one on.
fn chain<'a>(records: &'a Records, first: &'a Run, wrong: &mut Vec<String>) -> Vec<&'a Run> {
    let mut chain = vec![first];
    loop {
        let last = chain[chain.len() - 1];
        let next = records.runs.iter();
        let next: Vec<_> = next
            .filter(|run| run.retry_of.as_ref() == Some(&last.id))
            .collect();
        if next.len() > 1 {
            wrong.push(format!(
                "run {} is tried again {} times",
                last.id,
                next.len()
            ));
        }
        let Some(next) = next.first() else {
            return chain;
        };
        if last.status == "completed" {
            wrong.push(format!("run {} is tried again after its success", last.id));
        }
        if next.attempt != last.attempt + i64::from(counts(last)) {
            wrong.push(format!("run {} is attempt {}", next.id, next.attempt));
        }
        chain.push(next);
    }
}

/// Whether the run is one of its lineage's attempts; one that a daemon ended in order is not.
fn counts(run: &Run) -> bool {
    run.end_reason.as_deref() != Some("daemonShutdown")
}

/// Whether the lineage ended in success. Else all its attempts were lost with a daemon: nothing
/// here fails by itself.
fn is_terminal(records: &Records, chain: &[&Run], wrong: &mut Vec<String>) -> bool {
    let last = chain[chain.len() - 1];
    let attempts = chain.iter().filter(|run| counts(run)).count();
    let attempts_max = usize::try_from(ATTEMPTS_MAX).unwrap();
    let is_completed = last.status == "completed" && last.liveness == "productive";
    let is_lost = last.status == "error"
        && last.end_reason.as_deref() == Some("daemonLost")
        && attempts == attempts_max;
    if attempts > attempts_max || is_completed == is_lost {
        wrong.push(format!("{attempts} attempts end in {last:?}"));
    }
    if let Some(ticket) = &last.ticket {
        let expected = if is_completed { "done" } else { "failed" };
        if records.tickets.get(ticket).map(String::as_str) != Some(expected) {
            wrong.push(format!("the ticket of {} is not {expected}", last.id));
        }
    }
    is_completed
}

/// Runs that may not be live at once were not, by the times of their rows.
fn overlaps(records: &Records, wrong: &mut Vec<String>) {
    let mut last: BTreeMap<&str, &Run> = BTreeMap::new();
    for run in &records.runs {
        // A space has one worktree here, and its conversations are beneath it.
        if let Some(before) = last.insert(&run.space, run)
            && before
                .ended_at
                .as_ref()
                .is_none_or(|end| *end > run.started_at)
        {
            wrong.push(format!(
                "run {} began before {} had ended",
                run.id, before.id
            ));
        }
    }
}

/// What a closed run has exactly once, or at most once.
fn rows_once(records: &Records, wrong: &mut Vec<String>) {
    for run in &records.runs {
        let count = |of: &BTreeMap<String, i64>| of.get(&run.id).copied().unwrap_or(0);
        for (what, of) in [
            ("ledger entries", &records.ledger),
            ("completions", &records.completions),
            ("transcripts", &records.transcripts),
        ] {
            if count(of) != 1 {
                wrong.push(format!("run {} has {} {what}", run.id, count(of)));
            }
        }
        let replies = count(&records.replies);
        if replies > 1 || (run.status == "completed" && replies != 1) {
            wrong.push(format!("run {} has {replies} replies", run.id));
        }
        if count(&records.starts) > 1 {
            wrong.push(format!("run {} started twice", run.id));
        }
    }
}

/// What the agents say themselves.
fn marks(world: &World, records: &Records, wrong: &mut Vec<String>) {
    let text = fs::read_to_string(world.marks()).unwrap_or_default();
    let known: BTreeMap<&str, &Run> = records.runs.iter().map(|it| (it.id.as_str(), it)).collect();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut current: BTreeMap<&str, &str> = BTreeMap::new();
    let mut over: BTreeSet<&str> = BTreeSet::new();
    for line in text.lines() {
        let Some((what, id)) = line.split_once(' ') else {
            wrong.push(format!("torn mark {line:?}"));
            continue;
        };
        let Some(run) = known.get(id) else {
            wrong.push(format!("nobody knows of {line:?}"));
            continue;
        };
        *counts.entry((what, id)).or_default() += 1;
        // Lines are appended in the order of what happened: whoever marks after another one of the
        // same worktree did has outlived his time.
        if over.contains(id) {
            wrong.push(format!("{line:?} after another run had begun in its place"));
        }
        if let Some(before) = current.insert(&run.space, id)
            && before != id
        {
            over.insert(before);
        }
    }
    for run in &records.runs {
        let count = |what| counts.get(&(what, run.id.as_str())).copied().unwrap_or(0);
        let (starts, ends) = (count("start"), count("end"));
        let is_completed = run.status == "completed";
        let expected = if is_completed || run.was_heard {
            1..=1
        } else {
            0..=1
        };
        if !expected.contains(&starts) || ends > starts || (is_completed && ends != 1) {
            wrong.push(format!(
                "{starts} starts and {ends} ends are marked for {run:?}"
            ));
        }
    }
}

/// Nothing is alive, by record or by sight.
fn processes(world: &World, records: &Records, wrong: &mut Vec<String>) {
    for run in &records.runs {
        if let Some(identity) = &run.identity
            && is_alive(identity) != Presence::Gone
        {
            wrong.push(format!("{identity} of run {} is there", run.id));
        }
        if let Some(cgroup) = run.cgroup.as_ref().filter(|path| path.exists()) {
            wrong.push(format!("{} is there", cgroup.display()));
        }
    }
    for pid in world.processes() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        wrong.push(format!("process {pid} is there: {line}"));
    }
}

/// Repositories are whole, and hold the work of each completed run once.
fn trees(records: &Records, wrong: &mut Vec<String>) {
    for tree in &records.trees {
        let git = |subcommand| Git::new(&tree.path, subcommand);
        if let Err(error) = git("fsck")
            .args(["--strict", "--no-dangling", "--no-progress"])
            .run()
        {
            wrong.push(format!("{}: {error}", tree.path.display()));
        }
        let log = git("log").arg("--format=%s").run().unwrap();
        let log = String::from_utf8(log.stdout).unwrap();
        for run in records.runs.iter().filter(|run| run.space == tree.space) {
            let subject = format!("run {}", run.id);
            let commits = log.lines().filter(|line| *line == subject).count();
            if commits > 1 || (run.status == "completed" && commits != 1) {
                wrong.push(format!(
                    "{commits} commits of {subject} in {}",
                    tree.path.display()
                ));
            }
        }
    }
}

/// Nothing half made lies about.
fn disk(data: &Path, wrong: &mut Vec<String>) {
    let mut open = vec![data.to_owned()];
    while let Some(directory) = open.pop() {
        for path in entries(&directory) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path == data.join("trash") {
                continue;
            }
            if name.ends_with(".part")
                || name.ends_with(".lock") && path.starts_with(data.join("workspaces"))
            {
                wrong.push(format!("{} is there", path.display()));
            }
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    for path in entries(&data.join("build")) {
        wrong.push(format!("{} is there", path.display()));
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}
