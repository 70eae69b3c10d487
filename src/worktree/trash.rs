//! Takes things of ours away: out of sight at once, off the disk later.
//!
//! A name leaves its place by one rename, at any size. What lies in the trash is deleted in
//! bounded portions, through descriptors, never through a link; what resists is reported and the
//! rest goes on.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, chmod, fchmod, openat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

use super::cache::release_base;
use super::layout::{Layout, PRIVATE, ensure_directory};
use super::marker::{Marker, MarkerError, MarkerKind, sync_directory};
use super::salvage::{SalvageError, SalvageRef, SalvageRequest, newest, salvage};
use crate::git::beneath::open_root;
use crate::git::command::GitError;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::Uid;

/// Directories deeper than this are first moved up to the trash itself.
const DEPTH_MAX: usize = 32;

/// Why something is still where it was.
#[derive(Debug, thiserror::Error)]
pub enum TrashError {
    /// It is not marked as the thing that was to be taken away.
    #[error("take {} away: it is not the one that was asked for", path.display())]
    NotOurs {
        /// What.
        path: PathBuf,
        /// What its marker says.
        #[source]
        source: MarkerError,
    },
    /// It lies outside the data directory, or belongs to another space.
    #[error("take {} away: it is not a place of that space", path.display())]
    Elsewhere {
        /// What.
        path: PathBuf,
    },
    /// A space's root still holds something.
    #[error("take the space root {} away: {name:?} is still there", path.display())]
    Occupied {
        /// The root.
        path: PathBuf,
        /// A worktree, or something that we did not make.
        name: String,
    },
    /// Its work could not be saved.
    #[error("take {} away: its work could not be saved", path.display())]
    Salvage {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: SalvageError,
    },
    /// It could not be moved, or its marker not be removed.
    #[error("move {} to the trash", path.display())]
    Move {
        /// What.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its base could not be released.
    #[error("release the base of {}", path.display())]
    Release {
        /// What.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// Whether it was saved before could not be found out.
    #[error("look up what was saved of {}", path.display())]
    Recall {
        /// What.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// The trash could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The trash, or the scratch directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// One worktree to take away.
#[derive(Clone, Debug)]
pub struct ReclaimRequest {
    /// Its recorded path.
    pub tree: PathBuf,
    /// Its space.
    pub space: Uid,
    /// Its repo.
    pub repo: Uid,
    /// When this happens.
    pub now: Timestamp,
}

/// Saves a worktree's work and moves the tree to the trash. Answers with the ref that holds the
/// work, if there was any, also when an earlier call saved it. A tree that is gone is success.
///
/// # Errors
/// [`TrashError`]; the tree is where it was. Can be repeated after any of them, and after a crash.
pub fn reclaim(
    layout: &Layout,
    request: &ReclaimRequest,
) -> Result<Option<SalvageRef>, TrashError> {
    let path = &request.tree;
    let moving = |source| TrashError::Move {
        path: path.clone(),
        source,
    };
    let not_ours = |source| TrashError::NotOurs {
        path: path.clone(),
        source,
    };
    let is_plain = path
        .components()
        .all(|part| part != std::path::Component::ParentDir);
    if !is_plain || !path.starts_with(layout.data().join("workspaces")) {
        return Err(TrashError::Elsewhere { path: path.clone() });
    }
    let is_there = exists(path).map_err(moving)?;
    let marker = match Marker::verify(MarkerKind::Worktree, path, request.repo) {
        Ok(marker) => marker,
        Err(MarkerError::Unmarked { .. }) if !is_there => return saved_before(layout, request),
        Err(source) => return Err(not_ours(source)),
    };
    let Some(facts) = marker.tree.filter(|facts| facts.space == request.space) else {
        return Err(TrashError::Elsewhere { path: path.clone() });
    };
    let saved = if is_there {
        let work = SalvageRequest {
            tree: path.clone(),
            space: request.space,
            repo: request.repo,
            base: facts.base,
            user: marker.user,
            now: request.now,
        };
        salvage(layout, &work).map_err(|source| TrashError::Salvage {
            path: path.clone(),
            source,
        })?
    } else {
        saved_before(layout, request)?
    };
    crash_point(CrashPoint::TreeSalvaged);
    if is_there {
        discard(layout, path).map_err(moving)?;
    }
    // Last, so that what was half taken away is still known as ours.
    Marker::remove(MarkerKind::Worktree, path).map_err(not_ours)?;
    let cache = layout.cache(request.repo);
    release_base(&cache, request.space).map_err(|source| TrashError::Release {
        path: path.clone(),
        source,
    })?;
    Ok(saved)
}

/// What an earlier attempt, which did not come to its end, saved a tree as that is gone now.
fn saved_before(
    layout: &Layout,
    request: &ReclaimRequest,
) -> Result<Option<SalvageRef>, TrashError> {
    newest(layout, request.repo, request.space).map_err(|source| TrashError::Recall {
        path: request.tree.clone(),
        source,
    })
}

/// Moves a space's root to the trash, once its worktrees are gone. An overlay that holds anything
/// is an agent's work: it goes to [`Layout::kept`] as it is, with its marker, and stays there.
///
/// # Errors
/// [`TrashError`]; the root is where it was. Can be repeated after any of them, and after a crash:
/// an overlay that was moved before is kept already. A root that is gone already is success.
pub fn reclaim_space_root(layout: &Layout, workspace: Uid, space: Uid) -> Result<(), TrashError> {
    let path = layout.space(workspace, space);
    let reading = |source| TrashError::Read {
        path: path.clone(),
        source,
    };
    if !exists(&path).map_err(reading)? {
        return Ok(());
    }
    Marker::verify(MarkerKind::Space, &path, space).map_err(|source| TrashError::NotOurs {
        path: path.clone(),
        source,
    })?;
    let repos = path.join("repos");
    let entries = match fs::read_dir(&repos) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(reading)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(reading(source)),
    };
    for entry in entries {
        let name = entry.file_name();
        if !is_remnant(&name) {
            return Err(TrashError::Occupied {
                path,
                name: name.to_string_lossy().into_owned(),
            });
        }
    }
    keep_overlays(layout, &path, space)?;
    discard(layout, &path).map_err(|source| TrashError::Move { path, source })
}

/// Whether a name in a directory of ours is a marker, or what a daemon that died left half made.
fn is_remnant(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_half_made = name.starts_with(b".marker-") || name.ends_with(b".part");
    is_half_made || name.ends_with(b".homeostat")
}

/// Moves what agents left in their overlays out of the space's root.
fn keep_overlays(layout: &Layout, root: &Path, space: Uid) -> Result<(), TrashError> {
    let agents = root.join("agents");
    let reading = |source| TrashError::Read {
        path: agents.clone(),
        source,
    };
    let entries = match fs::read_dir(&agents) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(reading)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(reading(source)),
    };
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        if is_remnant(&name) || !holds_work(&path).map_err(reading)? {
            continue;
        }
        let marker = Marker::path_of(MarkerKind::Overlay, &path);
        if !exists(&marker).map_err(reading)? {
            return Err(TrashError::Occupied {
                path: root.to_owned(),
                name: name.to_string_lossy().into_owned(),
            });
        }
        let moving = |source| TrashError::Move {
            path: path.clone(),
            source,
        };
        let kept = layout.kept(space);
        ensure_directory(&kept, PRIVATE).map_err(moving)?;
        let target = free_name(&kept, &name).map_err(moving)?;
        // The marker first, as a copy: what is kept is never without the record of whose it is.
        let record = Marker::path_of(MarkerKind::Overlay, &target);
        fs::copy(&marker, &record).map_err(moving)?;
        sync_directory(&kept).map_err(moving)?;
        move_to(&path, &target).map_err(moving)?;
        sync_directory(&kept).map_err(moving)?;
        tracing::info!(%space, path = %target.display(), "overlay kept");
    }
    Ok(())
}

/// Whether an overlay is anything else than an empty directory. A link is not followed.
fn holds_work(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return Ok(true);
    }
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        // Its owner hid what is in it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        Err(error) => Err(error),
    }
}

