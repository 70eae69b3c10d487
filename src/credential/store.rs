//! The daemon's credential store: one JSON file for its user's eyes only.
//!
//! It is replaced whole, by a rename, so that a crash leaves the old one or the new one. A change
//! holds a lock on the data directory, so that of two changes at once neither is lost; a reader
//! needs none. The daemon reads it anew for each run.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::provider::{Provider, Scheme};
use super::secret::Secret;

/// The file's name in the data directory.
pub const FILE_NAME: &str = "credentials.json";

/// A larger file is none of ours, in bytes.
const SIZE_MAX: u64 = 1 << 20;

/// Version of the file's form.
const VERSION: u32 = 1;

/// One stored credential.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The value.
    pub secret: Secret,
    /// How to present it.
    pub scheme: Scheme,
    /// When it was stored.
    pub since: Timestamp,
    /// When it ends; none if it doesn't say so.
    pub expires_at: Option<Timestamp>,
}

/// All stored credentials.
#[derive(Clone, Debug, Default)]
pub struct Credentials(BTreeMap<(Provider, String), Stored>);

impl Credentials {
    /// The provider's, with their accounts, in the accounts' order: the first is used.
    pub fn of(&self, provider: Provider) -> impl Iterator<Item = (&str, &Stored)> {
        let own = self
            .0
            .iter()
            .filter(move |((owner, _), _)| *owner == provider);
        own.map(|((_, account), stored)| (account.as_str(), stored))
    }

    /// Every provider and account, and how its credential is.
    pub fn iter(&self) -> impl Iterator<Item = (Provider, &str, &Stored)> {
        self.0
            .iter()
            .map(|((provider, account), stored)| (*provider, account.as_str(), stored))
    }

    /// Adds one, in place of an earlier one of the same account.
    pub fn put(&mut self, provider: Provider, account: &str, stored: Stored) {
        self.0.insert((provider, account.to_owned()), stored);
    }

    /// Takes the provider's away; whether there were any.
    pub fn remove(&mut self, provider: Provider) -> bool {
        let before = self.0.len();
        self.0.retain(|(owner, _), _| *owner != provider);
        self.0.len() < before
    }
}

/// The store can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reading failed.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read or write it, so what it holds may be known or not ours.
    #[error(
        "{} is open to others (mode {mode:o}, owner {owner}): make it the daemon's with mode 600, \
         and replace the credentials in it",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner's uid.
        owner: u32,
    },
    /// It isn't a file of ours. The cause is left out, since it may quote the file.
    #[error(
        "{} is no credential store of this version (line {line}): move it away and log in again",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong; 0 if nowhere in particular.
        line: usize,
    },
    /// Others could put a file of theirs in its place.
    #[error(
        "the data directory {} is owner {owner}'s with mode {mode:o}: log in as the daemon's user, \
         and let nobody else write there",
        path.display()
    )]
    Folder {
        /// The data directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner's uid.
        owner: u32,
    },
    /// Replacing failed; the old file is as it was.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Where the credentials lie.
#[derive(Clone, Debug)]
pub struct CredentialStore {
    path: PathBuf,
}

