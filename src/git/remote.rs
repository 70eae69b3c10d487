//! A mirror of one branch of a remote repository, kept by the `git` program.
//!
//! This is the one operation that runs with the operator's own git: their credential helper, their
//! ssh and their proxies decide how the remote is reached. Nobody is there to be asked, so that
//! whatever would ask fails. The mirror holds one commit's files, whatever was fetched before.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{Git, GitError, Limits};
use super::objects::{Objects, ObjectsError};
use crate::model::remote::RemoteUrl;
use crate::model::worktree::ObjectId;

/// Where the mirror keeps what the remote's ref stands for.
pub const MIRRORED: &str = "refs/homeostat/source";

/// What the remote may take to say where its ref stands.
const ASK: Limits = Limits {
    timeout: Duration::from_secs(60),
    output_bytes_max: 1 << 20,
};
/// What it may take to hand over a commit's files.
const FETCH: Limits = Limits {
    timeout: Duration::from_mins(10),
    output_bytes_max: 1 << 20,
};

/// Settings of runs that reach a remote, over the operator's own. What is not listed as a protocol
/// could start any program.
const SETTINGS: [&str; 10] = [
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.http.allow=always",
    "protocol.ssh.allow=always",
    "protocol.git.allow=always",
    "protocol.file.allow=always",
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=30",
    "fetch.prune=false",
    // Always packs: their number says when to tidy up.
    "fetch.unpackLimit=1",
];

/// Packs from which on the mirror is packed anew.
const PACKS_MAX: usize = 50;

/// Answers for the address's own login. It is in the environment, which others can't read as they
/// can arguments.
const HELPER: &str = "!f() { test \"$1\" = get || return 0; \
    printf 'username=%s\\n' \"$HOMEOSTAT_GIT_USER\"; \
    test -z \"$HOMEOSTAT_GIT_PASSWORD\" || printf 'password=%s\\n' \"$HOMEOSTAT_GIT_PASSWORD\"; }; f";

/// A remote ref, and where it is mirrored.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// The remote.
    pub url: RemoteUrl,
    /// A branch, a ref in full, or `HEAD`.
    pub reference: String,
    /// The bare repository of ours that it is fetched into. Nobody else writes there.
    pub mirror: PathBuf,
    /// The operator's environment: where git finds their configuration and their keys.
    pub environment: BTreeMap<OsString, OsString>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.url)
            .field("reference", &self.reference)
            .field("mirror", &self.mirror)
            .finish_non_exhaustive()
    }
}

