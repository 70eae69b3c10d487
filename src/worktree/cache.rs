//! The bare repository that we keep of a source: fetched from it, never written back.
//!
//! Fetching goes through the source's `upload-pack`, which only reads. The source's branches are
//! kept as `refs/source/heads/*`, its `HEAD` as `refs/source/HEAD`, its tags under their own
//! names; `refs/homeostat/base/*` are ours (bases of live worktrees) and no fetch touches them.
//! Objects are never dropped: repacking keeps what is unreachable.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::layout::{Layout, PRIVATE, ensure_directory};
use super::source::Source;
use crate::git::command::{Git, GitError, Limits};
use crate::model::id::Uid;
use crate::model::units::BranchName;
use crate::model::worktree::ObjectId;

/// Where the source's branches are kept.
const HEADS: &str = "refs/source/heads/";
/// Where the source's `HEAD` is kept.
const HEAD: &str = "refs/source/HEAD";
/// Files in the pack directory from which on they are made into one pack. A pack has three files.
const PACK_FILES_MAX: usize = 48;

/// What the source runs to serve us: it must serve whoever owns it, and nothing it configures.
const UPLOAD_PACK: &str = "--upload-pack=git -c safe.directory=* -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand= upload-pack";

/// Why a cache could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A directory of ours could not be made.
    #[error("make the cache {}", path.display())]
    Make {
        /// The cache.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Git could not make, fetch or read it.
    #[error("fetch {} into the cache", from.display())]
    Fetch {
        /// The source.
        from: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// Git could not read or repack it.
    #[error("read the cache {}", path.display())]
    Read {
        /// The cache.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// The source has no such branch, or its `HEAD` has no commit.
    #[error("find the branch {branch:?} in {}", from.display())]
    NoBase {
        /// The source.
        from: PathBuf,
        /// The branch, or `HEAD`.
        branch: String,
    },
}

/// A cache that was just brought up to date.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    from: PathBuf,
    /// `<id> <name>` of every ref of the source, as a worktree is to know them.
    refs: Vec<CachedRef>,
}

#[derive(Debug)]
struct CachedRef {
    id: ObjectId,
    name: Vec<u8>,
}

/// The commit that a worktree starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The commit.
    pub commit: ObjectId,
    /// Its tree.
    pub tree: ObjectId,
}

/// Makes the cache of `repo` if there is none, and fetches `source` into it. The caller holds the
/// repo's lock.
///
/// # Errors
/// [`CacheError::Make`], [`CacheError::Fetch`], [`CacheError::Read`]. A cache that was half made
/// or half fetched is whole after the next call.
pub(super) fn ensure(layout: &Layout, repo: Uid, source: &Source) -> Result<Cache, CacheError> {
    let path = layout.cache(repo);
    if !path.exists() {
        create(&path)?;
    }
    let cache = Cache {
        refs: Vec::new(),
        from: source.path.clone(),
        path,
    };
    cache.fetch(source)?;
    cache.repack_if_needed()?;
    let refs = cache.read_refs()?;
    Ok(Cache { refs, ..cache })
}

fn create(path: &Path) -> Result<(), CacheError> {
    create_bare(path, None).map_err(|error| match error {
        CreateError::System(source) => CacheError::Make {
            path: path.to_owned(),
            source,
        },
        CreateError::Git(source) => CacheError::Read {
            path: path.to_owned(),
            source,
        },
    })
}

/// Why a bare repository of ours could not be made.
pub(super) enum CreateError {
    System(io::Error),
    Git(GitError),
}

impl From<io::Error> for CreateError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Makes the repository for saved work if there is none. It sees the cache's objects; the cache
/// does not see its.
pub(super) fn create_salvage(path: &Path, cache: &Path) -> Result<(), CreateError> {
    if path.exists() {
        return Ok(());
    }
    create_bare(path, Some(cache))
}

fn create_bare(path: &Path, borrow_from: Option<&Path>) -> Result<(), CreateError> {
    let part = path.with_extension("part");
    remove_leftover(&part)?;
    ensure_directory(&part, PRIVATE)?;
    let init = Git::new(&part, "init")
        .args(["--quiet", "--bare", "--template=", "--object-format=sha1"])
        .env("GIT_DEFAULT_REF_FORMAT", "files");
    init.run().map_err(CreateError::Git)?;
    if let Some(name) = borrow_from.and_then(Path::file_name) {
        // Both lie side by side, so the data directory can be moved.
        let objects = Path::new("../..").join(name).join("objects");
        let line = [objects.as_os_str().as_bytes(), b"\n"].concat();
        fs::create_dir_all(part.join("objects/info"))?;
        fs::write(part.join("objects/info/alternates"), line)?;
    }
    Ok(fs::rename(&part, path)?)
}

