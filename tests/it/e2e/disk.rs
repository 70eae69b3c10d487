//! The file systems that fleets live on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use homeostat::worktree::probe::probe;
use tempfile::TempDir;

/// A directory of some file system, gone with what is in it when dropped.
pub(super) struct Disk {
    directory: TempDir,
    is_mounted: bool,
}

impl Disk {
    /// On the temporary directory's file system. Whoever runs agents may pass through.
    pub(super) fn plain() -> Self {
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("fs")).unwrap();
        Self {
            directory,
            is_mounted: false,
        }
    }

    /// A fresh XFS with reflinks; none, with the reason said, where the host can't have one.
    pub(super) fn xfs(test: &str) -> Option<Self> {
        let mut disk = Self::plain();
        let image = disk.directory.path().join("image");
        fs::File::create(&image)
            .unwrap()
            .set_len(400 << 20)
            .unwrap();
        let (image, target) = (image.to_str().unwrap(), disk.path());
        let is_made = rustix::process::geteuid().is_root()
            && tool("mkfs.xfs", &["-q", image])
            && tool("mount", &["-o", "loop", image, target.to_str().unwrap()]);
        if !is_made {
            eprintln!("SKIP {test}: needs root, mkfs.xfs and loop devices");
            return None;
        }
        disk.is_mounted = true;
        fs::set_permissions(&target, Permissions::from_mode(0o755)).unwrap();
        Some(disk)
    }

    /// Where nothing can be cloned: the temporary directory's file system, else a fresh tmpfs, else
    /// none.
    pub(super) fn without_reflink(test: &str) -> Option<Self> {
        let mut disk = Self::plain();
        if probe(&disk.path()).is_err() {
            return Some(disk);
        }
        let target = disk.path();
        let is_made = rustix::process::geteuid().is_root()
            && tool(
                "mount",
                &[
                    "-t",
                    "tmpfs",
                    "-o",
                    "mode=755",
                    "tmpfs",
                    target.to_str().unwrap(),
                ],
            );
        if !is_made {
            eprintln!("SKIP {test}: needs a file system that can't clone, or root to mount one");
            return None;
        }
        disk.is_mounted = true;
        Some(disk)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("fs")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let target = self.path();
        let target = target.to_str().expect("a path of ours");
        if self.is_mounted && !tool("umount", &[target]) {
            tool("umount", &["-l", target]);
        }
    }
}

/// Whether the program was there and did it.
#[expect(
    clippy::disallowed_methods,
    reason = "tests set hosts up by the tools that people use"
)]
fn tool(name: &str, args: &[&str]) -> bool {
    let output = Command::new(name).args(args).output();
    output.is_ok_and(|Output { status, .. }| status.success())
}
