use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{CWD, lstat, statat};

use super::*;
use crate::git::command::Git;

/// Runs git in a scratch repository and returns what it says.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let run = Git::new(directory, arguments[0])
        .args(&arguments[1..])
        .env("GIT_AUTHOR_NAME", "A")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "A")
        .env("GIT_COMMITTER_EMAIL", "a@example.com")
        .env("GIT_OPTIONAL_LOCKS", "1")
        .run();
    String::from_utf8(run.unwrap().stdout).unwrap()
}

/// A repository with a link, an executable, an empty file and shared path prefixes.
fn sample() -> tempfile::TempDir {
    let root = tempfile::Builder::new().tempdir().unwrap();
    let path = root.path();
    git(path, &["init", "-q", "-b", "main"]);
    std::fs::create_dir_all(path.join("dir/inner")).unwrap();
    for name in [
        "a",
        "ab",
        "abc",
        "dir/a",
        "dir/inner/deep.txt",
        "dir.txt",
        "tab\there",
    ] {
        std::fs::write(path.join(name), name).unwrap();
    }
    std::fs::write(path.join("empty"), "").unwrap();
    std::fs::write(path.join("run.sh"), "#!/bin/sh\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path.join("run.sh"), mode).unwrap();
    std::os::unix::fs::symlink("nowhere", path.join("link")).unwrap();
    git(path, &["add", "-A"]);
    git(path, &["commit", "-qm", "all"]);
    root
}

fn parse(root: &Path) -> Index {
    Index::parse(std::fs::read(root.join(".git/index")).unwrap()).unwrap()
}

fn absolute(root: &Path, entry: &Entry) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    root.join(std::ffi::OsStr::from_bytes(&entry.path))
}

/// Gives every file a new inode and change time, with its content and mode as they were.
fn disturb(root: &Path, index: &Index) {
    for entry in index.entries() {
        let path = absolute(root, entry);
        let other = root.join("other");
        if entry.kind == EntryKind::Link {
            let target = std::fs::read_link(&path).unwrap();
            std::os::unix::fs::symlink(target, &other).unwrap();
        } else {
            std::fs::copy(&path, &other).unwrap();
        }
        std::fs::rename(&other, &path).unwrap();
    }
}

#[test]
fn a_restamped_index_is_exact_in_every_version() {
    let versions: [(&str, u8, &[&[&str]]); 4] = [
        ("2", 2, &[]),
        ("3", 3, &[&["update-index", "--skip-worktree", "a"]]),
        ("4", 4, &[]),
        (
            "4",
            4,
            &[&["update-index", "--force-untracked-cache"], &["status"]],
        ),
    ];
    for (wanted, version, preparation) in versions {
        let root = sample();
        let path = root.path();
        git(path, &["update-index", "--index-version", wanted]);
        for arguments in preparation {
            git(path, arguments);
        }
        let mut index = parse(path);
        assert_eq!(index.bytes[7], version);
        disturb(path, &index);
        index.unhide();
        let stale = std::fs::read(path.join(".git/index")).unwrap();
        assert_ne!(
            git(path, &["diff-files", "--raw"]),
            "",
            "the copy must look changed"
        );
        for number in 0..index.entries().len() {
            let stat = lstat(absolute(path, &index.entries()[number])).unwrap();
            index.restamp(number, &Stamp::of(&stat));
        }
        let sealed = index.seal();
        assert_ne!(sealed, stale);
        std::fs::write(path.join(".git/index"), &sealed).unwrap();
        assert_eq!(git(path, &["diff-files", "--raw"]), "", "version {wanted}");
        assert_eq!(git(path, &["status", "--porcelain"]), "");
        assert_eq!(git(path, &["diff-index", "--cached", "HEAD"]), "");
        assert_eq!(
            git(path, &["ls-files", "-v"])
                .lines()
                .filter(|line| !line.starts_with("H "))
                .count(),
            0
        );
    }
}

#[test]
fn only_the_cached_tree_survives_sealing() {
    let root = sample();
    let path = root.path();
    git(path, &["update-index", "--force-untracked-cache"]);
    git(path, &["status"]);
    let bytes = std::fs::read(path.join(".git/index")).unwrap();
    let has = |bytes: &[u8], name: &[u8]| bytes.windows(4).any(|window| window == name);
    assert!(has(&bytes, b"UNTR") && has(&bytes, b"TREE"));
    let sealed = Index::parse(bytes).unwrap().seal();
    assert!(!has(&sealed, b"UNTR") && has(&sealed, b"TREE"));
    assert!(Index::parse(sealed).is_ok());
}

#[test]
fn what_is_not_whole_by_itself_is_refused() {
    let root = sample();
    let path = root.path();
    let whole = std::fs::read(path.join(".git/index")).unwrap();
    git(path, &["update-index", "--split-index"]);
    let split = std::fs::read(path.join(".git/index")).unwrap();
    let link = IndexError::Extension { name: *b"link" };
    assert_eq!(Index::parse(split).map(|_| ()), Err(link));
    let mut damaged = whole.clone();
    damaged[30] ^= 1;
    assert_eq!(Index::parse(damaged).map(|_| ()), Err(IndexError::Checksum));
    let mut newer = whole;
    newer[7] = 5;
    let version = IndexError::Version { version: 5 };
    assert_eq!(Index::parse(newer).map(|_| ()), Err(version));
}

#[test]
fn a_stamp_has_the_low_half_of_every_number() {
    let stat = statat(CWD, "/", rustix::fs::AtFlags::empty()).unwrap();
    let stamp = Stamp::of(&stat);
    let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap().to_be_bytes();
    assert_eq!(stamp.0[..4], low(stat.st_ctime.cast_unsigned()));
    assert_eq!(stamp.0[20..24], low(stat.st_ino));
    assert_eq!(stamp.0[24..28], stat.st_uid.to_be_bytes());
    assert_eq!(stamp.0[32..], low(stat.st_size.cast_unsigned()));
}

/// `bytes` under a trailer that says "not checked".
fn unchecked(bytes: &[u8]) -> Vec<u8> {
    [bytes, &[0; HASH_BYTES]].concat()
}

#[test]
fn every_truncation_is_an_error() {
    let root = sample();
    for version in ["2", "4"] {
        git(root.path(), &["update-index", "--index-version", version]);
        let bytes = std::fs::read(root.path().join(".git/index")).unwrap();
        let whole = parse(root.path());
        for length in 0..whole.entries_end {
            assert!(
                Index::parse(unchecked(&bytes[..length])).is_err(),
                "{length}"
            );
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        version in 2u8..=4,
        count in 0u8..=3,
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let header = [b"DIRC".as_slice(), &[0, 0, 0, version, 0, 0, 0, count]].concat();
        if let Ok(mut index) = Index::parse(unchecked(&[header, rest].concat())) {
            index.unhide();
            let _sealed = index.seal();
        }
    }
}