/// A name that is not taken in a directory of ours: `name`, or one with a number.
fn free_name(directory: &Path, name: &OsStr) -> io::Result<PathBuf> {
    let mut target = directory.join(name);
    for number in 2_u32.. {
        if !exists(&target)? {
            break;
        }
        let mut numbered = name.to_owned();
        numbered.push(format!("-{number}"));
        target = directory.join(numbered);
    }
    Ok(target)
}

fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves something of ours to the trash, whatever its name, size and mode. A link is moved, not
/// followed.
///
/// # Errors
/// What the system said; it is where it was.
pub fn discard(layout: &Layout, path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let slot = tempfile::Builder::new()
        .prefix("t-")
        .tempdir_in(layout.trash())?;
    move_to(path, &slot.path().join(name))?;
    let _kept = slot.keep();
    path.parent().map_or(Ok(()), sync_directory)
}

/// Renames. A directory that its owner may not write cannot be moved by that owner, and the owner
/// is us where runs are the daemon's own user.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (Some(parent), Some(name)) = (from.parent(), from.file_name()) else {
                return Err(error);
            };
            let _opened = open_to_empty(&open_root(parent)?, name.as_bytes())?;
            fs::rename(from, to)
        }
        moved => moved,
    }
}

/// Moves what a dead daemon left in the scratch directory to the trash. To be called before any
/// work starts.
///
/// # Errors
/// [`TrashError::Read`], [`TrashError::Move`].
pub fn sweep_build(layout: &Layout) -> Result<(), TrashError> {
    let build = layout.build();
    let reading = |source| TrashError::Read {
        path: build.clone(),
        source,
    };
    for entry in fs::read_dir(&build).map_err(reading)? {
        let path = entry.map_err(reading)?.path();
        discard(layout, &path).map_err(|source| TrashError::Move { path, source })?;
    }
    Ok(())
}

