//! Makes a tree readable by its owner, so that saving it misses nothing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, chmod, fstat, statat};

use crate::git::beneath;

/// Gives the owner `uid` of the files and directories in `tree` the right to read those that deny
/// it. What belongs to anybody else, and every link, is left alone.
pub(super) fn make_readable(tree: &Path, uid: u32) -> io::Result<()> {
    let root = beneath::open_root(tree)?;
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        allow(&root, &path, uid)?;
        let directory = beneath::open_directory(&root, &path)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let inner = [path.as_slice(), name].join(if path.is_empty() {
                b"".as_slice()
            } else {
                b"/"
            });
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => waiting.push(inner),
                FileType::RegularFile if lacks(&stat, uid).is_some() => allow(&root, &inner, uid)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The mode that lets the owner in, where the present one does not.
fn lacks(stat: &Stat, uid: u32) -> Option<Mode> {
    let needed = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Mode::RWXU,
        _ => Mode::RUSR,
    };
    let mode = Mode::from_raw_mode(stat.st_mode);
    (stat.st_uid == uid && !mode.contains(needed)).then_some(mode | needed)
}

fn allow(root: &OwnedFd, path: &[u8], uid: u32) -> io::Result<()> {
    let named = beneath::open(root, path, OFlags::PATH)?;
    if let Some(mode) = lacks(&fstat(&named)?, uid) {
        // Through the descriptor: the name may have come to mean something else.
        chmod(format!("/proc/self/fd/{}", named.as_raw_fd()), mode)?;
    }
    Ok(())
}
