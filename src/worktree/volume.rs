//! A volume that can reflink, on any Linux: an XFS image, mounted through a loop device.
//!
//! The loop device is made by `mount` with the flag that lets go of it at unmount, so it can't
//! outlive the mount. What we made is recorded beside the image; nothing else is ever removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use serde::{Deserialize, Serialize};

use super::marker::sync_directory;
use super::probe::{Refusal, probe};

/// XFS refuses to be smaller.
pub const SIZE_BYTES_MIN: u64 = 300 << 20;

/// Where the three programs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a volume could not be made, seen or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Mounting needs root.
    #[error("mount a volume without root: run this command as root")]
    NotRoot,
    /// The size is below what XFS takes.
    #[error("make a volume of {bytes} bytes: XFS needs {SIZE_BYTES_MIN} or more")]
    TooSmall {
        /// What was asked for.
        bytes: u64,
    },
    /// A program is missing.
    #[error("run {program}: it is not installed (Debian: {package})")]
    NoProgram {
        /// `mkfs.xfs`, `mount` or `umount`.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A program could not be started.
    #[error("start {program}")]
    Start {
        /// Which.
        program: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("run {program} ({status}): {stderr}")]
    Failed {
        /// Which.
        program: &'static str,
        /// Its exit code.
        status: ExitStatus,
        /// What it said, on one line.
        stderr: String,
    },
    /// A file at the image's path is not ours.
    #[error("use {}: homeostat did not make it", path.display())]
    Foreign {
        /// The image.
        path: PathBuf,
    },
    /// There is no volume of that name.
    #[error("find the volume {}", path.display())]
    Missing {
        /// The image.
        path: PathBuf,
    },
    /// The volume, or the directory to mount it on, still holds something.
    #[error("use {}: it is not empty", path.display())]
    Occupied {
        /// The mount point.
        path: PathBuf,
    },
    /// A file of ours could not be read or written.
    #[error("access {}", path.display())]
    Access {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is mounted, and nothing can be cloned on it.
    #[error("use the new volume")]
    Useless(#[from] Refusal),
}

/// Where a volume is and where it is to be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    /// Absolute path of the image file.
    pub image: PathBuf,
    /// Absolute path of the directory that it is mounted on.
    pub mount_point: PathBuf,
}

/// What is known of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Where it is.
    pub volume: Volume,
    /// Its device, where it is mounted.
    pub device: Option<String>,
    /// Most bytes that it can hold (the length of the image).
    pub size_bytes: u64,
    /// Bytes that are free on it, where it is mounted.
    pub free_bytes: Option<u64>,
}

/// What [`remove`] does with what is on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Refuses when there is anything.
    MustBeEmpty,
    /// Removes it as well.
    Discard,
}

/// Makes a volume of `size_bytes` and mounts it. One that was made before (before a restart, say)
/// is only mounted.
///
/// # Errors
/// [`VolumeError`]; what this call made is gone again.
pub fn create(volume: &Volume, size_bytes: u64) -> Result<VolumeStatus, VolumeError> {
    require_root()?;
    if let Some(recorded) = recorded(&volume.image)? {
        if recorded != *volume {
            return Err(VolumeError::Foreign {
                path: volume.image.clone(),
            });
        }
        mount(volume)?;
        return status(&volume.image);
    }
    if size_bytes < SIZE_BYTES_MIN {
        return Err(VolumeError::TooSmall { bytes: size_bytes });
    }
    let has_directory = volume.mount_point.is_dir();
    if has_directory && !is_empty(&volume.mount_point)? {
        return Err(VolumeError::Occupied {
            path: volume.mount_point.clone(),
        });
    }
    make_image(&volume.image, size_bytes)?;
    let made = format(&volume.image)
        .and_then(|()| record(volume))
        .and_then(|()| mount(volume))
        .and_then(|()| Ok(probe(&volume.mount_point)?))
        .and_then(|()| status(&volume.image));
    if made.is_err() {
        // The first error is the one to report.
        let _removed = take_down(volume);
        if !has_directory {
            let _removed = fs::remove_dir(&volume.mount_point);
        }
    }
    made
}

/// What is known of the volume whose image is at `image`.
///
/// # Errors
/// [`VolumeError::Missing`], [`VolumeError::Access`].
pub fn status(image: &Path) -> Result<VolumeStatus, VolumeError> {
    let volume = recorded(image)?.ok_or_else(|| VolumeError::Missing {
        path: image.to_owned(),
    })?;
    let size_bytes = fs::metadata(image).map_err(access(image))?.len();
    let device = device_of(&volume)?;
    let free_bytes = match &device {
        None => None,
        Some(_) => {
            let free = rustix::fs::statvfs(&volume.mount_point);
            let free = free.map_err(|errno| access(&volume.mount_point)(errno.into()))?;
            Some(free.f_bavail.saturating_mul(free.f_frsize))
        }
    };
    Ok(VolumeStatus {
        volume,
        device,
        size_bytes,
        free_bytes,
    })
}

