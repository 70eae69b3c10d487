//! What the operator's repository is, asked without changing a byte of it.

use std::io;
use std::path::{Path, PathBuf};

use super::reason::ReasonCode;
use crate::git::command::{Git, GitError, Limits};
use crate::model::units::BranchName;
use crate::model::worktree::ObjectId;

/// Why a source can't be used. Nothing was made when this is answered.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is a URL.
    #[error("use the source {location:?}: URLs are not supported yet")]
    Url {
        /// As declared, without a password.
        location: String,
    },
    /// There is nothing there, or it can't be reached.
    #[error("find the source {}", path.display())]
    Missing {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is not the top of a repository.
    #[error("open the source {} as a git repository", path.display())]
    NotARepository {
        /// Where.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// Its `HEAD` has no commit.
    #[error("find a commit in the source {}", path.display())]
    Unborn {
        /// Where.
        path: PathBuf,
    },
    /// It names objects in another way than by SHA-1.
    #[error("read the source {}: its object format is {format}", path.display())]
    ObjectFormat {
        /// Where.
        path: PathBuf,
        /// `sha256`.
        format: String,
    },
    /// It has no such branch.
    #[error("find the branch {branch} in the source {}", path.display())]
    NoBranch {
        /// Where.
        path: PathBuf,
        /// The branch.
        branch: BranchName,
    },
    /// The tree to start from has submodules.
    #[error("check out the source {}: its tree has submodules", path.display())]
    Submodules {
        /// Where.
        path: PathBuf,
    },
    /// It lacks objects that its branches need.
    #[error("read the source {}: it is a partial clone that lacks objects", path.display())]
    Partial {
        /// Where.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
    /// Git could not be asked.
    #[error("read the source {}", path.display())]
    Git {
        /// Where.
        path: PathBuf,
        /// What git said.
        #[source]
        source: GitError,
    },
}

/// A source that can be fetched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Absolute, without links.
    pub path: PathBuf,
    /// The branch that `HEAD` is on; none when it is detached.
    pub head_branch: Option<String>,
}

impl SourceError {
    /// The closed reason behind this error.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Url { .. } => ReasonCode::UrlUnsupported,
            Self::Missing { .. } => ReasonCode::SourceMissing,
            Self::NotARepository { .. } => ReasonCode::NotARepository,
            Self::Unborn { .. } => ReasonCode::UnbornHead,
            Self::ObjectFormat { .. } => ReasonCode::ObjectFormatUnsupported,
            Self::NoBranch { .. } => ReasonCode::BaseBranchMissing,
            Self::Submodules { .. } => ReasonCode::SubmodulesUnsupported,
            Self::Partial { .. } => ReasonCode::PartialClone,
            Self::Git { source, .. } => ReasonCode::of_git(source),
        }
    }
}

impl Source {
    fn git(&self, subcommand: &str) -> Git {
        Git::new(&self.path, subcommand)
    }

    fn unreadable(&self, source: GitError) -> SourceError {
        SourceError::Git {
            path: self.path.clone(),
            source,
        }
    }

    /// The tree at the tip of `branch`, or of `HEAD`.
    ///
    /// # Errors
    /// [`SourceError::NoBranch`], [`SourceError::Git`].
    pub fn tree(&self, branch: Option<&BranchName>) -> Result<ObjectId, SourceError> {
        let tip = branch.map_or_else(
            || "HEAD".to_owned(),
            |branch| format!("refs/heads/{branch}"),
        );
        let tip = format!("{tip}^{{tree}}");
        let tree = self.git("rev-parse").args(["--verify", "--quiet", &tip]);
        let tree = tree.output().map_err(|error| self.unreadable(error))?;
        match branch {
            Some(branch) if !tree.is_success() => Err(SourceError::NoBranch {
                path: self.path.clone(),
                branch: branch.clone(),
            }),
            _ => tree.object_id().map_err(|error| self.unreadable(error)),
        }
    }

