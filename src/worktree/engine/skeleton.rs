//! A self-contained `.git`: its own `HEAD`, refs, configuration and objects.
//!
//! Nothing is carried from the source but commits and their names. The configuration is ours from
//! the first line to the last, so no hook, filter, helper, include or remote of the source's can
//! come along. Objects are packs of our cache, cloned or copied, never borrowed.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat, openat};

use super::EngineError;
use crate::git::beneath;
use crate::model::worktree::ObjectId;

/// The configuration of every worktree. Nothing of git's own upkeep may outlive a run.
const CONFIG: &str = "[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
";

/// How packs come into the new repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worktree) enum Transfer {
    /// As clones; anything else is an error.
    Clone,
    /// As bytes.
    Copy,
}

/// Where the new `HEAD` points.
#[derive(Clone, Debug)]
pub(in crate::worktree) enum NewHead {
    /// To a branch, by its name below `refs/heads/`, that starts at the commit.
    Branch(String),
    /// To the commit itself.
    Detached,
}

/// What a new repository holds. The files are open, so that they can be read as any user and
/// stay whole when the cache is repacked.
#[derive(Debug)]
pub(in crate::worktree) struct Skeleton {
    /// Where `HEAD` points.
    pub(in crate::worktree) head: NewHead,
    /// The commit that it starts from.
    pub(in crate::worktree) commit: ObjectId,
    /// `<id> <name>` lines of refs besides the branch.
    pub(in crate::worktree) packed_refs: Vec<u8>,
    /// Ids of the commits at which a shallow history ends.
    pub(in crate::worktree) shallow: Option<Vec<u8>>,
    /// Files of the cache's pack directory.
    pub(in crate::worktree) packs: Vec<Pack>,
}

/// One file of a pack directory.
#[derive(Debug)]
pub(in crate::worktree) struct Pack {
    name: String,
    file: File,
}

/// Opens the packs in the object store `objects`, data before the index that announces it.
pub(in crate::worktree) fn open_packs(objects: &Path) -> Result<Vec<Pack>, EngineError> {
    let directory = objects.join("pack");
    let read = |path: &Path| {
        let path = path.to_owned();
        move |source| EngineError::Read { path, source }
    };
    let mut packs = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(read(&directory))? {
        let path = entry.map_err(read(&directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| is_pack_file(name)) else {
            continue;
        };
        packs.push(Pack {
            name: name.to_owned(),
            file: File::open(&path).map_err(read(&path))?,
        });
    }
    packs.sort_by(|a, b| rank(&a.name).cmp(&rank(&b.name)));
    Ok(packs)
}

fn is_pack_file(name: &str) -> bool {
    let suffix = name.rsplit_once('.').map(|(_, suffix)| suffix);
    name.starts_with("pack-") && matches!(suffix, Some("pack" | "rev" | "idx"))
}

fn rank(name: &str) -> (bool, &str) {
    (name.ends_with(".idx"), name)
}

impl Skeleton {
    /// Writes `.git` into the empty directory `root`, as whoever calls.
    pub(in crate::worktree) fn write(
        &self,
        root: &OwnedFd,
        transfer: Transfer,
    ) -> Result<(), EngineError> {
        let folders = [
            ".git",
            ".git/objects",
            ".git/objects/info",
            ".git/objects/pack",
            ".git/refs",
            ".git/refs/heads",
            ".git/refs/tags",
            ".git/info",
        ];
        for folder in folders {
            make_directory(root, folder)?;
        }
        let head = match &self.head {
            NewHead::Branch(name) => {
                self.write_branch(root, name)?;
                format!("ref: refs/heads/{name}\n")
            }
            NewHead::Detached => format!("{}\n", self.commit),
        };
        write_file(root, ".git/config", CONFIG.as_bytes())?;
        write_file(root, ".git/packed-refs", &self.packed_refs)?;
        if let Some(shallow) = &self.shallow {
            write_file(root, ".git/shallow", shallow)?;
        }
        for pack in &self.packs {
            pack.put(root, transfer)?;
        }
        write_file(root, ".git/HEAD", head.as_bytes())
    }

    fn write_branch(&self, root: &OwnedFd, name: &str) -> Result<(), EngineError> {
        for (at, _) in name.match_indices('/') {
            make_directory(root, &format!(".git/refs/heads/{}", &name[..at]))?;
        }
        let path = format!(".git/refs/heads/{name}");
        write_file(root, &path, format!("{}\n", self.commit).as_bytes())
    }
}

impl Pack {
    fn put(&self, root: &OwnedFd, transfer: Transfer) -> Result<(), EngineError> {
        let path = format!(".git/objects/pack/{}", self.name);
        let mode = Mode::from_raw_mode(0o444);
        let mut new = create(root, &path, mode)?;
        match transfer {
            Transfer::Clone => {
                rustix::fs::ioctl_ficlone(&new, &self.file).map_err(|errno| EngineError::Clone {
                    path: path.into(),
                    source: errno.into(),
                })
            }
            Transfer::Copy => {
                let mut source = &self.file;
                let copied = source
                    .rewind()
                    .and_then(|()| io::copy(&mut source, &mut new));
                copied.map(|_bytes| ()).map_err(|source| EngineError::Make {
                    path: path.into(),
                    source,
                })
            }
        }
    }
}

fn make_directory(root: &OwnedFd, path: &str) -> Result<(), EngineError> {
    mkdirat(root, path, Mode::from_raw_mode(0o777)).map_err(|errno| EngineError::Make {
        path: path.into(),
        source: errno.into(),
    })
}

/// Writes a file that isn't there yet, durably.
pub(in crate::worktree) fn write_file(
    root: &OwnedFd,
    path: &str,
    bytes: &[u8],
) -> Result<(), EngineError> {
    let mut file = create(root, path, Mode::from_raw_mode(0o666))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    written.map_err(|source| EngineError::Make {
        path: path.into(),
        source,
    })
}

fn create(root: &OwnedFd, path: &str, mode: Mode) -> Result<File, EngineError> {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let made = beneath::open_directory(root.as_fd(), parent.as_bytes()).and_then(|parent| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(
            parent,
            name.as_bytes(),
            flags | OFlags::NOFOLLOW,
            mode,
        )?)
    });
    made.map(File::from).map_err(|source| EngineError::Make {
        path: path.into(),
        source,
    })
}
