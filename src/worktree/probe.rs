//! Whether files of a directory's volume can be cloned: asked by cloning one.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::reason::ReasonCode;

/// Why nothing can be cloned in a directory.
#[derive(Debug, thiserror::Error)]
#[error("clone a file in {}", directory.display())]
pub struct Refusal {
    /// Where it was tried.
    pub directory: PathBuf,
    /// The class of the system's answer.
    pub reason: ReasonCode,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

/// Clones an anonymous file in `directory`, which must exist. Leaves nothing behind, also when
/// killed half way.
///
/// # Errors
/// [`Refusal`], whose reason tells "this volume can't" from "this host can't".
pub fn probe(directory: &Path) -> Result<(), Refusal> {
    let refusal = |reason, source| Refusal {
        directory: directory.to_owned(),
        reason,
        source,
    };
    let files = || {
        let mut donor = tempfile::tempfile_in(directory)?;
        donor.write_all(&[7; 4096])?;
        Ok((donor, tempfile::tempfile_in(directory)?))
    };
    let (donor, copy): (File, File) =
        files().map_err(|source| refusal(ReasonCode::of_io(&source), source))?;
    rustix::fs::ioctl_ficlone(&copy, &donor).map_err(|errno| {
        let source = errno.into();
        refusal(ReasonCode::of_clone(&source), source)
    })
}
