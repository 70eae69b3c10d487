//! A world with a fleet in it, a daemon that can be made to die, and the wait for the end of work.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use homeostat::git::command::Git;
use homeostat::process::deadline::Deadline;
use homeostat::process::{Pidfd, identify};
use rustix::process::Signal;
use tempfile::TempDir;

use super::fleet::Fleet;
use super::records::Records;

/// Longer than any one wait takes on a machine that is busy with other things.
pub(super) const LONG: Duration = Duration::from_secs(120);
/// How often the records are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Numbers that are the same for the same seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0, below `limit`.
    pub(super) const fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The seed of this run of the tests: 1, unless `cargo xtask crash --seed` says another.
pub(super) fn seed() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "how the development tool reaches the tests that it starts"
    )]
    let given = std::env::var("CRASH_SEED");
    given.map_or(1, |text| text.parse().expect("CRASH_SEED is a number"))
}

/// A directory with a sample repository, manifests, a daemon's state, and a program of its own:
/// whatever runs it, or has been started with a path of this world, is of this world.
#[derive(Debug)]
pub(super) struct World {
    root: TempDir,
    pub(super) fleet: Fleet,
    lives: usize,
}

impl World {
    pub(super) fn new(fleet: Fleet) -> Self {
        let root = TempDir::new().unwrap();
        // A root daemon's agents are another user, who passes through here.
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let world = Self {
            root,
            fleet,
            lives: 0,
        };
        for directory in ["app", "fleet", "bin", "marks"] {
            fs::create_dir(world.path(directory)).unwrap();
        }
        fs::set_permissions(world.path("marks"), Permissions::from_mode(0o777)).unwrap();
        let program = world.path("bin/homeostat");
        let built = env!("CARGO_BIN_EXE_homeostat");
        if fs::hard_link(built, &program).is_err() {
            fs::copy(built, &program).unwrap();
        }
        fs::write(world.path("app/NOTES.md"), "# Notes\n").unwrap();
        let app = world.path("app");
        Git::new(&app, "init")
            .args(["--quiet", "--initial-branch=main"])
            .run()
            .unwrap();
        Git::new(&app, "add").arg("--all").run().unwrap();
        let commit = Git::new(&app, "commit").args(["--quiet", "--message", "Begin"]);
        let commit = commit
            .setting("user.name=Rig")
            .setting("user.email=rig@example.com");
        commit.run().unwrap();
        world.declare();
        world
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(super) fn marks(&self) -> PathBuf {
        self.path("marks/file")
    }

    /// Makes the fleet what the source declares, in one step.
    pub(super) fn declare(&self) {
        let torn = self.path("new.yaml");
        fs::write(&torn, self.fleet.manifests(&self.marks())).unwrap();
        fs::rename(&torn, self.path("fleet/fleet.yaml")).unwrap();
    }

    /// Starts a daemon, with ways to die if there are some.
    pub(super) fn start(&mut self, faults: &[&str]) -> Daemon {
        self.lives += 1;
        let log = self.path(&format!("daemon-{}.log", self.lives));
        let child = self.program(faults, File::create(&log).unwrap());
        let identity = identify(child.id()).unwrap().expect("not reaped");
        let handle = Pidfd::open(&identity).unwrap().expect("not reaped");
        Daemon { child, handle, log }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the daemon is a child that has to be killed, not a command that is waited for"
    )]
    fn program(&self, faults: &[&str], log: File) -> Child {
        Command::new(self.path("bin/homeostat"))
            .arg("daemon")
            .arg("--data-dir")
            .arg(self.data())
            .arg("--source")
            .arg(self.path("fleet"))
            .args([
                "--worktree-backend",
                "git",
                "--debounce-ms",
                "10",
                "--log-level",
                "info",
                "--scan-secs",
                "1",
            ])
            .args(faults)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.root.path())
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Waits until all that was asked for is over.
    ///
    /// # Panics
    /// When it does not end, or the daemon does.
    pub(super) fn finish(&self, daemon: &mut Daemon) {
        self.wait(daemon, "the end of all work", Records::are_all_over);
    }

