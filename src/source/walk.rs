//! Lists the files of a directory with what tells one state of a file from another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{FILES_MAX, Keep, SourceError, within};

/// Directories inside each other.
const DEPTH_MAX: usize = 32;

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stat {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stat {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub(super) fn size(self) -> u64 {
        self.size
    }
}

/// What a directory holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Files by their path from the root: where each really is, and its state.
    pub(super) files: BTreeMap<String, (PathBuf, Stat)>,
    /// Every directory that was looked into, itself included.
    pub(super) directories: BTreeSet<PathBuf>,
}

/// Lists the files beneath `subdirectory` of `root` that `keep` accepts. Symbolic links are followed as long as they
/// stay beneath it, each directory is entered once, and none whose name begins with a dot.
pub(super) fn list(root: &Path, subdirectory: &str, keep: Keep) -> Result<Listing, SourceError> {
    let real = enter(root, subdirectory)?;
    let mut listing = Listing::default();
    listing.directories.insert(real.clone());
    let mut pending = vec![(real.clone(), String::new(), 0)];
    while let Some((directory, prefix, depth)) = pending.pop() {
        let mut below = Vec::new();
        for name in names_in(&directory)? {
            let path = format!("{prefix}{name}");
            let Some((target, metadata)) = look_up(&real, &directory.join(&name))? else {
                continue;
            };
            if metadata.is_dir() {
                if !name.starts_with('.') && listing.directories.insert(target.clone()) {
                    if depth == DEPTH_MAX {
                        return Err(over(&target, DEPTH_MAX, "levels of directories"));
                    }
                    below.push((target, format!("{path}/"), depth + 1));
                }
            } else if metadata.is_file() && keep(&path) {
                if listing.files.len() == FILES_MAX {
                    return Err(over(root, FILES_MAX, "files"));
                }
                let stat = Stat::of(&metadata);
                listing
                    .files
                    .insert(within(subdirectory, &path), (target, stat));
            }
        }
        pending.extend(below.into_iter().rev());
    }
    Ok(listing)
}

/// Where the subdirectory really is: within the root, whatever links lead there.
fn enter(root: &Path, subdirectory: &str) -> Result<PathBuf, SourceError> {
    let resolve = |path: &Path| {
        let resolved = path.canonicalize();
        resolved.map_err(|source| unreadable(path, source))
    };
    let (outer, path) = (resolve(root)?, root.join(subdirectory));
    let inner = resolve(&path)?;
    if !inner.starts_with(&outer) {
        return Err(SourceError::Outside {
            path,
            root: root.to_owned(),
        });
    }
    Ok(inner)
}

/// Names in order. A directory that has just gone is empty.
fn names_in(directory: &Path) -> Result<Vec<String>, SourceError> {
    let failed = |source| unreadable(directory, source);
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        // A name that is not text cannot be opened by its text: it is left out as a dead link is.
        names.extend(name.into_string());
    }
    names.sort();
    Ok(names)
}

/// What `path` leads to. Nothing if that lies outside of `root`, or does not exist.
fn look_up(root: &Path, path: &Path) -> Result<Option<(PathBuf, Metadata)>, SourceError> {
    let failed = |source| unreadable(path, source);
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_symlink() {
        return Ok(Some((path.to_owned(), metadata)));
    }
    let resolved = path.canonicalize().and_then(|target| {
        let metadata = target.metadata()?;
        Ok((target, metadata))
    });
    match resolved {
        Ok((target, metadata)) => Ok(target.starts_with(root).then_some((target, metadata))),
        // A link into nothing, or in a circle.
        Err(error) if is_gone(&error) || error.raw_os_error() == Some(libc::ELOOP) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

pub(super) fn over(path: &Path, limit: usize, unit: &'static str) -> SourceError {
    SourceError::TooLarge {
        path: path.to_owned(),
        limit,
        unit,
    }
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

pub(super) fn unreadable(path: &Path, source: io::Error) -> SourceError {
    SourceError::Read {
        path: path.to_owned(),
        source,
    }
}