/// What one portion of deleting did.
#[derive(Debug, Default)]
#[must_use]
pub struct Purged {
    /// Names removed.
    pub removed: usize,
    /// Whether something deletable is left for the next portion.
    pub is_more: bool,
    /// What could not be deleted, and why. The next portion tries again.
    pub stuck: Vec<(PathBuf, io::Error)>,
}

/// Deletes at most `names_max` names from the trash. Resumable at any point.
///
/// # Errors
/// [`TrashError::Read`] when the trash itself can't be read; what lies in it can't fail the pass.
pub fn purge(layout: &Layout, names_max: usize) -> Result<Purged, TrashError> {
    let path = layout.trash();
    let reading = |source| TrashError::Read {
        path: path.clone(),
        source,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let trash = openat(CWD, &path, flags, Mode::empty()).map_err(|errno| reading(errno.into()))?;
    let mut portion = Portion {
        trash: &trash,
        left: names_max,
        lifted: 0,
        purged: Purged::default(),
    };
    let mut names = names_in(&trash, usize::MAX).map_err(|errno| reading(errno.into()))?;
    names.sort();
    for name in names {
        match portion.remove(&trash, &name, 0) {
            Ok(()) => {}
            Err(Stop::Spent) => {
                portion.purged.is_more = true;
                break;
            }
            Err(Stop::Stuck(errno)) => {
                let stuck = path.join(OsStr::from_bytes(&name));
                portion.purged.stuck.push((stuck, errno.into()));
            }
        }
    }
    Ok(portion.purged)
}

enum Stop {
    /// The portion is used up.
    Spent,
    /// Something can't be deleted.
    Stuck(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Stuck(errno)
    }
}

struct Portion<'a> {
    trash: &'a OwnedFd,
    left: usize,
    lifted: u64,
    purged: Purged,
}

impl Portion<'_> {
    /// Removes `name` in the pinned directory `parent`, and all beneath it.
    fn remove(&mut self, parent: &OwnedFd, name: &[u8], depth: usize) -> Result<(), Stop> {
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return self.unlink(parent, name, AtFlags::empty());
        }
        let directory = open_to_empty(parent, name)?;
        if depth >= DEPTH_MAX {
            return self.lift(parent, name);
        }
        let mut stuck = None;
        for child in names_in(&directory, self.left.saturating_add(1))? {
            match self.remove(&directory, &child, depth + 1) {
                Err(Stop::Stuck(errno)) => stuck = Some(errno),
                outcome => outcome?,
            }
        }
        match stuck {
            Some(errno) => Err(Stop::Stuck(errno)),
            None => self.unlink(parent, name, AtFlags::REMOVEDIR),
        }
    }

    fn unlink(&mut self, parent: &OwnedFd, name: &[u8], flags: AtFlags) -> Result<(), Stop> {
        if self.left == 0 {
            return Err(Stop::Spent);
        }
        unlinkat(parent, name, flags)?;
        self.left -= 1;
        self.purged.removed += 1;
        Ok(())
    }

    /// Makes a deep directory an entry of the trash itself, for a later pass.
    fn lift(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<(), Stop> {
        loop {
            let new = format!("d-{}", self.lifted);
            self.lifted += 1;
            let flags = RenameFlags::NOREPLACE;
            match renameat_with(parent, name, self.trash, new.as_str(), flags) {
                Ok(()) => break,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.purged.is_more = true;
        Ok(())
    }
}

/// Opens a directory so that its names can be read and removed, whatever its mode says.
fn open_to_empty(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let shared = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(parent, name, OFlags::RDONLY | shared, Mode::empty());
    let directory = match open() {
        Err(Errno::ACCESS) => {
            // A mode can't be changed through a descriptor that only names a file, but through
            // its entry in /proc it can, without following the name again.
            let named = openat(parent, name, OFlags::PATH | shared, Mode::empty())?;
            let link = format!("/proc/self/fd/{}", named.as_raw_fd());
            chmod(link, Mode::RWXU)?;
            open()?
        }
        opened => opened?,
    };
    if !rustix::process::geteuid().is_root() {
        fchmod(&directory, Mode::RWXU)?;
    }
    Ok(directory)
}

/// At most `names_max` names in a directory.
fn names_in(directory: &OwnedFd, names_max: usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            if names.len() == names_max {
                break;
            }
            names.push(name.to_vec());
        }
    }
    Ok(names)
}
