//! Makes one worktree, whole or not at all.
//!
//! Order: look at what is there → refuse what can't work, before anything is made → bring the
//! cache up to date → pin a seed → fill `<name>.part` → write the marker → rename. Dying anywhere
//! leaves a `.part` that the next attempt removes; running twice returns what the first run made.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::cache::{self, Base, Cache, CacheError, remove_leftover};
use super::engine::EngineError;
use super::engine::checkout::check_out;
use super::engine::clone::clone_tree;
use super::engine::skeleton::{NewHead, Skeleton, Transfer, open_packs, write_file};
use super::layout::{Layout, PRIVATE, ensure_directory};
use super::lock::RepoLock;
use super::marker::{Marker, MarkerError, MarkerKind, TreeMarker, sync_directory};
use super::probe::{self, Refusal};
use super::reason::ReasonCode;
use super::run_as::run_as;
use super::seed::{self, Leftover, Seed, SeedError, SeedRequest, make_root};
use super::source::{self, SourceError};
use super::space::{SpaceError, SpaceRequest, ensure_space_root};
use crate::git::command::GitError;
use crate::model::id::Uid;
use crate::model::observed::WorktreeBackend;
use crate::model::units::{BranchName, Name};
use crate::model::worktree::{ObjectId, UserIds};

/// One worktree to make.
#[derive(Clone, Debug)]
pub struct TreeRequest {
    /// The workspace.
    pub workspace: Uid,
    /// The space.
    pub space: Uid,
    /// The repo.
    pub repo: Uid,
    /// The repo's name: the directory's name.
    pub repo_name: Name,
    /// Absolute path of the operator's repository.
    pub source: PathBuf,
    /// The branch to start from; none: the source's own `HEAD`.
    pub base_branch: Option<BranchName>,
    /// The branch to be put on.
    pub branch: BranchName,
    /// Who owns the tree.
    pub user: UserIds,
    /// How to make it.
    pub backend: WorktreeBackend,
    /// For the marker.
    pub now: Timestamp,
}

/// A worktree that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioned {
    /// Absolute path.
    pub path: PathBuf,
    /// The branch that it was made on.
    pub branch: BranchName,
    /// The commit that it started from.
    pub base: ObjectId,
    /// How it was made.
    pub backend: WorktreeBackend,
}

