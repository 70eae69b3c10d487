//! The demo, as root and as nobody in particular.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use homeostat::process::deadline::Deadline;

use super::rig::{Answer, program};
use crate::support::disk::Disk;

/// No user of any host.
const NOBODY: u32 = 70_013;

#[test]
fn the_demo_shows_the_main_job() {
    let disk = Disk::plain();
    let binary = env!("CARGO_BIN_EXE_homeostat");
    shows_the_main_job(&disk, &[binary]);
}

#[test]
fn the_demo_needs_no_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP the_demo_needs_no_root: we are not root, so the other test shows it");
        return;
    }
    let disk = Disk::plain();
    chown(disk.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // Where the build's directory may not be entered by everyone.
    let binary = disk.path().join("homeostat");
    fs::copy(env!("CARGO_BIN_EXE_homeostat"), &binary).unwrap();
    fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
    let id = NOBODY.to_string();
    let as_nobody = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
    let command = [&as_nobody[..], &[binary.to_str().unwrap()]].concat();
    shows_the_main_job(&disk, &command);
}

fn shows_the_main_job(disk: &Disk, command: &[&str]) {
    let place = disk.path().join("demo");
    let mut demo = program(command[0], &disk.path());
    demo.args(&command[1..]).args(["demo", "--dir"]).arg(&place);
    let late = Deadline::after(Duration::from_secs(60));
    let answer = Answer::from(demo.output().unwrap()).expect(0);
    assert!(!late.passed(), "{answer:#?}");
    for said in [
        "revision accepted",
        "worktree ready in checkout",
        "budget crossed: Agent shop/max, soft: $",
        "sandbox",
    ] {
        assert!(answer.stderr.contains(said), "{said}: {answer:#?}");
    }
    for shown in [
        "$ homeostat get agents",
        "$ homeostat get tickets",
        "$ homeostat runs",
        "$ homeostat budget",
        "PausedByBudget",
        "Try next:",
    ] {
        assert!(answer.stdout.contains(shown), "{shown}: {answer:#?}");
    }
    let notes = answer.stderr.matches("note: no daemon answers").count();
    assert_eq!(notes, 1, "{answer:#?}");
    assert_eq!(processes_of(&place), Vec::<String>::new());
}

/// The command lines of processes that have to do with this directory.
fn processes_of(place: &Path) -> Vec<String> {
    let place = place.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let process = entry.unwrap().path();
        let read = |name: &str| {
            String::from_utf8_lossy(&fs::read(process.join(name)).unwrap_or_default()).into_owned()
        };
        let cwd = fs::read_link(process.join("cwd")).unwrap_or_default();
        let command = read("cmdline");
        if command.contains(place) || read("environ").contains(place) || cwd.starts_with(place) {
            found.push(command);
        }
    }
    found
}