/// Why a remote was not mirrored.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It could not be asked, or did not hand over what it has.
    #[error("fetch {reference} from {url}")]
    Fetch {
        /// The remote's address, without a login.
        url: String,
        /// The ref in full.
        reference: String,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// It has no such ref (any more).
    #[error("fetch {reference} from {url}: there is no such ref")]
    NoReference {
        /// The remote's address, without a login.
        url: String,
        /// The ref in full.
        reference: String,
    },
    /// The mirror could not be made, or made anew.
    #[error("make the mirror {}", path.display())]
    Mirror {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The mirror's repository could not be made, or tidied up.
    #[error("keep the mirror {}", path.display())]
    Keep {
        /// Where.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// The mirror can't be read.
    #[error(transparent)]
    Read(#[from] ObjectsError),
}

impl Remote {
    /// Brings the mirror up to date: [`MIRRORED`] is then where the remote's ref stood a moment ago,
    /// also after a forced push. On an error the mirror may be as it was, or gone.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn update(&self) -> Result<(), RemoteError> {
        let tip = self.tip()?;
        if self.mirrored().as_ref() == Some(&tip) {
            return Ok(());
        }
        let is_new = !self.mirror.join("HEAD").exists();
        self.make()?;
        match self.fetch() {
            // Where an earlier fetch was killed, its locks and halves are in the way of each further
            // one. The remote has answered, so the mirror is made anew.
            Err(GitError::Failed { stderr, .. }) if !is_new => {
                tracing::info!(stderr, "mirror made anew");
                self.remove()?;
                self.make()?;
                self.fetch()
            }
            fetched => fetched,
        }
        .map_err(|source| self.failed(source))?;
        self.tidy_up()
    }

    /// The commit that the remote's ref stands for.
    fn tip(&self) -> Result<ObjectId, RemoteError> {
        let reference = self.full_reference();
        let peeled = format!("{reference}^{{}}");
        let asked = self.reaching(Path::new("/"), "ls-remote").limits(ASK);
        let output = asked
            .args(["--quiet", "--", self.url.address(), &reference, &peeled])
            .run()
            .map_err(|source| self.failed(source))?;
        // A pattern matches the end of a name as well.
        let text = String::from_utf8_lossy(&output.stdout);
        let find = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(_, found)| *found == name).map(|(id, _)| id)
        };
        let Some(id) = find(&peeled).or_else(|| find(&reference)) else {
            return Err(RemoteError::NoReference {
                url: self.url.to_string(),
                reference,
            });
        };
        id.parse()
            .map_err(|_not_an_id| self.failed(output.unexpected()))
    }

    /// The commit that the mirror holds, if it is all there.
    fn mirrored(&self) -> Option<ObjectId> {
        let objects = Objects::open(&self.mirror).ok()?;
        let commit = objects.resolve(MIRRORED).ok()??;
        objects.commit(&commit).is_ok().then_some(commit)
    }

    fn full_reference(&self) -> String {
        match self.reference.as_str() {
            "HEAD" => "HEAD".to_owned(),
            full if full.starts_with("refs/") => full.to_owned(),
            branch => format!("refs/heads/{branch}"),
        }
    }

    /// Makes the mirror where there is none.
    fn make(&self) -> Result<(), RemoteError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.mirror);
        made.map_err(|source| self.not_made(source))?;
        self.keep("init", &["--quiet", "--bare", "--template="])
    }

    fn remove(&self) -> Result<(), RemoteError> {
        std::fs::remove_dir_all(&self.mirror).map_err(|source| self.not_made(source))
    }

    fn fetch(&self) -> Result<(), GitError> {
        let refspec = format!("+{}:{MIRRORED}", self.full_reference());
        self.reaching(&self.mirror, "fetch")
            .env("GIT_DIR", &self.mirror)
            .args(["--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head"])
            .args(["--", self.url.address(), &refspec])
            .limits(FETCH)
            .run()
            .map(drop)
    }

    /// Drops what only earlier commits needed, now and then.
    fn tidy_up(&self) -> Result<(), RemoteError> {
        let packs = std::fs::read_dir(self.mirror.join("objects/pack"));
        let is_pack = |name: OsString| Path::new(&name).extension().is_some_and(|it| it == "pack");
        let entries = packs.into_iter().flatten().flatten();
        if entries.filter(|it| is_pack(it.file_name())).count() <= PACKS_MAX {
            return Ok(());
        }
        self.keep("gc", &["--quiet", "--prune=now"])
    }

    /// A run of git on the mirror alone, as all others are run.
    fn keep(&self, subcommand: &str, arguments: &[&str]) -> Result<(), RemoteError> {
        let run = Git::new(&self.mirror, subcommand)
            .env("GIT_DIR", &self.mirror)
            .args(arguments)
            .limits(Limits::WORK)
            .run();
        run.map(drop).map_err(|source| RemoteError::Keep {
            path: self.mirror.clone(),
            source,
        })
    }

    /// A run of git that reaches the remote.
    fn reaching(&self, directory: &Path, subcommand: &str) -> Git {
        let mut git = Git::new(directory, subcommand).operator(&self.environment);
        for setting in SETTINGS {
            git = git.setting(setting);
        }
        let Some(login) = self.url.login() else {
            return git;
        };
        let origin = self.url.origin();
        if let Some(password) = &login.password {
            // What the operator wrote here goes before what a helper of theirs remembers.
            git = git
                .setting(format!("credential.{origin}.helper="))
                .env("HOMEOSTAT_GIT_PASSWORD", password);
        }
        git.setting(format!("credential.{origin}.helper={HELPER}"))
            .env("HOMEOSTAT_GIT_USER", &login.user)
    }

    fn failed(&self, source: GitError) -> RemoteError {
        RemoteError::Fetch {
            url: self.url.to_string(),
            reference: self.full_reference(),
            source,
        }
    }

    fn not_made(&self, source: io::Error) -> RemoteError {
        RemoteError::Mirror {
            path: self.mirror.clone(),
            source,
        }
    }
}