/// Removes what a predecessor left half made at a path that is only ever ours.
pub(super) fn remove_leftover(part: &Path) -> io::Result<()> {
    match fs::remove_dir_all(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Cache {
    /// The commit at the tip of `branch`, or of the source's `HEAD`.
    ///
    /// # Errors
    /// [`CacheError::NoBase`], [`CacheError::Read`].
    pub fn base(&self, branch: Option<&BranchName>) -> Result<Base, CacheError> {
        let name = branch.map_or_else(|| HEAD.to_owned(), |branch| format!("{HEADS}{branch}"));
        let found = self.refs.iter().find(|found| found.name == name.as_bytes());
        let found = found.ok_or_else(|| CacheError::NoBase {
            from: self.from.clone(),
            branch: branch.map_or_else(|| "HEAD".to_owned(), BranchName::to_string),
        })?;
        let peel = |to: &str| {
            let object = format!("{}^{{{to}}}", found.id);
            let run = self.git("rev-parse").args(["--verify", &object]).run();
            run.and_then(|output| output.object_id())
                .map_err(|source| self.unreadable(source))
        };
        Ok(Base {
            commit: peel("commit")?,
            tree: peel("tree")?,
        })
    }

    /// The source's branches (as of a remote `origin`) and tags, in the form of `packed-refs`.
    pub(super) fn packed_refs(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for CachedRef { id, name } in &self.refs {
            let branch = name.strip_prefix(HEADS.as_bytes());
            let is_tag = name.starts_with(b"refs/tags/");
            let name = match branch {
                Some(branch) => [b"refs/remotes/origin/", branch].concat(),
                None if is_tag => name.clone(),
                None => continue,
            };
            lines.extend_from_slice(id.as_str().as_bytes());
            lines.push(b' ');
            lines.extend_from_slice(&name);
            lines.push(b'\n');
        }
        lines
    }

    /// The commits at which a shallow source's history ends.
    pub(super) fn shallow(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path.join("shallow")) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its object store.
    pub(super) fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    fn git(&self, subcommand: &str) -> Git {
        Git::new(&self.path, subcommand)
    }

    fn unreadable(&self, source: GitError) -> CacheError {
        CacheError::Read {
            path: self.path.clone(),
            source,
        }
    }

    fn fetch(&self, source: &Source) -> Result<(), CacheError> {
        let failed = |error| CacheError::Fetch {
            from: self.from.clone(),
            source: error,
        };
        let fetch = self.git("fetch").args([
            "--quiet",
            "--prune",
            "--atomic",
            "--no-tags",
            "--no-write-fetch-head",
            "--update-shallow",
            UPLOAD_PACK,
            "--",
        ]);
        let fetch = fetch.arg(&source.path).args([
            "+HEAD:refs/source/HEAD",
            "+refs/heads/*:refs/source/heads/*",
            "+refs/tags/*:refs/tags/*",
        ]);
        // Always a pack: a loose object would be one more file of every worktree.
        let fetch = fetch.setting("fetch.unpackLimit=1").limits(Limits::WORK);
        fetch.run().map_err(failed)?;
        let target = match &source.head_branch {
            Some(branch) => format!("{HEADS}{branch}"),
            None => HEAD.to_owned(),
        };
        let record = self.git("symbolic-ref").args(["HEAD", &target]).run();
        record.map(|_output| ()).map_err(failed)
    }

    fn repack_if_needed(&self) -> Result<(), CacheError> {
        let directory = self.objects().join("pack");
        let files = fs::read_dir(&directory).map_err(|source| CacheError::Make {
            path: self.path.clone(),
            source,
        })?;
        if files.count() < PACK_FILES_MAX {
            return Ok(());
        }
        let repack = self
            .git("repack")
            .args(["-a", "-d", "-k", "-q", "--no-write-bitmap-index"]);
        let repack = repack.limits(Limits::WORK).run();
        repack
            .map(|_output| ())
            .map_err(|source| self.unreadable(source))
    }

    fn read_refs(&self) -> Result<Vec<CachedRef>, CacheError> {
        let list = self.git("for-each-ref").args([
            "--format=%(objectname) %(refname)",
            "refs/source",
            "refs/tags",
        ]);
        let list = list.run().map_err(|source| self.unreadable(source))?;
        let mut refs = Vec::new();
        for line in list
            .stdout
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let parsed = line.split_at_checked(40).and_then(|(id, name)| {
                let id = std::str::from_utf8(id).ok()?.parse().ok()?;
                let name = name.strip_prefix(b" ")?.to_vec();
                Some(CachedRef { id, name })
            });
            refs.push(parsed.ok_or_else(|| self.unreadable(list.unexpected()))?);
        }
        Ok(refs)
    }
}

/// The ref that keeps the base of a space's worktree, while there is one.
fn base_ref(space: Uid) -> String {
    format!("refs/homeostat/base/{space}")
}

/// Keeps the base commit of a live worktree in the cache, whatever the source does.
pub(super) fn keep_base(cache: &Path, space: Uid, base: &ObjectId) -> Result<(), GitError> {
    let update =
        Git::new(cache, "update-ref").args(["--no-deref", &base_ref(space), base.as_str()]);
    update.run().map(|_output| ())
}

/// The opposite of [`keep_base`]; nothing to do is success.
pub(super) fn release_base(cache: &Path, space: Uid) -> Result<(), GitError> {
    let update = Git::new(cache, "update-ref").args(["--no-deref", "-d", &base_ref(space)]);
    update.run().map(|_output| ())
}
