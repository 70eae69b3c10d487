//! The emergency stop: a file that everything which starts a run looks at.
//!
//! It is the file's presence that stops, so that an operator's `touch` is enough and a torn or
//! foreign file still stops. Who set it and why is told as far as the file says it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::observed::Estop;

/// The file's name in the data directory (design §4).
pub const FILE_NAME: &str = "ESTOP";

/// More than this of the file is not read.
const BYTES_MAX: u64 = 64 << 10;

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contents {
    by: String,
    reason: Option<String>,
    at: Timestamp,
}

/// The emergency stop, if it is set.
///
/// # Errors
/// When it could not be looked at. Nothing may start then.
pub fn read(data_dir: &Path) -> io::Result<Option<Estop>> {
    let file = match std::fs::File::open(path(data_dir)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    // A directory of that name stops as well: what counts is that something is there.
    let read = io::Read::read_to_end(&mut io::Read::take(file, BYTES_MAX), &mut text);
    let contents = read
        .ok()
        .and_then(|_| serde_json::from_slice::<Contents>(&text).ok());
    Ok(Some(match contents {
        Some(Contents { by, reason, .. }) => Estop { by, reason },
        None => Estop {
            by: "someone, by hand".to_owned(),
            reason: None,
        },
    }))
}

/// Sets it, in one step. Setting it again keeps the first.
///
/// # Errors
/// When the file can't be written.
pub fn set(data_dir: &Path, estop: &Estop, at: Timestamp) -> io::Result<()> {
    let contents = Contents {
        by: estop.by.clone(),
        reason: estop.reason.clone(),
        at,
    };
    let mut file = tempfile::NamedTempFile::new_in(data_dir)?;
    file.write_all(&serde_json::to_vec(&contents)?)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path(data_dir)) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error),
    }
}

/// Clears it; whether it was set.
///
/// # Errors
/// When the file can't be removed.
pub fn clear(data_dir: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path(data_dir)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE_NAME)
}

#[cfg(test)]
mod tests {
    use super::{FILE_NAME, clear, read, set};
    use crate::model::observed::Estop;
    use jiff::Timestamp;

    #[test]
    fn presence_stops_whatever_the_file_holds() {
        let dir = tempfile::TempDir::new().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        std::fs::write(dir.path().join(FILE_NAME), "").unwrap();
        assert!(read(dir.path()).unwrap().is_some());
        std::fs::remove_file(dir.path().join(FILE_NAME)).unwrap();
        std::fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        assert!(read(dir.path()).unwrap().is_some());
    }

    #[test]
    fn the_first_who_sets_it_is_who_set_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let first = Estop {
            by: "ada".to_owned(),
            reason: Some("smoke".to_owned()),
        };
        set(dir.path(), &first, Timestamp::UNIX_EPOCH).unwrap();
        let second = Estop {
            by: "bob".to_owned(),
            reason: None,
        };
        set(dir.path(), &second, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(first));
        assert!(clear(dir.path()).unwrap());
        assert!(!clear(dir.path()).unwrap());
        assert_eq!(read(dir.path()).unwrap(), None);
    }
}
