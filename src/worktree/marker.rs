//! The record that says "homeostat made this", kept where only the daemon writes.
//!
//! A worktree's or overlay's marker stands beside it, in a directory that the run user can't
//! write; a space root's and a seed's stands inside, since those directories are ours whole.
//! It is durable before the thing itself appears. A thing without the right marker is never
//! reused, moved or removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::model::id::Uid;
use crate::model::observed::WorktreeBackend;
use crate::model::units::{BranchName, Name};
use crate::model::worktree::{ObjectId, UserIds};

/// What every marker's name ends with. No object name has a dot in it.
const SUFFIX: &str = ".homeostat";
/// The version of the record's form.
const VERSION: u32 = 1;

/// What we made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum MarkerKind {
    /// The root of a space.
    Space,
    /// The overlay directory of an agent.
    Overlay,
    /// A worktree.
    Worktree,
    /// A frozen checkout.
    Seed,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Marker {
    version: u32,
    /// What it is.
    pub kind: MarkerKind,
    /// The object that it belongs to: a space, an agent, or the repo of a worktree or seed.
    pub uid: Uid,
    /// When it was made.
    pub created: Timestamp,
    /// Who owns what stands beside it.
    pub user: UserIds,
    /// A worktree's facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeMarker>,
}

/// What is recorded of a worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TreeMarker {
    /// The space that it stands in.
    pub space: Uid,
    /// The repo's name.
    pub repo_name: Name,
    /// The branch that it was made on.
    pub branch: BranchName,
    /// The commit that it started from.
    pub base: ObjectId,
    /// How it was made.
    pub backend: WorktreeBackend,
}

/// Why a directory is not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    /// There is no marker.
    #[error("find our marker {}", path.display())]
    Unmarked {
        /// Where it should be.
        path: PathBuf,
    },
    /// The marker names something else.
    #[error("use {}: it is marked as {found_kind} {found_uid}", path.display())]
    Mismatch {
        /// The marker.
        path: PathBuf,
        /// What it names.
        found_kind: MarkerKind,
        /// Whose that is.
        found_uid: Uid,
    },
    /// The marker is not one that we wrote.
    #[error("understand the marker {}", path.display())]
    Corrupt {
        /// The marker.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The marker could not be read or written.
    #[error("access the marker {}", path.display())]
    Access {
        /// The marker.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Marker {
    /// A marker of the current version.
    pub const fn new(kind: MarkerKind, uid: Uid, user: UserIds, created: Timestamp) -> Self {
        Self {
            version: VERSION,
            kind,
            uid,
            created,
            user,
            tree: None,
        }
    }

    /// Where the marker of `thing` is.
    pub fn path_of(kind: MarkerKind, thing: &Path) -> PathBuf {
        match kind {
            MarkerKind::Space | MarkerKind::Seed => thing.join(SUFFIX),
            MarkerKind::Overlay | MarkerKind::Worktree => {
                let mut path = thing.as_os_str().to_owned();
                path.push(SUFFIX);
                path.into()
            }
        }
    }

    /// Reads the marker of `thing`; none where there is none.
    ///
    /// # Errors
    /// [`MarkerError::Corrupt`], [`MarkerError::Access`].
    pub fn read(kind: MarkerKind, thing: &Path) -> Result<Option<Self>, MarkerError> {
        let path = Self::path_of(kind, thing);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(MarkerError::Access { path, source }),
        };
        match serde_json::from_slice(&bytes) {
            Ok(marker) => Ok(Some(marker)),
            Err(source) => Err(MarkerError::Corrupt { path, source }),
        }
    }

    /// Reads the marker of `thing` and requires it to name this kind and object.
    ///
    /// # Errors
    /// Any [`MarkerError`].
    pub fn verify(kind: MarkerKind, thing: &Path, uid: Uid) -> Result<Self, MarkerError> {
        let path = Self::path_of(kind, thing);
        let Some(marker) = Self::read(kind, thing)? else {
            return Err(MarkerError::Unmarked { path });
        };
        if marker.kind == kind && marker.uid == uid {
            return Ok(marker);
        }
        Err(MarkerError::Mismatch {
            path,
            found_kind: marker.kind,
            found_uid: marker.uid,
        })
    }

    /// Writes the marker of `thing`, whole and durable, replacing an older one.
    ///
    /// # Errors
    /// [`MarkerError::Access`].
    pub fn write(&self, thing: &Path) -> Result<(), MarkerError> {
        let path = Self::path_of(self.kind, thing);
        let bytes = serde_json::to_vec(self).expect("a marker has only string keys");
        write_durable(&path, &bytes).map_err(|source| MarkerError::Access { path, source })
    }

    /// Removes the marker of `thing`, if it is there.
    ///
    /// # Errors
    /// [`MarkerError::Access`].
    pub fn remove(kind: MarkerKind, thing: &Path) -> Result<(), MarkerError> {
        let path = Self::path_of(kind, thing);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(MarkerError::Access { path, source })
            }
            _ => Ok(()),
        }
    }
}

fn write_durable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".marker-")
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_directory(directory)
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
