//! A world of its own for the program under test: an empty environment, a home directory that
//! goes away, and output in which paths are the same everywhere.

use std::fs;
use std::path::{Path, PathBuf};

use snapbox::cmd::Command;
use snapbox::{Assert, Redactions};
use tempfile::TempDir;

/// One such world.
pub(crate) struct TestEnv {
    root: TempDir,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("here")).unwrap();
        fs::create_dir(root.path().join("home")).unwrap();
        Self { root }
    }

    /// The directory that commands start in.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("here")
    }

    /// The daemon's state, beside the working directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Writes a file below the working directory, with its directories.
    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.work().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The program with these arguments, in this world.
    pub(crate) fn homeostat(&self, args: &[&str]) -> Command {
        Command::new(env!("CARGO_BIN_EXE_homeostat"))
            .with_assert(assert(self.root.path()))
            .env_clear()
            .env("HOME", self.root.path().join("home"))
            .env("XDG_STATE_HOME", self.root.path().join("state"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TZ", "UTC")
            .env("HOMEOSTAT_CONFIG_DATA_DIR", self.data())
            .current_dir(self.work())
            .args(args)
    }
}

/// Compares with what differs from place to place replaced.
fn assert(root: &Path) -> Assert {
    let mut redactions = Redactions::new();
    redactions.insert("[ROOT]", root.to_owned()).unwrap();
    redactions
        .insert("[VERSION]", env!("CARGO_PKG_VERSION"))
        .unwrap();
    Assert::new()
        .action_env(snapbox::assert::DEFAULT_ACTION_ENV)
        .redact_with(redactions)
}
