//! Reads a directory so that the result was all there at one moment.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::walk::{self, Listing, Stat, unreadable};
use super::{BYTES_MAX, FILE_BYTES_MAX, Keep, Snapshot, SourceError};
use crate::model::kind::Revision;

/// Readings before a directory counts as never at rest.
const ATTEMPTS_MAX: usize = 5;

type Files = Vec<(String, Vec<u8>)>;

pub(super) fn snapshot(
    root: &Path,
    subdirectory: &str,
    keep: Keep,
) -> Result<Snapshot, SourceError> {
    settled(root, subdirectory, keep, || {})
}

/// Reads until nothing changed from before the first file to after the last. `read_once` is told
/// of each reading, between its last file and the check.
fn settled(
    root: &Path,
    subdirectory: &str,
    keep: Keep,
    mut read_once: impl FnMut(),
) -> Result<Snapshot, SourceError> {
    for _attempt in 0..ATTEMPTS_MAX {
        let before = walk::list(root, subdirectory, keep)?;
        let Some(files) = read_all(root, &before)? else {
            continue;
        };
        read_once();
        if walk::list(root, subdirectory, keep)? == before {
            return Ok(Snapshot {
                revision: revision_of(&files),
                files,
                author: None,
                committed_at: None,
            });
        }
    }
    Err(SourceError::Unsettled {
        path: root.to_owned(),
    })
}

/// Every file of a listing; nothing if one is not what was listed.
fn read_all(root: &Path, listing: &Listing) -> Result<Option<Files>, SourceError> {
    let mut files = Vec::with_capacity(listing.files.len());
    let mut total = 0;
    for (name, (path, stat)) in &listing.files {
        if usize::try_from(stat.size()).is_ok_and(|size| size > FILE_BYTES_MAX) {
            return Err(walk::over(path, FILE_BYTES_MAX, "bytes"));
        }
        match read(path, *stat) {
            Ok(Some(bytes)) => {
                total += bytes.len();
                files.push((name.clone(), bytes));
            }
            Ok(None) => return Ok(None),
            Err(error) if walk::is_gone(&error) => return Ok(None),
            Err(error) => return Err(unreadable(path, error)),
        }
        if total > BYTES_MAX {
            return Err(walk::over(root, BYTES_MAX, "bytes"));
        }
    }
    Ok(Some(files))
}

/// A file's bytes; nothing if it was not in the state `listed` all the time.
fn read(path: &Path, listed: Stat) -> io::Result<Option<Vec<u8>>> {
    let mut file = File::open(path)?;
    if Stat::of(&file.metadata()?) != listed {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    // One byte more than listed shows that it has grown.
    (&mut file)
        .take(listed.size() + 1)
        .read_to_end(&mut bytes)?;
    let is_whole = bytes.len() as u64 == listed.size() && Stat::of(&file.metadata()?) == listed;
    Ok(is_whole.then_some(bytes))
}

/// The hash of all paths and contents. Lengths keep neighbours apart.
fn revision_of(files: &Files) -> Revision {
    let mut hash = Sha256::new();
    for (path, bytes) in files {
        for part in [path.as_bytes(), bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    let mut text = "sha256:".to_owned();
    for byte in hash.finalize() {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    Revision::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(path: &str) -> bool {
        path.ends_with(".yaml")
    }

    #[test]
    fn a_directory_that_changes_while_it_is_read_is_read_again() {
        let root = tempfile::Builder::new().tempdir().unwrap();
        let file = root.path().join("a.yaml");
        std::fs::write(&file, "old").unwrap();
        let mut readings = 0;
        let snapshot = settled(root.path(), "", yaml, || {
            readings += 1;
            if readings == 1 {
                std::fs::write(root.path().join("b.yaml"), "more").unwrap();
            }
        });
        let names: Vec<_> = snapshot.unwrap().files.into_iter().map(|it| it.0).collect();
        assert_eq!(
            (names, readings),
            (vec!["a.yaml".to_owned(), "b.yaml".to_owned()], 2)
        );
    }

    #[test]
    fn a_directory_that_never_rests_is_an_error() {
        let root = tempfile::Builder::new().tempdir().unwrap();
        let mut readings = 0;
        let result = settled(root.path(), "", yaml, || {
            readings += 1;
            std::fs::write(root.path().join(format!("{readings}.yaml")), "x").unwrap();
        });
        assert!(
            matches!(result, Err(SourceError::Unsettled { .. })),
            "{result:?}"
        );
        assert_eq!(readings, ATTEMPTS_MAX);
    }

    #[test]
    fn a_file_that_is_not_what_was_listed_is_not_taken() {
        let root = tempfile::Builder::new().tempdir().unwrap();
        let file = root.path().join("a.yaml");
        std::fs::write(&file, "old").unwrap();
        let listing = walk::list(root.path(), "", yaml).unwrap();
        std::fs::write(&file, "newer").unwrap();
        assert_eq!(read_all(root.path(), &listing).unwrap(), None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read_all(root.path(), &listing).unwrap(), None);
    }
}