    /// Waits until the records are so.
    pub(super) fn wait(
        &self,
        daemon: &mut Daemon,
        what: &str,
        is_so: impl Fn(&Records, &Fleet) -> bool,
    ) {
        let deadline = Deadline::after(LONG);
        // The records of an earlier life say nothing about this one.
        while !daemon.has_begun() || !self.is(&is_so) {
            assert!(
                !deadline.passed(),
                "no {what}; {}\n{}",
                self.state(),
                daemon.said()
            );
            if let Some(status) = daemon.ended_within(LOOK_EVERY) {
                panic!(
                    "the daemon ended ({status}) before {what}:\n{}",
                    daemon.said()
                );
            }
        }
    }

    /// Whether the records are so; not, while there are none.
    pub(super) fn is(&self, is_so: impl Fn(&Records, &Fleet) -> bool) -> bool {
        Records::read(&self.data()).is_ok_and(|records| is_so(&records, &self.fleet))
    }

    /// Agents wait where they are, until [`Self::let_go`].
    pub(super) fn hold(&self) {
        fs::write(self.path("marks/file.hold"), "").unwrap();
    }

    pub(super) fn let_go(&self) {
        fs::remove_file(self.path("marks/file.hold")).unwrap();
    }

    /// What is on record now.
    pub(super) fn records(&self) -> Records {
        Records::read(&self.data()).unwrap()
    }

    fn state(&self) -> String {
        format!("{:#?}", Records::read(&self.data()))
    }

    /// Every process of this world.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap() {
            let name = entry.unwrap().file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if pid != std::process::id() && is_of(self.root.path(), pid) {
                found.push(pid);
            }
        }
        found
    }
}

/// Whether a process runs something, stands somewhere or was told of something below `root`.
fn is_of(root: &Path, pid: u32) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let stands = |link: &str| fs::read_link(proc.join(link)).is_ok_and(|at| at.starts_with(root));
    let root = root.as_os_str().as_encoded_bytes();
    let environ = fs::read(proc.join("environ")).unwrap_or_default();
    stands("exe") || stands("cwd") || environ.windows(root.len()).any(|part| part == root)
}

impl Drop for World {
    /// A failed test leaves nothing alive either.
    fn drop(&mut self) {
        for pid in self.processes() {
            if let Ok(Some(identity)) = identify(pid)
                && let Ok(Some(handle)) = Pidfd::open(&identity)
            {
                drop(handle.signal(Signal::KILL));
            }
        }
        if std::thread::panicking() {
            self.root.disable_cleanup(true);
            eprintln!("the world is left in {}", self.root.path().display());
        }
    }
}

/// A daemon that runs, or has died.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    handle: Pidfd,
    log: PathBuf,
}

impl Daemon {
    /// How it ended, if it does within this time.
    pub(super) fn ended_within(&mut self, time: Duration) -> Option<ExitStatus> {
        self.handle.wait(time).unwrap();
        self.child.try_wait().unwrap()
    }

    /// Waits until it has died as it was told to.
    pub(super) fn dies(mut self) {
        let ended = self.ended_within(LONG);
        let was_killed = ended.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw());
        assert!(was_killed, "not dead but {ended:?}:\n{}", self.said());
    }

    /// Kills it.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.dies();
    }

    /// Stops it in order; what it has logged.
    pub(super) fn stop(mut self) -> String {
        self.handle.signal(Signal::TERM).unwrap();
        let ended = self.ended_within(LONG);
        let is_fine = ended.is_some_and(|status| status.success());
        let said = self.said();
        assert!(is_fine, "not stopped but {ended:?}:\n{said}");
        said
    }

    /// Whether it has said that it serves; from then on it also listens to signals.
    fn has_begun(&self) -> bool {
        self.said().starts_with("homeostat ")
    }

    /// What it has logged.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already, except when the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
