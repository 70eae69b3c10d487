//! What an untrusted repository says about its refs, read as data.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, FileType};

use super::beneath;
use crate::model::worktree::ObjectId;

/// Longest file of refs or reflog that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Longest loose ref that is read.
const REF_BYTES_MAX: u64 = 4096;
/// Most refs that are taken.
const REFS_MAX: usize = 100_000;
/// Deepest folder of loose refs that is entered.
const DEPTH_MAX: usize = 32;

/// Where `HEAD` points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// To a branch, named in full; it may have no commit yet.
    Branch(String),
    /// To a commit.
    Detached(ObjectId),
}

/// The refs of a repository in the files format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refs {
    /// Where `HEAD` points.
    pub head: Head,
    /// Every ref with a legal name, but symbolic ones.
    pub refs: BTreeMap<String, ObjectId>,
    /// Stash entries, newest first.
    pub stashes: Vec<ObjectId>,
}

impl Refs {
    /// The commit that `HEAD` stands for.
    pub fn head_id(&self) -> Option<&ObjectId> {
        match &self.head {
            Head::Branch(name) => self.refs.get(name),
            Head::Detached(id) => Some(id),
        }
    }

    /// Reads the refs of the `.git` directory that is pinned by `git_directory`.
    ///
    /// # Errors
    /// `InvalidData` when it is not a repository in the files format, or over the limits.
    pub(super) fn read(git_directory: &OwnedFd) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let head = beneath::read(git_directory, b"HEAD", REF_BYTES_MAX)?;
        let head = head.as_deref().and_then(parse_head);
        let head = head.ok_or_else(|| invalid("HEAD is missing or not understood"))?;
        let mut refs = BTreeMap::new();
        if let Some(packed) = beneath::read(git_directory, b"packed-refs", FILE_BYTES_MAX)? {
            parse_packed(&packed, &mut refs);
        }
        match beneath::open_directory(git_directory, b"refs") {
            Ok(directory) => read_loose(&directory, "refs", 0, &mut refs)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if refs.len() > REFS_MAX {
            return Err(invalid("too many refs"));
        }
        let log = beneath::read(git_directory, b"logs/refs/stash", FILE_BYTES_MAX)?;
        let mut stashes = log.as_deref().map(parse_log).unwrap_or_default();
        stashes.extend(refs.get("refs/stash").cloned());
        stashes.reverse();
        stashes.dedup();
        Ok(Self {
            head,
            refs,
            stashes,
        })
    }
}

fn parse_head(bytes: &[u8]) -> Option<Head> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    match text.strip_prefix("ref: ") {
        // The placeholder that other ref formats leave behind.
        Some("refs/heads/.invalid") => None,
        Some(name) => is_legal(name).then(|| Head::Branch(name.to_owned())),
        None => text.parse().ok().map(Head::Detached),
    }
}

fn parse_packed(bytes: &[u8], refs: &mut BTreeMap<String, ObjectId>) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let Some((id, name)) = line.split_once(' ') else {
            continue;
        };
        if let Ok(id) = id.parse()
            && is_legal(name)
        {
            refs.insert(name.to_owned(), id);
        }
    }
}

/// The new ids of a reflog, oldest first.
fn parse_log(bytes: &[u8]) -> Vec<ObjectId> {
    let new_id = |line: &[u8]| std::str::from_utf8(line.get(41..81)?).ok()?.parse().ok();
    bytes
        .split(|&byte| byte == b'\n')
        .filter_map(new_id)
        .collect()
}

fn read_loose(
    directory: &OwnedFd,
    prefix: &str,
    depth: usize,
    refs: &mut BTreeMap<String, ObjectId>,
) -> io::Result<()> {
    if depth > DEPTH_MAX || refs.len() > REFS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "too many or too deep refs",
        ));
    }
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let component = entry.file_name().to_bytes();
        let Ok(text) = std::str::from_utf8(component) else {
            continue;
        };
        let name = format!("{prefix}/{text}");
        if !is_legal(&name) {
            continue;
        }
        if is_directory(directory, component) {
            let inner = beneath::open_directory(directory, component)?;
            read_loose(&inner, &name, depth + 1, refs)?;
            continue;
        }
        // A lock, a symbolic ref or a file that is being replaced says nothing.
        let content = beneath::read(directory, component, REF_BYTES_MAX).unwrap_or_default();
        let text = content.as_deref().and_then(|b| std::str::from_utf8(b).ok());
        if let Some(Ok(id)) = text.map(|text| text.trim_end().parse()) {
            refs.insert(name, id);
        }
    }
    Ok(())
}

fn is_directory(parent: impl AsFd, name: &[u8]) -> bool {
    let status = rustix::fs::statat(parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Directory)
}

/// Whether git itself would take this name for a ref (`git check-ref-format`).
fn is_legal(name: &str) -> bool {
    let bad = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let component =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.starts_with("refs/")
        && name.len() <= 1024
        && !name.contains(bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && name.split('/').all(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn read(files: &[(&str, String)]) -> io::Result<Refs> {
        let directory = tempfile::Builder::new().tempdir().unwrap();
        for (path, content) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Refs::read(&beneath::open_root(directory.path()).unwrap())
    }

    #[test]
    fn loose_refs_win_over_packed_ones() {
        let refs = read(&[
            ("HEAD", "ref: refs/heads/x/y\n".to_owned()),
            (
                "packed-refs",
                format!("# pack-refs\n{A} refs/heads/x/y\n^{B}\n{A} refs/tags/t\n"),
            ),
            ("refs/heads/x/y", format!("{B}\n")),
            ("refs/heads/x/y.lock", format!("{A}\n")),
            ("refs/heads/sym", "ref: refs/heads/x/y\n".to_owned()),
        ])
        .unwrap();
        assert_eq!(refs.head, Head::Branch("refs/heads/x/y".to_owned()));
        assert_eq!(refs.head_id().map(ObjectId::as_str), Some(B));
        let names: Vec<_> = refs.refs.keys().map(String::as_str).collect();
        assert_eq!(names, ["refs/heads/x/y", "refs/tags/t"]);
    }

    #[test]
    fn every_stash_entry_is_found() {
        let line = |old: &str, new: &str| format!("{old} {new} N <n@x> 1 +0000\tWIP\n");
        let refs = read(&[
            ("HEAD", format!("{A}\n")),
            ("refs/stash", format!("{B}\n")),
            ("logs/refs/stash", line(&"0".repeat(40), A) + &line(A, B)),
        ])
        .unwrap();
        assert_eq!(refs.head_id().map(ObjectId::as_str), Some(A));
        let stashes: Vec<_> = refs.stashes.iter().map(ObjectId::as_str).collect();
        assert_eq!(stashes, [B, A]);
    }

    #[test]
    fn what_is_no_files_repository_is_an_error() {
        for head in [
            "",
            "ref: refs/heads/.invalid\n",
            "ref: ../../x\n",
            "garbage",
        ] {
            assert!(read(&[("HEAD", head.to_owned())]).is_err(), "{head:?}");
        }
    }

    #[test]
    fn names_are_held_to_gits_rules() {
        for right in ["refs/heads/main", "refs/stash", "refs/heads/é"] {
            assert!(is_legal(right), "{right}");
        }
        for wrong in [
            "HEAD",
            "refs/../x",
            "refs/a b",
            "refs//x",
            "refs/x.lock/y",
            "refs/.x",
            "refs/a\n",
        ] {
            assert!(!is_legal(wrong), "{wrong:?}");
        }
    }
}
