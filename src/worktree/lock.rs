//! One at a time at what we keep of a repo.

use std::fs::File;
use std::io;
use std::path::Path;

/// Held while a cache or seed is changed, or pinned. The kernel lets go when its holder dies; every
/// holder's own work is bounded, so waiting is too.
#[derive(Debug)]
pub(super) struct RepoLock {
    _file: File,
}

impl RepoLock {
    /// Waits to be the only one.
    pub(super) fn exclusive(repo: &Path) -> io::Result<Self> {
        let file = open(repo)?;
        file.lock()?;
        Ok(Self { _file: file })
    }
}

fn open(repo: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(repo.join("lock"))
}
