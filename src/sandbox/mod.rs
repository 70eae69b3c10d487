//! What stands between an agent and this machine, and the start of an agent inside it.
//!
//! The port has one backend as yet, [`none`]: the run's user, an empty environment, no stray
//! descriptor, no way to gain privileges, and no confinement of what that user may see and do.
//! Every run records that, and so do the daemon's first line and the demo: [`SandboxState`].
//!
//! Starting an agent takes three steps, each a value that the next one is a method of, so that
//! nothing can run ahead of its record and no secret ahead of the attestation:
//!
//! 1. [`none::start`] starts a shim, which does nothing but say who it is. The caller stores that
//!    identity.
//! 2. [`Started::prepare`] has the shim give up privileges and attest it. Only now are credentials
//!    minted.
//! 3. [`Attested::launch`] hands over environment and prompt, and the agent's program is executed.

mod identity;
pub mod none;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use identity::{DEFAULT_RUN_ID, IdentityError, RunIdentity};
pub use none::{Attested, LaunchError, Running, Shim, Started};

use crate::model::id::RunId;
use crate::process::cgroup::{self, RunCgroup};
pub use crate::process::control::{Attestation, Exited, Report, SandboxKind};

/// What of an agent's enclosure works on this host, found out by trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Who agents run as.
    pub identity: RunIdentity,
    /// Whether that is somebody else than the daemon.
    pub drops_user: bool,
    /// Below which control group each run gets its own; none when the host has no place for it.
    pub cgroup_parent: Option<PathBuf>,
}

/// Finds out what works for runs of `identity`.
pub fn probe(identity: RunIdentity) -> Layers {
    Layers {
        identity,
        drops_user: rustix::process::geteuid().is_root(),
        cgroup_parent: cgroup::find_parent(),
    }
}

impl Layers {
    /// The control group that `run` will have: the path to store before it is made.
    pub fn cgroup_of(&self, run: RunId) -> Option<PathBuf> {
        let parent = self.cgroup_parent.as_deref()?;
        Some(RunCgroup::of(parent, run).path().to_owned())
    }

    /// What to tell people about it.
    pub fn state(&self) -> SandboxState {
        let mut layers = vec!["no-new-privs"];
        if self.drops_user {
            layers.push("run-user");
        }
        if self.cgroup_parent.is_some() {
            layers.push("cgroup");
        }
        SandboxState {
            kind: SandboxKind::None,
            layers,
            reason: "this version has no sandbox: agents can do on this machine whatever their \
                     user can"
                .to_owned(),
        }
    }
}

/// The state of the sandbox in words, one for every place that shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxState {
    /// Which one; the word that runs record.
    pub kind: SandboxKind,
    /// What of an enclosure there is all the same.
    pub layers: Vec<&'static str>,
    /// Why it is so, or what follows from it.
    pub reason: String,
}

impl fmt::Display for SandboxState {
    /// `sandbox=none layers=no-new-privs,run-user reason="…"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sandbox={} layers={} reason={:?}",
            self.kind.as_str(),
            self.layers.join(","),
            self.reason
        )
    }
}

/// What is decided before any process starts. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The run.
    pub run: RunId,
    /// Who the agent is to the kernel.
    pub identity: RunIdentity,
    /// Its control group, as stored; made when the launch gets there.
    pub cgroup: Option<PathBuf>,
    /// What the agent gets between TERM and KILL.
    pub grace: Duration,
}

/// The agent's program, with the secrets in its environment and the prompt on its standard input.
/// It prints neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The program's absolute path, then its arguments.
    pub argv: Vec<String>,
    /// The whole environment: the process has these variables and no others. It should hold
    /// [`RUN_MARK`](crate::process::table::RUN_MARK), by which strays are found.
    pub env: BTreeMap<String, String>,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// What it reads first on standard input.
    pub stdin: String,
    /// Whether standard input then stays open, for orders of more; else it ends there.
    pub keeps_stdin: bool,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("program", &self.argv.first())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_says_what_there_is_and_what_there_is_not() {
        let bare = Layers {
            identity: RunIdentity::resolve(1000, 1000, None).unwrap(),
            drops_user: false,
            cgroup_parent: None,
        };
        let run = RunId::derived(&["a"]);
        assert_eq!(bare.cgroup_of(run), None);
        assert_eq!(
            bare.state().to_string(),
            "sandbox=none layers=no-new-privs reason=\"this version has no sandbox: agents can do \
             on this machine whatever their user can\""
        );
        let full = Layers {
            drops_user: true,
            cgroup_parent: Some(PathBuf::from("/sys/fs/cgroup/x")),
            ..bare
        };
        let path = full.cgroup_of(run).unwrap();
        assert!(RunCgroup::stored(&path, run).is_ok(), "{}", path.display());
        let json = serde_json::to_value(full.state()).unwrap();
        assert_eq!(json["kind"], "none");
        assert_eq!(json["layers"].as_array().map(Vec::len), Some(3));
    }
}
