//! Opening what an untrusted tree holds, without ever leaving it.
//!
//! Every path is resolved by the kernel from a pinned directory, with no symbolic link on the way
//! (`openat2`), so a tree that changes under us can make an open fail but not lead it elsewhere.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// Pins a directory that we created, by its absolute path. The last component is not followed.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Opens `path` (relative; empty is `root` itself) beneath `root`.
pub(crate) fn open(root: impl AsFd, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// Pins a directory beneath `root`.
pub(crate) fn open_directory(root: impl AsFd, path: &[u8]) -> io::Result<OwnedFd> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The content of a regular file beneath `root`; none where there is no such name.
///
/// # Errors
/// `InvalidData` when it is something else than a regular file, or longer than `bytes_max`.
pub(crate) fn read(root: impl AsFd, path: &[u8], bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    Ok(read_dated(root, path, bytes_max)?.map(|(bytes, _)| bytes))
}

/// The same, with when it was last written.
pub(crate) fn read_dated(
    root: impl AsFd,
    path: &[u8],
    bytes_max: u64,
) -> io::Result<Option<(Vec<u8>, SystemTime)>> {
    // A FIFO must not block us, a terminal must not become ours.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open(root, path, flags) {
        Ok(file) => File::from(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    let length = file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if u64::try_from(length).is_ok_and(|length| length <= bytes_max) {
        Ok(Some((bytes, metadata.modified()?)))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "too long"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_and_nothing_but_a_file_is_read() {
        let directory = tempfile::Builder::new().tempdir().unwrap();
        let path = directory.path();
        std::fs::create_dir(path.join("inner")).unwrap();
        std::fs::write(path.join("inner/file"), "content").unwrap();
        symlink("inner", path.join("link")).unwrap();
        symlink("/etc/hostname", path.join("inner/out")).unwrap();
        let root = open_root(path).unwrap();
        assert_eq!(
            read(&root, b"inner/file", 7).unwrap().as_deref(),
            Some(b"content".as_slice())
        );
        assert_eq!(read(&root, b"inner/absent", 7).unwrap(), None);
        for refused in [
            b"inner/out".as_slice(),
            b"link/file",
            b"inner",
            b"../x",
            b"/etc/hostname",
        ] {
            assert!(read(&root, refused, 100).is_err());
        }
        assert!(read(&root, b"inner/file", 6).is_err());
    }
}