impl CredentialStore {
    /// The store of a data directory; nothing is opened or made yet.
    pub fn new(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join(FILE_NAME),
        }
    }

    /// What is stored; nothing if there is no file.
    ///
    /// # Errors
    ///
    /// If the file can't be read, is open to others, or isn't ours.
    pub fn load(&self) -> Result<Credentials, StoreError> {
        let read = |source| StoreError::Read {
            path: self.path.clone(),
            source,
        };
        let no_follow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = no_follow.bits().cast_signed();
        let file = match OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Credentials::default());
            }
            Err(error) => return Err(read(error)),
        };
        self.refuse_exposed(&file)?;
        let mut text = Zeroizing::new(Vec::with_capacity(64 * 1024));
        (&file)
            .take(SIZE_MAX)
            .read_to_end(&mut text)
            .map_err(read)?;
        self.decode(&text)
    }

    /// Changes what is stored, durably; what `change` returns. The data directory is made if it
    /// isn't there.
    ///
    /// # Errors
    ///
    /// If what is stored can't be read, the data directory is not the caller's alone, or the new
    /// file can't be written whole; the old one is then as it was.
    pub fn change<T>(&self, change: impl FnOnce(&mut Credentials) -> T) -> Result<T, StoreError> {
        let write = |source| StoreError::Write {
            path: self.path.clone(),
            source,
        };
        let folder = self.open_folder()?;
        // Let go when it is closed. Whoever else changes something holds it for no longer.
        folder.lock().map_err(write)?;
        let mut credentials = self.load()?;
        let changed = change(&mut credentials);
        self.replace(&credentials, &folder).map_err(write)?;
        Ok(changed)
    }

    /// The data directory, if nobody else can put files there.
    fn open_folder(&self) -> Result<File, StoreError> {
        let path = self.folder();
        let write = |source| StoreError::Write {
            path: self.path.clone(),
            source,
        };
        // As the daemon makes it: runs pass through it.
        let made = DirBuilder::new().recursive(true).mode(0o711).create(path);
        made.map_err(write)?;
        let folder = File::open(path).map_err(write)?;
        let metadata = folder.metadata().map_err(write)?;
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        if mode & 0o022 != 0 || owner != rustix::process::geteuid().as_raw() {
            return Err(StoreError::Folder {
                path: path.to_owned(),
                mode,
                owner,
            });
        }
        Ok(folder)
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn refuse_exposed(&self, file: &File) -> Result<(), StoreError> {
        let read = |source| StoreError::Read {
            path: self.path.clone(),
            source,
        };
        let metadata = file.metadata().map_err(read)?;
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        if mode & 0o077 != 0 || owner != rustix::process::geteuid().as_raw() {
            return Err(StoreError::Exposed {
                path: self.path.clone(),
                mode,
                owner,
            });
        }
        if !metadata.is_file() || metadata.len() >= SIZE_MAX {
            return Err(StoreError::Malformed {
                path: self.path.clone(),
                line: 0,
            });
        }
        Ok(())
    }

    fn decode(&self, text: &[u8]) -> Result<Credentials, StoreError> {
        let malformed = |line| StoreError::Malformed {
            path: self.path.clone(),
            line,
        };
        let document: Document =
            serde_json::from_slice(text).map_err(|error| malformed(error.line()))?;
        if document.version != VERSION {
            return Err(malformed(0));
        }
        let mut credentials = Credentials::default();
        for mut entry in document.credentials {
            let stored = Stored {
                secret: Secret::new(std::mem::take(&mut entry.secret)),
                scheme: entry.scheme,
                since: entry.since,
                expires_at: entry.expires_at,
            };
            credentials.put(entry.provider, &entry.account, stored);
        }
        Ok(credentials)
    }

    fn replace(&self, credentials: &Credentials, folder: &File) -> io::Result<()> {
        let entries = credentials.iter().map(|(provider, account, stored)| Entry {
            provider,
            account: account.to_owned(),
            scheme: stored.scheme,
            secret: stored.secret.expose().to_owned(),
            since: stored.since,
            expires_at: stored.expires_at,
        });
        let document = Document {
            version: VERSION,
            credentials: entries.collect(),
        };
        let mut text = Zeroizing::new(Vec::with_capacity(64 * 1024));
        serde_json::to_writer_pretty(&mut *text, &document)?;
        text.push(b'\n');
        // A temporary file is made with mode 600.
        let mut file = tempfile::NamedTempFile::new_in(self.folder())?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        folder.sync_all()
    }
}

/// The file's form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    version: u32,
    credentials: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    provider: Provider,
    account: String,
    scheme: Scheme,
    secret: String,
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}
