//! Git over a tree that an agent may have written.
//!
//! The tree's own `.git` is never git's repository here. Git is given a repository of ours beside
//! it: configuration and refs that we wrote (the refs copied as data), an index in a scratch
//! file, a scratch object store that borrows from the tree's. So no configuration, hook, filter,
//! include or attribute file of the tree's repository is ever *read* by git, let alone obeyed,
//! and nothing in the tree is written.
//!
//! Confinement today: the run user's uid (where the daemon is root), an empty environment, no
//! network protocol, a deadline. Not yet: a Landlock domain around the process. What that would
//! add is a bound on what git itself could be made to read through a flaw in its parsers.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tempfile::TempDir;

use super::beneath;
use super::command::Git;
use super::refs::{Head, Refs};
use crate::model::worktree::{ObjectId, UserIds};

/// The configuration of every stand-in repository.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";

/// Longest `shallow` file that is read.
const SHALLOW_BYTES_MAX: u64 = 16 << 20;

/// Why a tree could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ConfinedError {
    /// The tree itself could not be opened.
    #[error("open the tree {}", path.display())]
    Tree {
        /// The tree.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its `.git` is not a directory with refs that we understand.
    #[error("read the refs of {}", path.display())]
    Refs {
        /// The tree.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: io::Error,
    },
    /// The stand-in repository could not be made.
    #[error("prepare to look at {}", path.display())]
    Scratch {
        /// The tree.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A stand-in repository for one tree. Removed when dropped.
#[derive(Debug)]
pub struct Confined {
    tree: PathBuf,
    scratch: TempDir,
    user: UserIds,
    refs: Option<Refs>,
}

impl Confined {
    /// Prepares to look at `tree` as `user`. `scratch` is a directory of ours that `user` can
    /// pass through but not write.
    ///
    /// # Errors
    /// [`ConfinedError`]. A tree without any `.git` is no error: [`Confined::refs`] is none then.
    pub fn open(tree: &Path, scratch: &Path, user: UserIds) -> Result<Self, ConfinedError> {
        let path = || tree.to_owned();
        let root = beneath::open_root(tree);
        let root = root.map_err(|source| ConfinedError::Tree {
            path: path(),
            source,
        })?;
        let refs = match beneath::open_directory(&root, b".git") {
            Ok(directory) => Refs::read(&directory).and_then(|refs| {
                // Where a shallow history ends is data as well.
                let shallow = beneath::read(&directory, b"shallow", SHALLOW_BYTES_MAX)?;
                Ok(Some((refs, shallow)))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let refs = refs.map_err(|source| ConfinedError::Refs {
            path: path(),
            source,
        })?;
        let (refs, shallow) = refs.unzip();
        let ends = shallow.flatten().as_deref().map(ends_of);
        stand_in(scratch, user, refs.as_ref(), &ends.unwrap_or_default())
            .map(|scratch| Self {
                tree: path(),
                scratch,
                user,
                refs,
            })
            .and_then(|confined| confined.borrow_objects(&[tree]).map(|()| confined))
            .map_err(|source| ConfinedError::Scratch {
                path: path(),
                source,
            })
    }

    /// The tree's refs, as data; none when it has no `.git`.
    pub const fn refs(&self) -> Option<&Refs> {
        self.refs.as_ref()
    }

    /// The tree.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// The one way to run git on an agent-writable tree: see the module's text.
    ///
    /// `subcommand` must be plumbing that starts no other git inside the tree: `status`, `add`,
    /// `diff` and `commit` do, in every nested repository, with that repository's configuration.
    pub fn git(&self, subcommand: &str) -> Git {
        self.git_in(&self.tree, "index", subcommand)
    }

    /// The same over a repository nested in the tree, with an index of its own.
    pub fn git_nested(&self, nested: &Self, subcommand: &str) -> Git {
        self.git_in(&nested.tree, "index-nested", subcommand)
    }

    fn git_in(&self, tree: &Path, index: &str, subcommand: &str) -> Git {
        let scratch = self.scratch.path();
        Git::new(scratch, subcommand)
            .env("GIT_DIR", scratch.join("git"))
            .env("GIT_WORK_TREE", tree)
            .env("GIT_INDEX_FILE", scratch.join("rw").join(index))
            .env("GIT_OBJECT_DIRECTORY", scratch.join("rw/objects"))
            .env("GIT_LITERAL_PATHSPECS", "1")
            .setting("diff.ignoreSubmodules=all")
            .user(self.user)
    }

    /// Gives git an index to start from; to be called once, before the first run. Without one it
    /// starts from an empty index.
    ///
    /// Git believes the stat data of an entry that is older than the index, and reads the file of
    /// one that isn't: it tells times apart by the second only. So a copy must say of itself when
    /// the original was written, or changes of that second stay hidden.
    ///
    /// # Errors
    /// What the system said.
    pub fn write_index(&self, bytes: &[u8], written: SystemTime) -> io::Result<()> {
        // The directory is the run user's: never open a name there that may exist.
        let mut file = File::create_new(self.scratch.path().join("rw/index"))?;
        file.write_all(bytes)?;
        file.set_modified(written)?;
        if rustix::process::geteuid().is_root() {
            fchown(&file, Some(self.user.uid), Some(self.user.gid))?;
        }
        Ok(())
    }

    /// Gives a commit a name (`refs/homeostat/…`) in the stand-in repository.
    ///
    /// # Errors
    /// What the system said.
    pub fn write_ref(&self, name: &str, id: &ObjectId) -> io::Result<()> {
        let path = self.scratch.path().join("git/packed-refs");
        let mut file = File::options().append(true).open(path)?;
        file.write_all(format!("{id} {name}\n").as_bytes())
    }

    /// Borrows objects from the repositories of these trees, and from no other.
    ///
    /// # Errors
    /// `InvalidInput` when a path has a line break; else what the system said.
    pub fn borrow_objects(&self, trees: &[&Path]) -> io::Result<()> {
        let mut lines = Vec::new();
        for tree in trees {
            let objects = tree.join(".git/objects");
            let bytes = objects.as_os_str().as_bytes();
            if bytes.contains(&b'\n') {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a path with a line break",
                ));
            }
            lines.extend_from_slice(bytes);
            lines.push(b'\n');
        }
        fs::write(
            self.scratch.path().join("git/objects/info/alternates"),
            lines,
        )
    }
}

/// The legal lines of a `shallow` file.
fn ends_of(shallow: &[u8]) -> String {
    let lines = std::str::from_utf8(shallow).unwrap_or_default().lines();
    let ids = lines.filter_map(|line| line.parse::<ObjectId>().ok());
    ids.map(|id| format!("{id}\n")).collect()
}

/// Writes a file of ours that the run user may read, whatever the umask says.
fn write_readable(path: &Path, content: &str) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// `<scratch>/…/git`: ours, readable. `…/rw`: the user's own.
fn stand_in(
    parent: &Path,
    user: UserIds,
    refs: Option<&Refs>,
    shallow: &str,
) -> io::Result<TempDir> {
    let scratch = tempfile::Builder::new()
        .prefix("confined-")
        .tempdir_in(parent)?;
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o711))?;
    let git = scratch.path().join("git");
    fs::create_dir(&git)?;
    for directory in ["refs", "objects", "objects/info"] {
        fs::create_dir(git.join(directory))?;
    }
    for directory in ["", "refs", "objects", "objects/info"] {
        fs::set_permissions(git.join(directory), Permissions::from_mode(0o755))?;
    }
    let head = match refs.map(|refs| &refs.head) {
        Some(Head::Branch(name)) => format!("ref: {name}\n"),
        Some(Head::Detached(id)) => format!("{id}\n"),
        None => "ref: refs/heads/none\n".to_owned(),
    };
    let lines = refs.into_iter().flat_map(|refs| &refs.refs);
    // Names of ours are ours to give: see `write_ref`.
    let lines = lines.filter(|(name, _)| !name.starts_with("refs/homeostat/"));
    let packed: String = lines.map(|(name, id)| format!("{id} {name}\n")).collect();
    write_readable(&git.join("config"), CONFIG)?;
    write_readable(&git.join("HEAD"), &head)?;
    write_readable(&git.join("shallow"), shallow)?;
    write_readable(&git.join("packed-refs"), &packed)?;
    write_readable(&git.join("objects/info/alternates"), "")?;
    let rw = scratch.path().join("rw");
    for directory in ["", "objects", "objects/info"] {
        fs::create_dir(rw.join(directory))?;
    }
    // What the user's store borrows from is decided in a file of ours.
    let mut borrowed = git.join("objects").into_os_string().into_vec();
    borrowed.push(b'\n');
    fs::write(rw.join("objects/info/alternates"), borrowed)?;
    for path in ["objects/info/alternates", "objects/info", "objects", ""] {
        give(&rw.join(path), user)?;
    }
    Ok(scratch)
}

/// Hands what we just made, where nobody else can reach it yet, to the run user.
fn give(path: &Path, user: UserIds) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}
