//! Git's index (versions 2, 3 and 4, SHA-1), edited in place.
//!
//! Git trusts a file's cached content when nine numbers of its `stat` equal those in the index. A
//! clone has the donor's content and numbers of its own; writing those over the donor's makes the
//! first `git status` exact without reading a file. Nothing else moves: entries keep their
//! offsets, so version 4's compressed paths stay valid.
//!
//! The input may be an agent's: every offset is checked, and nothing is believed beyond the form.

use rustix::fs::Stat;
use sha1_smol::Sha1;

/// Bytes of the trailing hash.
const HASH_BYTES: usize = 20;
/// Bytes of an entry before its flags: the stat data and the object id.
const FIXED_BYTES: usize = 60;
/// Kind bits of an entry's mode.
const KIND_MASK: u32 = 0o170_000;

/// Why an index can't be edited in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It is shorter than it says, or has no valid form.
    #[error("truncated or malformed at byte {at}")]
    Malformed {
        /// Where reading stopped.
        at: usize,
    },
    /// A version that we don't know.
    #[error("version {version} is not known")]
    Version {
        /// The version.
        version: u32,
    },
    /// It needs an extension without which it is not whole (split or sparse index).
    #[error(
        "the required extension {:?} is not known",
        String::from_utf8_lossy(name)
    )]
    Extension {
        /// The extension's four letters.
        name: [u8; 4],
    },
    /// It has submodules, which no seed has.
    #[error("it has submodules")]
    Submodule,
    /// The trailing hash is wrong.
    #[error("the checksum is wrong")]
    Checksum,
}

/// What an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worktree) enum EntryKind {
    File,
    Executable,
    Link,
    Submodule,
}

/// One tracked path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::worktree) struct Entry {
    at: usize,
    flags_at: usize,
    /// Path from the root of the tree.
    pub(in crate::worktree) path: Vec<u8>,
    /// What it stands for.
    pub(in crate::worktree) kind: EntryKind,
}

/// A parsed index.
#[derive(Debug)]
pub(in crate::worktree) struct Index {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The cached-tree extension, header and all.
    cached_tree: Option<std::ops::Range<usize>>,
    entries_end: usize,
}

impl Index {
    /// Reads an index.
    pub(in crate::worktree) fn parse(bytes: Vec<u8>) -> Result<Self, IndexError> {
        let body = bytes.len().checked_sub(HASH_BYTES);
        let body = body.filter(|_| bytes.starts_with(b"DIRC"));
        let body = body.ok_or(IndexError::Malformed { at: 0 })?;
        let version = be32(&bytes[..body], 4)?;
        if !(2..=4).contains(&version) {
            return Err(IndexError::Version { version });
        }
        check_trailer(&bytes, body)?;
        let count = be32(&bytes[..body], 8)?;
        let mut reader = Reader {
            bytes: &bytes[..body],
            at: 12,
            version,
            previous: Vec::new(),
        };
        // An entry takes more than 64 bytes, so a false count can't reserve much.
        let mut entries = Vec::with_capacity(body / 64);
        for _ in 0..count {
            entries.push(reader.entry()?);
        }
        let entries_end = reader.at;
        let cached_tree = reader.extensions()?;
        Ok(Self {
            entries,
            cached_tree,
            entries_end,
            bytes,
        })
    }

    /// The tracked paths, in git's order.
    pub(in crate::worktree) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Replaces the stat data of entry number `entry`.
    pub(in crate::worktree) fn restamp(&mut self, entry: usize, stamp: &Stamp) {
        let at = self.entries[entry].at;
        // The nine numbers are ten words; the seventh is the mode, which is content.
        self.bytes[at..at + 24].copy_from_slice(&stamp.0[..24]);
        self.bytes[at + 28..at + 40].copy_from_slice(&stamp.0[24..]);
    }

    /// Clears what hides a change from git: "assume unchanged" and "skip worktree".
    pub(in crate::worktree) fn unhide(&mut self) {
        for entry in &self.entries {
            let at = entry.flags_at;
            let is_extended = self.bytes[at] & 0x40 != 0;
            self.bytes[at] &= 0x7f;
            if is_extended {
                self.bytes[at + 2] &= 0xbf;
            }
        }
    }

    /// The index as bytes: the cached tree kept, every other extension dropped because it speaks
    /// about another working tree (or, like offsets and hashes of extensions, about their places).
    pub(in crate::worktree) fn seal(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        let mut end = self.entries_end;
        if let Some(extension) = self.cached_tree {
            let length = extension.len();
            bytes.copy_within(extension, end);
            end += length;
        }
        bytes.truncate(end);
        let hash = Sha1::from(&bytes).digest().bytes();
        bytes.extend_from_slice(&hash);
        bytes
    }
}