/// Unmounts a volume and removes its image, its record and its mount point.
///
/// # Errors
/// [`VolumeError`]. Can be repeated after any of them.
pub fn remove(image: &Path, contents: Contents) -> Result<(), VolumeError> {
    require_root()?;
    let volume = recorded(image)?.ok_or_else(|| VolumeError::Missing {
        path: image.to_owned(),
    })?;
    match contents {
        Contents::Discard => {}
        Contents::MustBeEmpty => {
            mount(&volume)?;
            if !is_empty(&volume.mount_point)? {
                return Err(VolumeError::Occupied {
                    path: volume.mount_point,
                });
            }
        }
    }
    take_down(&volume)?;
    match fs::remove_dir(&volume.mount_point) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(access(&volume.mount_point)(source))
        }
        _ => Ok(()),
    }
}

fn access(path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Access { path, source }
}

fn require_root() -> Result<(), VolumeError> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(VolumeError::NotRoot)
    }
}

fn is_empty(directory: &Path) -> Result<bool, VolumeError> {
    let mut entries = fs::read_dir(directory).map_err(access(directory))?;
    Ok(entries.next().is_none())
}

fn record_path(image: &Path) -> PathBuf {
    let mut path = image.as_os_str().to_owned();
    path.push(".homeostat");
    path.into()
}

fn recorded(image: &Path) -> Result<Option<Volume>, VolumeError> {
    let path = record_path(image);
    match fs::read(&path) {
        Ok(bytes) => {
            let volume: Result<Volume, _> = serde_json::from_slice(&bytes);
            let volume = volume.ok().filter(|volume| volume.image == image);
            volume.map(Some).ok_or(VolumeError::Foreign { path })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(access(&path)(source)),
    }
}

fn record(volume: &Volume) -> Result<(), VolumeError> {
    let path = record_path(&volume.image);
    let bytes = serde_json::to_vec(volume).expect("two paths from a command line, so UTF-8");
    let write = || {
        let mut file = File::create_new(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        path.parent().map_or(Ok(()), sync_directory)
    };
    write().map_err(access(&path))
}

fn make_image(image: &Path, size_bytes: u64) -> Result<(), VolumeError> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(image);
    match file {
        Ok(file) => file.set_len(size_bytes).map_err(access(image)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(VolumeError::Foreign {
            path: image.to_owned(),
        }),
        Err(source) => Err(access(image)(source)),
    }
}

fn format(image: &Path) -> Result<(), VolumeError> {
    let mut command = program("mkfs.xfs");
    command.args(["-q", "-m", "reflink=1"]).arg(image);
    run("mkfs.xfs", "xfsprogs", &mut command)
}

/// Mounts the volume, unless it is mounted.
fn mount(volume: &Volume) -> Result<(), VolumeError> {
    if device_of(volume)?.is_some() {
        return Ok(());
    }
    fs::create_dir_all(&volume.mount_point).map_err(access(&volume.mount_point))?;
    let mut command = program("mount");
    command.args(["-t", "xfs", "-o", "loop,nodev,nosuid,noatime", "--"]);
    command.arg(&volume.image).arg(&volume.mount_point);
    run("mount", "mount", &mut command)
}

/// Unmounts the volume if it is mounted, and removes image and record.
fn take_down(volume: &Volume) -> Result<(), VolumeError> {
    if device_of(volume)?.is_some() {
        let mut command = program("umount");
        command.arg("--").arg(&volume.mount_point);
        run("umount", "mount", &mut command)?;
    }
    for path in [volume.image.clone(), record_path(&volume.image)] {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(access(&path)(source));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The loop device through which the image is mounted on its mount point.
fn device_of(volume: &Volume) -> Result<Option<String>, VolumeError> {
    let table = Path::new("/proc/self/mountinfo");
    let mounts = fs::read_to_string(table).map_err(access(table))?;
    let Ok(mount_point) = volume.mount_point.canonicalize() else {
        return Ok(None);
    };
    let devices = mounts.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let at = mount.split(' ').nth(4)?;
        let device = rest.split(' ').nth(1)?;
        (unescape(at) == mount_point).then(|| device.to_owned())
    });
    let is_ours = |device: &String| {
        let name = device.strip_prefix("/dev/").unwrap_or_default();
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        let image = volume.image.canonicalize().ok();
        file.is_ok_and(|file| image.as_deref() == Some(Path::new(file.trim_end_matches('\n'))))
    };
    Ok(devices.rev().find(is_ours))
}

/// A path of the mount table, where blanks and backslashes stand in octal.
fn unescape(text: &str) -> PathBuf {
    let mut path = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        path.push_str(before);
        let code = after
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => path.push(char::from(code)),
            None => path.push('\\'),
        }
        rest = code.and_then(|_| after.get(3..)).unwrap_or(after);
    }
    path.push_str(rest);
    path.into()
}

#[expect(
    clippy::disallowed_methods,
    reason = "mkfs.xfs, mount and umount are run here and nowhere else"
)]
fn program(name: &'static str) -> Command {
    let mut command = Command::new(name);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C");
    command
}

fn run(
    program: &'static str,
    package: &'static str,
    command: &mut Command,
) -> Result<(), VolumeError> {
    let Output { status, stderr, .. } = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(VolumeError::NoProgram { program, package });
        }
        Err(source) => return Err(VolumeError::Start { program, source }),
    };
    if status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(VolumeError::Failed {
        program,
        status,
        stderr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        for (text, path) in [("/a", "/a"), (r"/a\040b", "/a b"), (r"/a\134b\", r"/a\b\")] {
            assert_eq!(unescape(text), Path::new(path));
        }
    }
}