/// Why there is no worktree. [`ProvisionError::reason`] is the closed list behind it.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// Files can't be cloned on the data volume.
    #[error("make copy-on-write worktrees")]
    Refused(#[from] Refusal),
    /// The source can't be used.
    #[error("use the repo's source")]
    Source(#[from] SourceError),
    /// The cache could not be brought up to date.
    #[error("bring the repo's cache up to date")]
    Cache(#[from] CacheError),
    /// There is no seed.
    #[error("make the repo's seed")]
    Seed(#[from] SeedError),
    /// The space's root could not be made.
    #[error("make the space's root")]
    Space(#[from] SpaceError),
    /// The tree's content could not be made.
    #[error("fill the worktree {}", path.display())]
    Fill {
        /// The worktree.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: EngineError,
    },
    /// The tree could not be marked.
    #[error("mark the worktree {}", path.display())]
    Mark {
        /// The worktree.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: MarkerError,
    },
    /// The tree's base could not be kept.
    #[error("keep the base of the worktree {}", path.display())]
    Keep {
        /// The worktree.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// Something that we did not make is at the tree's path.
    #[error("use {}: homeostat did not make it", path.display())]
    Foreign {
        /// The worktree.
        path: PathBuf,
    },
    /// The tree there belongs to another space, repo or user.
    #[error("use the worktree {}: it was made for another space, repo or user", path.display())]
    Mismatch {
        /// The worktree.
        path: PathBuf,
    },
    /// A directory of ours could not be made, locked, renamed or synced.
    #[error("make {}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl ProvisionError {
    /// The closed reason behind this error.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Refused(refusal) => refusal.reason,
            Self::Source(error) => error.reason(),
            Self::Cache(error) => match error {
                CacheError::Make { source, .. } => ReasonCode::of_io(source),
                CacheError::Fetch { source, .. } | CacheError::Read { source, .. } => {
                    ReasonCode::of_git(source)
                }
                CacheError::NoBase { .. } => ReasonCode::BaseBranchMissing,
            },
            Self::Seed(error) => match error {
                SeedError::Make { source, .. } | SeedError::Evict { source, .. } => {
                    ReasonCode::of_io(source)
                }
                SeedError::Fill { source, .. } => engine_reason(source),
                SeedError::Mark { source, .. } => marker_reason(source),
            },
            Self::Space(error) => match error {
                SpaceError::Make { source, .. } => ReasonCode::of_io(source),
                SpaceError::Foreign { .. } => ReasonCode::ForeignDirectory,
                SpaceError::Unreachable { .. } => ReasonCode::DataUnreachable,
                SpaceError::Mark { source, .. } => marker_reason(source),
            },
            Self::Fill { source, .. } => engine_reason(source),
            Self::Mark { source, .. } => marker_reason(source),
            Self::Keep { source, .. } => ReasonCode::of_git(source),
            Self::Foreign { .. } => ReasonCode::ForeignDirectory,
            Self::Mismatch { .. } => ReasonCode::MarkerMismatch,
            Self::Make { source, .. } => ReasonCode::of_io(source),
        }
    }
}

fn engine_reason(error: &EngineError) -> ReasonCode {
    match error {
        EngineError::Clone { source, .. } => ReasonCode::of_clone(source),
        EngineError::Make { source, .. } | EngineError::Read { source, .. } => {
            ReasonCode::of_io(source)
        }
        EngineError::Git { source } => ReasonCode::of_git(source),
        EngineError::Index { .. } | EngineError::Identity { .. } => ReasonCode::SystemError,
    }
}

fn marker_reason(error: &MarkerError) -> ReasonCode {
    match error {
        MarkerError::Unmarked { .. } => ReasonCode::ForeignDirectory,
        MarkerError::Mismatch { .. } | MarkerError::Corrupt { .. } => ReasonCode::MarkerMismatch,
        MarkerError::Access { source, .. } => ReasonCode::of_io(source),
    }
}

/// Makes the worktree of `request`, or returns the facts of the one that is already there.
///
/// # Errors
/// [`ProvisionError`]. A refusal leaves nothing behind; any other error leaves no tree and no
/// part of one. Can be repeated after any of them, and after a crash.
pub fn provision(layout: &Layout, request: &TreeRequest) -> Result<Provisioned, ProvisionError> {
    let path = layout.tree(request.workspace, request.space, &request.repo_name);
    if let Some(there) = existing(&path, request)? {
        return Ok(there);
    }
    match request.backend {
        WorktreeBackend::Reflink => probe::probe(layout.data())?,
        WorktreeBackend::Git => {}
    }
    let source = source::check(&request.source)?;
    let tree = source.tree(request.base_branch.as_ref())?;
    if !seed::is_sealed(layout, request.repo, &tree, request.user) {
        source.refuse_submodules(&tree)?;
    }
    let plan = prepare(layout, request, &source)?;
    ensure_space_root(
        layout,
        &SpaceRequest {
            workspace: request.workspace,
            space: request.space,
            user: request.user,
            now: request.now,
        },
    )?;
    install(layout, request, &path, plan)
}

/// What stands at the tree's path, if it is what `request` asks for.
fn existing(path: &Path, request: &TreeRequest) -> Result<Option<Provisioned>, ProvisionError> {
    let there = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(ProvisionError::Make {
                path: path.to_owned(),
                source,
            });
        }
    };
    let marker = Marker::read(MarkerKind::Worktree, path);
    let marker = marker.map_err(|source| ProvisionError::Mark {
        path: path.to_owned(),
        source,
    })?;
    let Some(marker) = marker.filter(|_| there.is_dir()) else {
        return Err(ProvisionError::Foreign {
            path: path.to_owned(),
        });
    };
    let is_same = marker.kind == MarkerKind::Worktree
        && marker.uid == request.repo
        && marker.user == request.user;
    match marker.tree {
        Some(tree) if is_same && tree.space == request.space => Ok(Some(Provisioned {
            path: path.to_owned(),
            branch: tree.branch,
            base: tree.base,
            backend: tree.backend,
        })),
        _ => Err(ProvisionError::Mismatch {
            path: path.to_owned(),
        }),
    }
}

/// All that filling a tree needs, pinned.
struct Plan {
    base: Base,
    skeleton: Skeleton,
    /// Where the content comes from; none: git writes it out.
    seed: Option<Seed>,
}

/// Brings cache and seed up to date, one at a time per repo, and pins what the tree is made of.
fn prepare(
    layout: &Layout,
    request: &TreeRequest,
    source: &source::Source,
) -> Result<Plan, ProvisionError> {
    let repo = layout.repo(request.repo);
    let make = |source| ProvisionError::Make {
        path: repo.clone(),
        source,
    };
    layout.ensure().map_err(make)?;
    ensure_directory(&repo, PRIVATE).map_err(make)?;
    let _lock = RepoLock::exclusive(&repo).map_err(make)?;
    let cache = cache::ensure(layout, request.repo, source)?;
    let base = cache.base(request.base_branch.as_ref())?;
    let shallow = cache.shallow().map_err(make)?;
    let seed_request = SeedRequest {
        repo: request.repo,
        base: &base,
        user: request.user,
        now: request.now,
    };
    let seed = match request.backend {
        WorktreeBackend::Git => None,
        WorktreeBackend::Reflink => {
            let objects = cache.objects();
            Some(seed::ensure(
                layout,
                &seed_request,
                &objects,
                shallow.clone(),
            )?)
        }
    };
    let skeleton = skeleton(&cache, request, &base, shallow)?;
    Ok(Plan {
        base,
        skeleton,
        seed,
    })
}

fn skeleton(
    cache: &Cache,
    request: &TreeRequest,
    base: &Base,
    shallow: Option<Vec<u8>>,
) -> Result<Skeleton, ProvisionError> {
    let packs = open_packs(&cache.objects());
    Ok(Skeleton {
        head: NewHead::Branch(request.branch.to_string()),
        commit: base.commit.clone(),
        packed_refs: cache.packed_refs(),
        shallow,
        packs: packs.map_err(|source| ProvisionError::Fill {
            path: cache.objects(),
            source,
        })?,
    })
}

/// Fills `<path>.part`, marks it and gives it its name.
fn install(
    layout: &Layout,
    request: &TreeRequest,
    path: &Path,
    plan: Plan,
) -> Result<Provisioned, ProvisionError> {
    let make = |source| ProvisionError::Make {
        path: path.to_owned(),
        source,
    };
    let directory = path.parent().unwrap_or(layout.data());
    // One maker per space: the loser of a race finds the winner's tree.
    let lock = File::open(directory).map_err(make)?;
    lock.lock().map_err(make)?;
    if let Some(there) = existing(path, request)? {
        return Ok(there);
    }
    let part = path.with_extension("part");
    remove_leftover(&part).map_err(make)?;
    let leftover = Leftover { path: Some(&part) };
    let root = make_root(&part, request.user).map_err(make)?;
    let base = plan.base.clone();
    fill(&part, root, request.user, plan).map_err(|source| ProvisionError::Fill {
        path: path.to_owned(),
        source,
    })?;
    let cache = layout.cache(request.repo);
    cache::keep_base(&cache, request.space, &base.commit).map_err(|source| {
        ProvisionError::Keep {
            path: path.to_owned(),
            source,
        }
    })?;
    let mut marker = Marker::new(
        MarkerKind::Worktree,
        request.repo,
        request.user,
        request.now,
    );
    marker.tree = Some(TreeMarker {
        space: request.space,
        repo_name: request.repo_name.clone(),
        branch: request.branch.clone(),
        base: base.commit.clone(),
        backend: request.backend,
    });
    marker.write(path).map_err(|source| ProvisionError::Mark {
        path: path.to_owned(),
        source,
    })?;
    fs::rename(&part, path).map_err(make)?;
    leftover.disarm();
    sync_directory(directory).map_err(make)?;
    Ok(Provisioned {
        path: path.to_owned(),
        branch: request.branch.clone(),
        base: base.commit,
        backend: request.backend,
    })
}

fn fill(part: &Path, root: OwnedFd, user: UserIds, plan: Plan) -> Result<(), EngineError> {
    let Plan { skeleton, seed, .. } = plan;
    match seed {
        Some(seed) => run_as(user, move || {
            skeleton.write(&root, Transfer::Clone)?;
            let index = clone_tree(&seed.root, seed.index, &root)?;
            // After the last file: git distrusts a file that is not older than its index.
            write_file(&root, ".git/index", &index)
        }),
        None => {
            run_as(user, || skeleton.write(&root, Transfer::Copy))?;
            check_out(part, user)
        }
    }
}