    /// Refuses a tree with submodules.
    ///
    /// # Errors
    /// [`SourceError::Submodules`], [`SourceError::Git`].
    pub fn refuse_submodules(&self, tree: &ObjectId) -> Result<(), SourceError> {
        let limits = Limits {
            output_bytes_max: 1 << 30,
            ..Limits::WORK
        };
        let list = self.git("ls-tree").args(["-r", "-z", tree.as_str()]);
        let list = list.limits(limits).run();
        let list = list.map_err(|error| self.unreadable(error))?;
        let mut entries = list.stdout.split(|&byte| byte == 0);
        if entries.any(|entry| entry.starts_with(b"160000 ")) {
            return Err(SourceError::Submodules {
                path: self.path.clone(),
            });
        }
        Ok(())
    }
}

/// Looks at the repository at `location`: a checkout, a linked worktree or a bare repository.
///
/// # Errors
/// [`SourceError`].
pub fn check(location: &Path) -> Result<Source, SourceError> {
    if let Some(location) = location.to_str()
        && is_url(location)
    {
        return Err(SourceError::Url {
            location: without_password(location),
        });
    }
    let path = location.canonicalize();
    let path = path.map_err(|source| SourceError::Missing {
        path: location.to_owned(),
        source,
    })?;
    let git_error = |source| SourceError::Git {
        path: path.clone(),
        source,
    };
    let format = Git::new(&path, "rev-parse")
        .args(["--git-dir", "--show-object-format"])
        .output()
        .map_err(git_error)?;
    let format = format
        .success()
        .map_err(|source| SourceError::NotARepository {
            path: path.clone(),
            source,
        })?;
    // The second of two lines; the first is a path.
    let format = String::from_utf8_lossy(&format.stdout);
    let format = format.trim_end().rsplit('\n').next().unwrap_or_default();
    if format != "sha1" {
        return Err(SourceError::ObjectFormat {
            format: format.to_owned(),
            path: path.clone(),
        });
    }
    let head = Git::new(&path, "rev-parse").args(["--verify", "--quiet", "HEAD^{commit}"]);
    if !head.output().map_err(git_error)?.is_success() {
        return Err(SourceError::Unborn { path });
    }
    refuse_partial(&path)?;
    let branch = Git::new(&path, "symbolic-ref").args(["--quiet", "HEAD"]);
    let branch = branch.output().map_err(git_error)?;
    let head_branch = if branch.is_success() {
        let name = branch.line().map_err(git_error)?;
        name.strip_prefix("refs/heads/").map(str::to_owned)
    } else {
        None
    };
    Ok(Source { path, head_branch })
}

fn refuse_partial(path: &Path) -> Result<(), SourceError> {
    let git_error = |source| SourceError::Git {
        path: path.to_owned(),
        source,
    };
    let promisor = Git::new(path, "config").args([
        "--get-regexp",
        r"^(extensions\.partialclone|remote\..*\.promisor)$",
    ]);
    if !promisor.output().map_err(git_error)?.is_success() {
        return Ok(());
    }
    let walk =
        Git::new(path, "rev-list").args(["--objects", "--quiet", "--branches", "--tags", "HEAD"]);
    let walk = walk.limits(Limits::WORK).output().map_err(git_error)?;
    walk.success()
        .map(|_output| ())
        .map_err(|source| SourceError::Partial {
            path: path.to_owned(),
            source,
        })
}

/// `scheme://…`, or `host:path` with the colon before any slash, as git reads them.
fn is_url(location: &str) -> bool {
    let before_slash = location.split('/').next().unwrap_or_default();
    location.contains("://") || before_slash.contains(':')
}

fn without_password(location: &str) -> String {
    match location.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => location.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in [
            "https://u:secret@h/r.git",
            "ssh://h/r",
            "git@h:r.git",
            "file:///x",
        ] {
            let error = check(Path::new(url)).unwrap_err();
            assert!(matches!(error, SourceError::Url { .. }), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for path in ["/a:b", "./a:b", "/a/b"] {
            assert!(!is_url(path), "{path}");
        }
    }
}
