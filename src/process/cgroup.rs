//! One control group for each run, where the host lets us: the only way to end everything of a run
//! in one step, whoever its parent is and whatever it did to its environment.
//!
//! Version 2 only (also the `unified` tree of a hybrid host), no controllers. Groups lie beside our
//! own processes, below the group that the daemon itself is in, so that a service manager that ends
//! the daemon's group ends them too. The path of a run's group follows from its id, and is stored
//! before the group is made.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use thiserror::Error;

use super::deadline::{Deadline, poll_until};
use super::identity::is_absent;
use crate::model::id::RunId;

/// Why a control group could not be used.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// Not a group that we would have made for this run.
    #[error("take {} for the control group of run {run}", path.display())]
    NotOurs {
        /// The path that was stored.
        path: PathBuf,
        /// The run.
        run: RunId,
    },
    /// It could not be made.
    #[error("create control group {}", path.display())]
    Create {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// We could not be moved into it.
    #[error("join control group {}", path.display())]
    Join {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its state could not be read.
    #[error("look into control group {}", path.display())]
    Look {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its members could not be killed.
    #[error("kill control group {}", path.display())]
    Kill {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be removed.
    #[error("remove control group {}", path.display())]
    Remove {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

static TRIALS: AtomicU32 = AtomicU32::new(0);

/// The group below which runs get theirs; none when the host has no such place for us. Tried, not
/// guessed: a group is made there and removed again.
pub fn find_parent() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let parent = own_group(&mounts, &membership)?;
    // Two trials of one process do not meet; one that a dead process of our pid has left does no
    // harm.
    let serial = TRIALS.fetch_add(1, Ordering::Relaxed);
    let trial = parent.join(format!("homeostat-trial-{}-{serial}", std::process::id()));
    match fs::create_dir(&trial) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
        Ok(()) | Err(_) => {}
    }
    let works = trial.join("cgroup.kill").exists() && can_write(&parent.join("cgroup.procs"));
    (fs::remove_dir(&trial).is_ok() && works).then_some(parent)
}

/// Where our own version 2 group lies in the file system.
fn own_group(mounts: &str, membership: &str) -> Option<PathBuf> {
    let own = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    // Outside of our cgroup namespace, the path begins with "/..".
    if own.split('/').any(|part| part == "..") {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        if right.split(' ').next()? != "cgroup2" {
            return None;
        }
        let mut fields = left.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(own).strip_prefix(root).ok()?;
        // An octal escape stands for a character that no cgroup mount point has.
        (!point.contains('\\')).then(|| Path::new(point).join(below))
    })
}

/// Moving a process needs leave to write here, in the group above both.
fn can_write(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The control group of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCgroup(PathBuf);

impl RunCgroup {
    /// The group of `run` below `parent`, made or not.
    pub fn of(parent: &Path, run: RunId) -> Self {
        Self(parent.join(name_of(run)))
    }

    /// The group whose path was stored with `run`.
    ///
    /// # Errors
    /// When the path does not name that run: it would end somebody else's processes.
    pub fn stored(path: &Path, run: RunId) -> Result<Self, CgroupError> {
        if path.is_absolute() && path.file_name() == Some(OsStr::new(&name_of(run))) {
            return Ok(Self(path.to_owned()));
        }
        Err(CgroupError::NotOurs {
            path: path.to_owned(),
            run,
        })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the group, unless it is there.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn create(&self) -> Result<(), CgroupError> {
        match fs::create_dir(&self.0) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(CgroupError::Create {
                    path: self.0.clone(),
                    source,
                })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Moves the calling process, and with it all that it will start, into the group at `path`.
    ///
    /// # Errors
    /// When the group is not there, or closed to us.
    pub fn join(path: &Path) -> Result<(), CgroupError> {
        fs::write(path.join("cgroup.procs"), "0").map_err(|source| CgroupError::Join {
            path: path.to_owned(),
            source,
        })
    }

    /// Kills every process in the group and below it.
    ///
    /// # Errors
    /// When the kernel refuses. A group that is not there has no processes.
    pub fn kill(&self) -> Result<(), CgroupError> {
        match fs::write(self.0.join("cgroup.kill"), "1") {
            Err(source) if !is_gone(&source) => Err(CgroupError::Kill {
                path: self.0.clone(),
                source,
            }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The pids directly in the group. One of another pid namespace reads as 0.
    ///
    /// # Errors
    /// When it can't be read. A group that is not there has none.
    pub fn members(&self) -> Result<Vec<u32>, CgroupError> {
        Ok(self
            .read("cgroup.procs")?
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect())
    }

    /// Whether the group, or one below it, has a process that has not ended.
    ///
    /// # Errors
    /// When it can't be read. A group that is not there has none.
    pub fn is_populated(&self) -> Result<bool, CgroupError> {
        Ok(self
            .read("cgroup.events")?
            .lines()
            .any(|line| line == "populated 1"))
    }

    /// Waits until no process is left, at most for `timeout`. Whether that came.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn wait_empty(&self, timeout: Duration) -> Result<bool, CgroupError> {
        let deadline = Deadline::after(timeout);
        let failed = |source| CgroupError::Look {
            path: self.0.clone(),
            source,
        };
        let events = match File::open(self.0.join("cgroup.events")) {
            Ok(events) => events,
            Err(error) if is_gone(&error) => return Ok(true),
            Err(error) => return Err(failed(error)),
        };
        loop {
            // A read through this descriptor arms it; a change after it raises an event.
            let text = io::read_to_string(&events);
            match text {
                Ok(text) if !text.lines().any(|line| line == "populated 1") => return Ok(true),
                Ok(_) => {}
                Err(error) if is_gone(&error) => return Ok(true),
                Err(error) => return Err(failed(error)),
            }
            let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::PRI)];
            if !poll_until(&mut fds, Some(deadline)).map_err(failed)? {
                return self.is_populated().map(|populated| !populated);
            }
            rustix::fs::seek(&events, rustix::fs::SeekFrom::Start(0))
                .map_err(|error| failed(error.into()))?;
        }
    }

    /// Removes the group, and the empty ones that a run made below it.
    ///
    /// # Errors
    /// When a process is left in it.
    pub fn remove(&self) -> Result<(), CgroupError> {
        remove_tree(&self.0, 0).map_err(|source| CgroupError::Remove {
            path: self.0.clone(),
            source,
        })
    }

    fn read(&self, file: &str) -> Result<String, CgroupError> {
        match fs::read_to_string(self.0.join(file)) {
            Ok(text) => Ok(text),
            Err(error) if is_gone(&error) => Ok(String::new()),
            Err(source) => Err(CgroupError::Look {
                path: self.0.clone(),
                source,
            }),
        }
    }
}

fn name_of(run: RunId) -> String {
    format!("homeostat-{run}")
}

/// A file of a group that was removed, also while it was open.
fn is_gone(error: &io::Error) -> bool {
    is_absent(error) || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Deeper than any group that somebody made for a reason.
const MAX_DEPTH: u32 = 32;

fn remove_tree(path: &Path, depth: u32) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) if depth < MAX_DEPTH => entries,
        Ok(_) => return Err(rustix::io::Errno::LOOP.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path(), depth + 1)?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_group_is_found_in_every_layout() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let bound = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 ro\n";
        let odd = "30 23 0:26 / /mnt/a\\040b rw - cgroup2 cgroup2 rw\n";
        let cases = [
            (
                unified,
                "0::/system.slice/h.service\n",
                Some("/sys/fs/cgroup/system.slice/h.service"),
            ),
            (unified, "0::/\n", Some("/sys/fs/cgroup/")),
            (
                hybrid,
                "4:memory:/a\n0::/b\n",
                Some("/sys/fs/cgroup/unified/b"),
            ),
            (bound, "0::/docker/abc/x\n", Some("/sys/fs/cgroup/x")),
            (bound, "0::/elsewhere\n", None),
            (unified, "0::/../outside\n", None),
            (unified, "4:memory:/a\n", None),
            ("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "0::/\n", None),
            (odd, "0::/\n", None),
        ];
        for (mounts, membership, expected) in cases {
            let found = own_group(mounts, membership);
            assert_eq!(
                found.as_deref(),
                expected.map(Path::new),
                "{membership:?} in {mounts:?}"
            );
        }
    }

    #[test]
    fn a_stored_path_must_name_the_run() {
        let (run, other) = (RunId::derived(&["a"]), RunId::derived(&["b"]));
        let group = RunCgroup::of(Path::new("/sys/fs/cgroup/x"), run);
        assert!(RunCgroup::stored(group.path(), run).is_ok_and(|stored| stored == group));
        for path in [
            group.path(),
            Path::new("/sys/fs/cgroup"),
            Path::new("/"),
            Path::new(""),
        ] {
            assert!(
                RunCgroup::stored(path, other).is_err(),
                "{}",
                path.display()
            );
        }
    }
}