/// The words of `stat` that git caches, in the index's form and order, without the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worktree) struct Stamp([u8; 36]);

impl Stamp {
    /// Takes what git would take from this `stat`.
    pub(in crate::worktree) fn of(stat: &Stat) -> Self {
        let words = [
            stat.st_ctime.cast_unsigned(),
            stat.st_ctime_nsec,
            stat.st_mtime.cast_unsigned(),
            stat.st_mtime_nsec,
            stat.st_dev,
            stat.st_ino,
            u64::from(stat.st_uid),
            u64::from(stat.st_gid),
            stat.st_size.cast_unsigned(),
        ];
        let mut bytes = [0; 36];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            // Git keeps the low half of each.
            slot.copy_from_slice(&word.to_be_bytes()[4..]);
        }
        Self(bytes)
    }
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, IndexError> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_be_bytes)
        .ok_or(IndexError::Malformed { at })
}

/// A trailer of zeros is what `index.skipHash` writes.
fn check_trailer(bytes: &[u8], body: usize) -> Result<(), IndexError> {
    let trailer = &bytes[body..];
    let is_skipped = trailer.iter().all(|&byte| byte == 0);
    if is_skipped || Sha1::from(&bytes[..body]).digest().bytes() == trailer {
        Ok(())
    } else {
        Err(IndexError::Checksum)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    version: u32,
    previous: Vec<u8>,
}

impl Reader<'_> {
    fn malformed(&self) -> IndexError {
        IndexError::Malformed { at: self.at }
    }

    fn byte(&mut self) -> Result<u8, IndexError> {
        let byte = self.bytes.get(self.at).copied();
        let byte = byte.ok_or_else(|| self.malformed())?;
        self.at += 1;
        Ok(byte)
    }

    /// Bytes up to the next NUL, which is passed over.
    fn text(&mut self) -> Result<&[u8], IndexError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or_else(|| self.malformed())?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn entry(&mut self) -> Result<Entry, IndexError> {
        let at = self.at;
        let mode = be32(self.bytes, at + 24)?;
        let kind = match mode & KIND_MASK {
            0o100_000 if mode & 0o100 != 0 => EntryKind::Executable,
            0o100_000 => EntryKind::File,
            0o120_000 => EntryKind::Link,
            0o160_000 => EntryKind::Submodule,
            _ => return Err(IndexError::Malformed { at: at + 24 }),
        };
        let flags_at = at + FIXED_BYTES;
        self.at = flags_at;
        let is_extended = self.byte()? & 0x40 != 0;
        self.byte()?;
        if is_extended {
            self.byte()?;
            self.byte()?;
        }
        let path = if self.version == 4 {
            self.suffixed_path()?
        } else {
            let path = self.text()?.to_vec();
            // One to eight NULs round the entry up to a multiple of eight.
            self.at = at + (self.at - at).next_multiple_of(8);
            path
        };
        if self.at > self.bytes.len() {
            return Err(self.malformed());
        }
        Ok(Entry {
            at,
            flags_at,
            path,
            kind,
        })
    }

    /// Version 4: how much of the previous path to cut off, then what follows.
    fn suffixed_path(&mut self) -> Result<Vec<u8>, IndexError> {
        let mut byte = self.byte()?;
        let mut cut = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            let next = cut.checked_add(1).and_then(|cut| cut.checked_mul(128));
            cut = next.ok_or_else(|| self.malformed())? + usize::from(byte & 0x7f);
        }
        let kept = self.previous.len().checked_sub(cut);
        let kept = kept.ok_or_else(|| self.malformed())?;
        let suffix = self.text()?.to_vec();
        self.previous.truncate(kept);
        self.previous.extend_from_slice(&suffix);
        Ok(self.previous.clone())
    }

    fn extensions(&mut self) -> Result<Option<std::ops::Range<usize>>, IndexError> {
        let mut cached_tree = None;
        while self.at < self.bytes.len() {
            let start = self.at;
            let name: [u8; 4] = be32(self.bytes, start)?.to_be_bytes();
            let length = usize::try_from(be32(self.bytes, start + 4)?);
            let length = length.map_err(|_too_long| self.malformed())?;
            let end = (start + 8).checked_add(length);
            let end = end.filter(|&end| end <= self.bytes.len());
            let end = end.ok_or_else(|| self.malformed())?;
            if &name == b"TREE" {
                cached_tree = Some(start..end);
            } else if !name[0].is_ascii_uppercase() {
                return Err(IndexError::Extension { name });
            }
            self.at = end;
        }
        Ok(cached_tree)
    }
}

#[cfg(test)]
mod tests;
