//! The file systems that data directories live on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use homeostat::worktree::probe::probe;
use tempfile::TempDir;

/// A directory of some file system, gone with what is in it when dropped.
pub(crate) struct Disk {
    directory: TempDir,
    is_mounted: bool,
}

impl Disk {
    /// On the temporary directory's file system. Whoever runs agents may pass through.
    pub(crate) fn plain() -> Self {
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("fs")).unwrap();
        Self {
            directory,
            is_mounted: false,
        }
    }

    /// A fresh XFS with reflinks; none, with the reason said, where the host can't have one.
    pub(crate) fn xfs(test: &str) -> Option<Self> {
        Self::plain().format(test, "mkfs.xfs", 400 << 20)
    }

    /// A fresh ext4; none, with the reason said, where the host can't have one.
    pub(crate) fn ext4(test: &str) -> Option<Self> {
        Self::plain().format(test, "mkfs.ext4", 64 << 20)
    }

    /// A fresh tmpfs; none, with the reason said, where the host can't have one.
    pub(crate) fn tmpfs(test: &str) -> Option<Self> {
        Self::plain().mount(test, &["-t", "tmpfs", "tmpfs"])
    }

    /// Where nothing can be cloned: the temporary directory's file system, else a fresh tmpfs, else
    /// none.
    pub(crate) fn without_reflink(test: &str) -> Option<Self> {
        let disk = Self::plain();
        if probe(&disk.path()).is_err() {
            return Some(disk);
        }
        drop(disk);
        Self::tmpfs(test)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("fs")
    }

    /// Mounts an image of `bytes` that `mkfs` formats.
    fn format(self, test: &str, mkfs: &str, bytes: u64) -> Option<Self> {
        let image = self.directory.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let image = image.to_str().unwrap();
        if rustix::process::geteuid().is_root() && tool(mkfs, &["-q", image]) {
            return self.mount(test, &["-o", "loop", image]);
        }
        eprintln!("SKIP {test}: needs root and {mkfs}");
        None
    }

    fn mount(mut self, test: &str, args: &[&str]) -> Option<Self> {
        let target = self.path();
        let args = [args, &[target.to_str().unwrap()]].concat();
        if rustix::process::geteuid().is_root() && tool("mount", &args) {
            self.is_mounted = true;
            fs::set_permissions(&target, Permissions::from_mode(0o755)).unwrap();
            return Some(self);
        }
        eprintln!(
            "SKIP {test}: needs root to mount a file system, by a loop device if it is no tmpfs"
        );
        None
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
