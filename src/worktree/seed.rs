//! Frozen checkouts: one exact tree of a repo, written out once, then only cloned from.
//!
//! A seed is built where the run user can work (git writes it out as that user, so that whatever
//! is made from it has the right owner without a `chown`), synced, and sealed by a rename to where
//! no run user can reach it.

use std::fs::{self, FileTimes, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;

use super::cache::{Base, remove_leftover};
use super::engine::checkout::check_out;
use super::engine::index::Index;
use super::engine::skeleton::{NewHead, Skeleton, Transfer};
use super::engine::{EngineError, skeleton};
use super::layout::{Layout, PASSAGE, PRIVATE, ensure_directory};
use super::marker::{Marker, MarkerError, MarkerKind, sync_directory};
use super::run_as::run_as;
use super::trash::discard;
use crate::git::beneath;
use crate::model::id::Uid;
use crate::model::worktree::{ObjectId, UserIds};

/// Seeds that are kept of one repo; the one that was used longest ago goes first.
const SEEDS_MAX: usize = 4;
/// Longest index that is read: some four million paths.
const INDEX_BYTES_MAX: u64 = 512 << 20;

/// Why there is no seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// A directory of ours could not be made, synced or sealed.
    #[error("make the seed {}", path.display())]
    Make {
        /// The seed.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its content could not be made or read.
    #[error("fill the seed {}", path.display())]
    Fill {
        /// The seed.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: EngineError,
    },
    /// Its marker could not be written, or is not ours.
    #[error("mark the seed {}", path.display())]
    Mark {
        /// The seed.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: MarkerError,
    },
    /// An old seed could not be put away.
    #[error("put the seed {} away", path.display())]
    Evict {
        /// The seed.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A seed, pinned: it can be cloned from even while it is put away.
#[derive(Debug)]
pub(super) struct Seed {
    /// The root of the checkout.
    pub(super) root: OwnedFd,
    /// Its index.
    pub(super) index: Index,
}

/// Whose seed, of what.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeedRequest<'a> {
    pub(super) repo: Uid,
    pub(super) base: &'a Base,
    pub(super) user: UserIds,
    pub(super) now: Timestamp,
}

/// Whether a sealed seed of this tree and user is there.
pub(super) fn is_sealed(layout: &Layout, repo: Uid, tree: &ObjectId, user: UserIds) -> bool {
    let marker = Marker::verify(MarkerKind::Seed, &layout.seed(repo, tree), repo);
    marker.is_ok_and(|marker| marker.user == user)
}

/// Pins the seed of `request`, and makes it first if there is none. `objects` is the cache's
/// object store; the caller holds the repo's lock.
pub(super) fn ensure(
    layout: &Layout,
    request: &SeedRequest<'_>,
    objects: &Path,
    shallow: Option<Vec<u8>>,
) -> Result<Seed, SeedError> {
    let path = layout.seed(request.repo, &request.base.tree);
    if !is_sealed(layout, request.repo, &request.base.tree, request.user) {
        build(layout, request, objects, shallow, &path)?;
        evict(layout, request.repo, &path)?;
    }
    let pinned = touch(&path, request.now).and_then(|()| {
        let root = beneath::open_root(&path.join("tree"))?;
        let index = beneath::read(&root, b".git/index", INDEX_BYTES_MAX)?;
        let index = index.ok_or(io::ErrorKind::NotFound)?;
        Ok((root, index))
    });
    let (root, index) = pinned.map_err(|source| SeedError::Make {
        path: path.clone(),
        source,
    })?;
    let index = Index::parse(index).map_err(|source| SeedError::Fill {
        path,
        source: EngineError::Index { source },
    })?;
    Ok(Seed { root, index })
}

fn build(
    layout: &Layout,
    request: &SeedRequest<'_>,
    objects: &Path,
    shallow: Option<Vec<u8>>,
    path: &Path,
) -> Result<(), SeedError> {
    let make = |source| SeedError::Make {
        path: path.to_owned(),
        source,
    };
    let fill = |source| SeedError::Fill {
        path: path.to_owned(),
        source,
    };
    let name = format!("seed-{}-{}", request.repo, request.base.tree);
    let part = layout.build().join(name);
    remove_leftover(&part).map_err(make)?;
    let guard = Leftover { path: Some(&part) };
    let tree = part.join("tree");
    let root = make_owned(&part, &tree, request.user).map_err(make)?;
    let skeleton = Skeleton {
        head: NewHead::Detached,
        commit: request.base.commit.clone(),
        packed_refs: Vec::new(),
        shallow,
        packs: skeleton::open_packs(objects).map_err(fill)?,
    };
    run_as(request.user, || skeleton.write(&root, Transfer::Clone)).map_err(fill)?;
    check_out(&tree, request.user).map_err(fill)?;
    // A clone of what is not on disk yet would wait for it, file by file.
    rustix::fs::syncfs(&root).map_err(|errno| make(errno.into()))?;
    let marker = Marker::new(MarkerKind::Seed, request.repo, request.user, request.now);
    marker.write(&part).map_err(|source| SeedError::Mark {
        path: path.to_owned(),
        source,
    })?;
    let seeds = layout.seeds(request.repo);
    ensure_directory(&seeds, PRIVATE).map_err(make)?;
    if path.exists() {
        // Of another user: see `is_sealed`.
        put_away(layout, path)?;
    }
    fs::rename(&part, path).map_err(make)?;
    guard.disarm();
    sync_directory(&seeds).map_err(make)
}

/// Makes `parent`, ours, and in it `child`, the run user's and empty.
pub(super) fn make_owned(parent: &Path, child: &Path, user: UserIds) -> io::Result<OwnedFd> {
    ensure_directory(parent, PASSAGE)?;
    make_root(child, user)
}

/// Makes the empty root of a tree for the run user. Its parent is ours, so the name can't be
/// swapped before the user owns it.
pub(super) fn make_root(path: &Path, user: UserIds) -> io::Result<OwnedFd> {
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    if rustix::process::geteuid().is_root() {
        chown(path, Some(user.uid), Some(user.gid))?;
    }
    beneath::open_root(path)
}

/// Removes a half made directory when the maker returns early.
#[derive(Debug)]
pub(super) struct Leftover<'a> {
    pub(super) path: Option<&'a Path>,
}

impl Leftover<'_> {
    /// The directory is whole, or no longer there.
    pub(super) fn disarm(mut self) {
        self.path = None;
    }
}

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path {
            // The next attempt, or the next start, removes what resists.
            let _removed = fs::remove_dir_all(path);
        }
    }
}

/// Marks the seed as used now.
fn touch(path: &Path, now: Timestamp) -> io::Result<()> {
    let time = SystemTime::from(now);
    let times = FileTimes::new().set_modified(time);
    fs::File::open(path)?.set_times(times)
}

/// Puts the seeds away that were used longest ago.
fn evict(layout: &Layout, repo: Uid, keep: &Path) -> Result<(), SeedError> {
    let seeds = layout.seeds(repo);
    let read = |source| SeedError::Make {
        path: seeds.clone(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&seeds).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path == keep || Marker::verify(MarkerKind::Seed, &path, repo).is_err() {
            continue;
        }
        let used = fs::metadata(&path).and_then(|metadata| metadata.modified());
        found.push((used.map_err(read)?, path));
    }
    found.sort();
    let surplus = (found.len() + 1).saturating_sub(SEEDS_MAX);
    for (_, path) in found.iter().take(surplus) {
        put_away(layout, path)?;
    }
    Ok(())
}

fn put_away(layout: &Layout, path: &Path) -> Result<(), SeedError> {
    discard(layout, path).map_err(|source| SeedError::Evict {
        path: path.to_owned(),
        source,
    })
}
