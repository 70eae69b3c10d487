//! Fills a tree from a seed: one `FICLONE` a file, driven by the seed's index.
//!
//! Only what the index names is made, so a stray file, FIFO or socket in the seed stays behind.
//! Directories on both sides are opened beneath pinned roots without following a link.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fstat, futimens,
    ioctl_ficlone, mkdirat, openat, readlinkat, statat, symlinkat,
};

use super::EngineError;
use super::index::{EntryKind, Index, IndexError, Stamp};
use crate::git::beneath;

/// Threads that clone. XFS gains from two on separate directories; more were not measured to help.
const THREADS: usize = 2;

/// Makes every file, link and directory of `index` in `target` as clones of those in `seed`, as
/// whoever calls. Answers with the index of the new tree.
pub(in crate::worktree) fn clone_tree(
    seed: &OwnedFd,
    mut index: Index,
    target: &OwnedFd,
) -> Result<Vec<u8>, EngineError> {
    let mut folders: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (number, entry) in index.entries().iter().enumerate() {
        folders
            .entry(parent_of(&entry.path))
            .or_default()
            .push(number);
    }
    make_directories(target, folders.keys().copied())?;
    let folders: Vec<_> = folders.into_iter().collect();
    let next = AtomicUsize::new(0);
    let job = Job {
        seed,
        target,
        index: &index,
        folders: &folders,
        next: &next,
    };
    // Threads take over the identity of the one that starts them.
    let stamps = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| job.work())).collect();
        let outcomes = threads.into_iter().map(|thread| {
            let outcome = thread.join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        outcomes.collect::<Result<Vec<_>, _>>()
    })?;
    drop(folders);
    for (number, stamp) in stamps.into_iter().flatten() {
        index.restamp(number, &stamp);
    }
    Ok(index.seal())
}

fn parent_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    &path[..slash.unwrap_or(0)]
}

/// Makes every directory on the way to each of `folders`, parents first.
fn make_directories<'a>(
    target: &OwnedFd,
    folders: impl Iterator<Item = &'a [u8]>,
) -> Result<(), EngineError> {
    let mut wanted = std::collections::BTreeSet::new();
    for folder in folders.filter(|folder| !folder.is_empty()) {
        let slashes = folder.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        wanted.extend(slashes.map(|(at, _)| &folder[..at]));
        wanted.insert(folder);
    }
    for folder in wanted {
        // Its parent is one of ours, made just now in a tree that nobody else has.
        let made = mkdirat(target, folder, Mode::from_raw_mode(0o777));
        made.map_err(|errno| EngineError::Make {
            path: path_of(folder),
            source: errno.into(),
        })?;
    }
    Ok(())
}

fn path_of(bytes: &[u8]) -> std::path::PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}

struct Job<'a> {
    seed: &'a OwnedFd,
    target: &'a OwnedFd,
    index: &'a Index,
    folders: &'a [(&'a [u8], Vec<usize>)],
    next: &'a AtomicUsize,
}

impl Job<'_> {
    /// Takes folder after folder until there is none. After an error the others stop as well.
    fn work(&self) -> Result<Vec<(usize, Stamp)>, EngineError> {
        let mut stamps = Vec::new();
        while let Some((folder, entries)) =
            self.folders.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = self.fill(folder, entries, &mut stamps) {
                self.next.store(self.folders.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(stamps)
    }

    fn fill(
        &self,
        folder: &[u8],
        entries: &[usize],
        stamps: &mut Vec<(usize, Stamp)>,
    ) -> Result<(), EngineError> {
        let open = |root: &OwnedFd| {
            beneath::open_directory(root, folder).map_err(|source| EngineError::Read {
                path: path_of(folder),
                source,
            })
        };
        let (from, to) = (open(self.seed)?, open(self.target)?);
        for &number in entries {
            let entry = &self.index.entries()[number];
            let cut = if folder.is_empty() {
                0
            } else {
                folder.len() + 1
            };
            let one = One {
                from: &from,
                to: &to,
                name: &entry.path[cut..],
                path: &entry.path,
            };
            let stamp = match entry.kind {
                EntryKind::File => one.clone_file(0o666)?,
                EntryKind::Executable => one.clone_file(0o777)?,
                EntryKind::Link => one.copy_link()?,
                EntryKind::Submodule => {
                    return Err(EngineError::Index {
                        source: IndexError::Submodule,
                    });
                }
            };
            stamps.push((number, stamp));
        }
        Ok(())
    }
}

/// One file or link, in two pinned directories.
struct One<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    name: &'a [u8],
    path: &'a [u8],
}

impl One<'_> {
    fn clone_file(&self, mode: u32) -> Result<Stamp, EngineError> {
        let read = |errno: rustix::io::Errno| EngineError::Read {
            path: path_of(self.path),
            source: errno.into(),
        };
        let make = |errno: rustix::io::Errno| EngineError::Make {
            path: path_of(self.path),
            source: errno.into(),
        };
        let shared = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | shared;
        let donor = openat(self.from, self.name, flags, Mode::empty()).map_err(read)?;
        let stat = fstat(&donor).map_err(read)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(read(rustix::io::Errno::INVAL));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | shared;
        let mode = Mode::from_raw_mode(mode);
        let file = openat(self.to, self.name, flags, mode).map_err(make)?;
        if stat.st_size > 0 {
            ioctl_ficlone(&file, &donor).map_err(|errno| EngineError::Clone {
                path: path_of(self.path),
                source: errno.into(),
            })?;
        }
        // Build tools compare times across files: those of one checkout stay those of one.
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: stat.st_mtime,
                tv_nsec: i64::from(u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            },
        };
        futimens(&file, &times).map_err(make)?;
        Ok(Stamp::of(&fstat(&file).map_err(make)?))
    }

    fn copy_link(&self) -> Result<Stamp, EngineError> {
        let target = readlinkat(self.from, self.name, Vec::new());
        let target = target.map_err(|errno| EngineError::Read {
            path: path_of(self.path),
            source: errno.into(),
        })?;
        let made = symlinkat(&target, self.to, self.name)
            .and_then(|()| statat(self.to.as_fd(), self.name, AtFlags::SYMLINK_NOFOLLOW));
        let stat = made.map_err(|errno| EngineError::Make {
            path: path_of(self.path),
            source: errno.into(),
        })?;
        Ok(Stamp::of(&stat))
    }
}
