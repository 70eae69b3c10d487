//! A volume comes, is seen, and goes without a trace.

use std::fs;

use homeostat::worktree::probe::probe;
use homeostat::worktree::volume::{
    Contents, SIZE_BYTES_MIN, Volume, VolumeError, create, remove, status,
};

use super::fixture::{Disk, is_root, names, tool};

/// Loop devices whose file lies below `path`.
fn devices(path: &std::path::Path) -> usize {
    let list = tool(
        "losetup",
        &["--noheadings", "--raw", "--output", "BACK-FILE"],
    );
    let list = String::from_utf8(list.stdout).unwrap();
    list.lines()
        .filter(|file| file.starts_with(path.to_str().unwrap()))
        .count()
}

#[test]
fn a_volume_lives_and_leaves_no_trace() {
    let test = "a_volume_lives_and_leaves_no_trace";
    if !is_root() || Disk::xfs(test).is_none() {
        eprintln!("SKIP {test}: needs root, mkfs.xfs and loop devices");
        return;
    }
    let disk = Disk::plain();
    let before = names(&disk.path());
    let volume = Volume {
        image: disk.path().join("image of mine"),
        mount_point: disk.path().join("mounted here"),
    };
    let made = create(&volume, SIZE_BYTES_MIN).unwrap();
    assert!(made.device.is_some() && made.free_bytes.unwrap() > 0);
    assert_eq!(made.size_bytes, SIZE_BYTES_MIN);
    probe(&volume.mount_point).unwrap();
    assert_eq!(devices(&disk.path()), 1);
    assert_eq!(create(&volume, SIZE_BYTES_MIN).unwrap().device, made.device);

    // As after a restart of the host.
    assert!(
        tool("umount", &[volume.mount_point.to_str().unwrap()])
            .status
            .success()
    );
    assert_eq!(devices(&disk.path()), 0);
    assert_eq!(status(&volume.image).unwrap().device, None);
    fs::remove_dir(&volume.mount_point).unwrap();
    create(&volume, SIZE_BYTES_MIN).unwrap();

    fs::write(volume.mount_point.join("work"), "x").unwrap();
    let refused = remove(&volume.image, Contents::MustBeEmpty);
    assert!(
        matches!(refused, Err(VolumeError::Occupied { .. })),
        "{refused:?}"
    );
    remove(&volume.image, Contents::Discard).unwrap();
    assert_eq!(devices(&disk.path()), 0);
    assert_eq!(names(&disk.path()), before);
    let gone = status(&volume.image);
    assert!(matches!(gone, Err(VolumeError::Missing { .. })));
}

#[test]
fn what_is_there_is_not_taken_for_a_volume() {
    if !is_root() {
        eprintln!("SKIP what_is_there_is_not_taken_for_a_volume: needs root");
        return;
    }
    let disk = Disk::plain();
    let volume = Volume {
        image: disk.path().join("image"),
        mount_point: disk.path().join("mounted"),
    };
    let small = create(&volume, SIZE_BYTES_MIN - 1);
    assert!(matches!(small, Err(VolumeError::TooSmall { .. })));
    fs::create_dir(&volume.mount_point).unwrap();
    fs::write(volume.mount_point.join("theirs"), "x").unwrap();
    let occupied = create(&volume, SIZE_BYTES_MIN);
    assert!(matches!(occupied, Err(VolumeError::Occupied { .. })));
    fs::remove_file(volume.mount_point.join("theirs")).unwrap();
    fs::write(&volume.image, "theirs").unwrap();
    let before = names(&disk.path());
    for result in [
        create(&volume, SIZE_BYTES_MIN).map(|_| ()),
        remove(&volume.image, Contents::Discard),
    ] {
        assert!(
            matches!(
                result,
                Err(VolumeError::Foreign { .. } | VolumeError::Missing { .. })
            ),
            "{result:?}"
        );
    }
    assert_eq!(names(&disk.path()), before);
    assert_eq!(devices(&disk.path()), 0);
}
