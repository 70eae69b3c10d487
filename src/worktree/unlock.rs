//! Takes away the locks that git leaves in a repository when it is killed.
//!
//! Git locks a file by making `<file>.lock` beside it, and a git that is killed leaves that behind:
//! every later commit in the worktree is then refused until somebody removes it. When a run is
//! confirmed gone and nobody else may write its worktree, nobody holds these any more.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, unlinkat};
use rustix::io::Errno;

use super::run_as::run_as;
use crate::git::beneath;
use crate::model::worktree::UserIds;

/// Refs lie no deeper than this, as far as locks are looked for.
const DEPTH_MAX: usize = 16;
/// Names that are looked at; an agent can make any number of refs.
const NAMES_MAX: usize = 100_000;

/// Removes the locks beside the files of `tree`'s repository and beside its refs, as `user`. To be
/// called while nothing runs in the tree. Answers how many there were.
///
/// # Errors
/// When something could not be looked at or removed; the rest of the locks may be there.
pub fn unlock(tree: &Path, user: UserIds) -> io::Result<usize> {
    run_as(user, || {
        let root = beneath::open_root(tree)?;
        let mut sweep = Sweep {
            names_left: NAMES_MAX,
            removed: 0,
        };
        sweep.directory(&beneath::open_directory(&root, b".git")?)?;
        sweep.below(&beneath::open_directory(&root, b".git/refs")?, 0)?;
        Ok(sweep.removed)
    })
}

struct Sweep {
    names_left: usize,
    removed: usize,
}

impl Sweep {
    /// Removes the locks in a directory and in all below it.
    fn below(&mut self, directory: &OwnedFd, depth: usize) -> io::Result<()> {
        for name in self.directory(directory)? {
            if depth < DEPTH_MAX {
                self.below(&beneath::open_directory(directory, &name)?, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Removes the locks in a directory; the directories in it.
    fn directory(&mut self, directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        let mut directories = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if self.names_left == 0 {
                break;
            }
            self.names_left -= 1;
            match entry.file_type() {
                FileType::Directory if name != b"." && name != b".." => {
                    directories.push(name.to_vec());
                }
                FileType::RegularFile if name.ends_with(b".lock") => {
                    match unlinkat(directory, name, AtFlags::empty()) {
                        Ok(()) => self.removed += 1,
                        Err(Errno::NOENT) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                FileType::Directory
                | FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => {}
            }
        }
        Ok(directories)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::unlock;
    use crate::model::worktree::UserIds;

    #[test]
    fn locks_of_the_repository_go_and_nothing_else_does() {
        let directory = tempfile::Builder::new().tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for made in ["tree/.git/refs/heads/a", "tree/src", "outside"] {
            fs::create_dir_all(path(made)).unwrap();
        }
        let locks = [
            "index.lock",
            "HEAD.lock",
            "refs/heads/main.lock",
            "refs/heads/a/b.lock",
        ];
        let kept = [
            "tree/.git/index",
            "tree/.git/refs/heads/main",
            "tree/src/Cargo.lock",
            "outside/x.lock",
        ];
        for lock in locks {
            fs::write(path("tree/.git").join(lock), "").unwrap();
        }
        for kept in kept {
            fs::write(path(kept), "").unwrap();
        }
        symlink(path("outside"), path("tree/.git/refs/link")).unwrap();
        let user = UserIds {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        assert_eq!(unlock(&path("tree"), user).unwrap(), locks.len());
        assert_eq!(unlock(&path("tree"), user).unwrap(), 0);
        assert!(kept.iter().all(|kept| path(kept).exists()));
        assert!(unlock(&path("outside"), user).is_err(), "no repository");
    }
}
