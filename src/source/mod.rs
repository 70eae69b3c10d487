//! Where desired state comes from: one whole, consistent state of the operator's files at a time.
//!
//! A [`Source`] is read into a [`Snapshot`] and watched by a [`Watcher`]. A watch is only a hint
//! that reading again may be worth it; the snapshot is what counts.

mod directory;
mod walk;
mod watch;

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::git::objects::{Objects, ObjectsError, TreeLimits};
use crate::git::remote::{MIRRORED, Remote, RemoteError};
use crate::model::kind::Revision;

pub use watch::{WatchOptions, Watcher, Watching};

/// Files of one snapshot.
const FILES_MAX: usize = 100_000;
/// Bytes of one file. More than a manifest may have, so that its finding says so.
const FILE_BYTES_MAX: usize = 4 << 20;
/// Bytes of all files.
const BYTES_MAX: usize = 256 << 20;

/// Which files belong to the source, by path within the subdirectory that is read, with `/`. What
/// lies in a directory there whose name begins with a dot never does.
pub type Keep = fn(&str) -> bool;

/// Where files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory, also one that is a git checkout: what lies in it now.
    Directory {
        /// The directory that paths start at.
        root: PathBuf,
        /// The directory within it that is read; empty is all of it.
        subdirectory: String,
    },
    /// A local git repository: what a commit holds.
    Git {
        /// Path of a checkout or a bare repository.
        repository: PathBuf,
        /// A branch, a ref, `HEAD` or a commit's id in full.
        reference: String,
        /// The directory within the tree that is read; empty is all of it.
        subdirectory: String,
    },
    /// A repository on another host. Nothing tells when it changes: whoever follows it asks now and
    /// then.
    Remote {
        /// Its ref, and where it is mirrored.
        remote: Remote,
        /// The directory within the tree that is read; empty is all of it.
        subdirectory: String,
    },
}

/// One state of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit, or a hash of all paths and contents.
    pub revision: Revision,
    /// Path and content, in path order. Paths start at the root, also where only a subdirectory is
    /// read.
    pub files: Vec<(String, Vec<u8>)>,
    /// Who wrote the commit.
    pub author: Option<Author>,
    /// When it was committed.
    pub committed_at: Option<Timestamp>,
}

/// A person, as a commit names them. Nothing vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

/// Why a source has no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or directory cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Files changed each time that they were read.
    #[error("read {}: its files kept changing", path.display())]
    Unsettled {
        /// The directory.
        path: PathBuf,
    },
    /// There is more than a source may hold.
    #[error("read {}: it is over the limit of {limit} {unit}", path.display())]
    TooLarge {
        /// Where the limit was passed.
        path: PathBuf,
        /// The limit.
        limit: usize,
        /// `"files"`, `"bytes"` or `"levels of directories"`.
        unit: &'static str,
    },
    /// The subdirectory leads out of the root.
    #[error("read {}: it leads out of {}", path.display(), root.display())]
    Outside {
        /// The subdirectory.
        path: PathBuf,
        /// The root.
        root: PathBuf,
    },
    /// The repository has no such ref.
    #[error("resolve {reference:?} in {}: there is no such ref", repository.display())]
    NoSuchReference {
        /// The repository.
        repository: PathBuf,
        /// The ref.
        reference: String,
    },
    /// The remote cannot be mirrored.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The repository cannot be read.
    #[error(transparent)]
    Git(#[from] ObjectsError),
}

impl Source {
    /// Reads one whole state. A directory that changes while it is read is read again, a few
    /// times; what is returned was all there at one moment.
    ///
    /// # Errors
    /// [`SourceError`]; nothing is cached, so the next call may succeed.
    pub fn snapshot(&self, keep: Keep) -> Result<Snapshot, SourceError> {
        match self {
            Self::Directory { root, subdirectory } => directory::snapshot(root, subdirectory, keep),
            Self::Git {
                repository,
                reference,
                subdirectory,
            } => from_git(repository, reference, subdirectory, keep),
            Self::Remote {
                remote,
                subdirectory,
            } => {
                remote.update()?;
                from_git(&remote.mirror, MIRRORED, subdirectory, keep)
            }
        }
    }
}

fn from_git(
    repository: &Path,
    reference: &str,
    subdirectory: &str,
    keep: Keep,
) -> Result<Snapshot, SourceError> {
    let objects = Objects::open(repository)?;
    let commit = objects
        .resolve(reference)?
        .ok_or_else(|| SourceError::NoSuchReference {
            repository: repository.to_owned(),
            reference: reference.to_owned(),
        })?;
    let facts = objects.commit(&commit)?;
    let limits = TreeLimits {
        files_max: FILES_MAX,
        file_bytes_max: FILE_BYTES_MAX,
    };
    let directory = subdirectory.trim_matches('/');
    let keep = |path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        !is_hidden(&path) && keep(&path)
    };
    let found = objects.files(&commit, directory, keep, limits)?;
    if found.iter().map(|file| file.bytes.len()).sum::<usize>() > BYTES_MAX {
        return Err(walk::over(repository, BYTES_MAX, "bytes"));
    }
    let mut files: Vec<(String, Vec<u8>)> = found
        .into_iter()
        .map(|file| {
            let path = within(directory, &String::from_utf8_lossy(&file.path));
            (path, file.bytes)
        })
        .collect();
    files.sort();
    Ok(Snapshot {
        revision: Revision::new(commit.as_str()),
        files,
        author: Some(Author {
            name: facts.author_name,
            email: facts.author_email,
        }),
        committed_at: Some(facts.time),
    })
}

/// A path within `directory`, which may be empty, as one that starts at the root.
fn within(directory: &str, path: &str) -> String {
    match directory {
        "" => path.to_owned(),
        _ => format!("{directory}/{path}"),
    }
}

fn is_hidden(path: &str) -> bool {
    let directories = path
        .rsplit_once('/')
        .map_or("", |(directories, _)| directories);
    directories.split('/').any(|part| part.starts_with('.'))
}
