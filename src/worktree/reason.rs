//! Why a worktree can't be had: a closed list, each with what to do about it.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use crate::git::command::GitError;

/// The reason code of a refused or failed provisioning.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum ReasonCode {
    /// The data volume can't clone files (EOPNOTSUPP, ENOTTY, EINVAL).
    ReflinkUnsupported,
    /// Source and destination of a clone are on different volumes (EXDEV).
    CrossVolume,
    /// The host has no clone call at all, or forbids it (ENOSYS, EPERM).
    PrimitiveMissing,
    /// The source is a URL.
    UrlUnsupported,
    /// There is nothing at the source's path, or it can't be read.
    SourceMissing,
    /// What is there is not the top of a git repository.
    NotARepository,
    /// The source has no commit on its `HEAD`.
    UnbornHead,
    /// The source names objects by SHA-256.
    ObjectFormatUnsupported,
    /// The source is a partial clone that lacks objects of the tree.
    PartialClone,
    /// The tree has submodules.
    SubmodulesUnsupported,
    /// The source has no such branch.
    BaseBranchMissing,
    /// Something that we did not make stands where the worktree belongs.
    ForeignDirectory,
    /// The worktree there was made for another repo, space or user.
    MarkerMismatch,
    /// The run user can't reach the data directory.
    DataUnreachable,
    /// The `git` program is missing.
    GitMissing,
    /// A run of git failed.
    GitFailed,
    /// A run of git took too long.
    GitTimedOut,
    /// The volume, or the quota on it, is full (ENOSPC, EDQUOT).
    VolumeFull,
    /// Any other answer of the system.
    SystemError,
}

impl ReasonCode {
    /// The class of what the system answered to a clone.
    pub fn of_clone(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => Self::ReflinkUnsupported,
            Some(Errno::NOSYS | Errno::PERM) => Self::PrimitiveMissing,
            _ => Self::of_io(error),
        }
    }

    /// The class of what the system answered to any other call.
    pub fn of_io(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::XDEV) => Self::CrossVolume,
            Some(Errno::NOSPC | Errno::DQUOT) => Self::VolumeFull,
            _ => Self::SystemError,
        }
    }

    /// The class of a run of git that has no result.
    pub fn of_git(error: &GitError) -> Self {
        match error {
            GitError::Timeout { .. } => Self::GitTimedOut,
            GitError::Start { .. } if error.is_missing_program() => Self::GitMissing,
            GitError::Start { .. }
            | GitError::Pipe { .. }
            | GitError::Output { .. }
            | GitError::Failed { .. }
            | GitError::Answer { .. } => Self::GitFailed,
        }
    }

    /// What the operator can do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::ReflinkUnsupported => {
                "put the data directory on XFS (reflink=1), btrfs or bcachefs; `homeostat volume create` makes such a volume on any Linux; or start with `--worktree-backend git` for ordinary checkouts"
            }
            Self::CrossVolume => {
                "keep the whole data directory on one volume, without mounts or links inside it"
            }
            Self::PrimitiveMissing => {
                "run a kernel (4.5 or later) and a system-call filter that allow the FICLONE ioctl, or start with `--worktree-backend git`"
            }
            Self::UrlUnsupported => {
                "clone the repository and name the path of the clone as `spec.source`"
            }
            Self::SourceMissing => {
                "check `spec.source` of the Repo, and that the daemon's user may read it"
            }
            Self::NotARepository => {
                "name the top of a checkout, or a bare repository, as `spec.source`"
            }
            Self::UnbornHead => "make a first commit in the source",
            Self::ObjectFormatUnsupported => "use a repository in git's SHA-1 object format",
            Self::PartialClone => {
                "fetch the missing objects in the source: `git fetch --refetch --filter=none` or a full clone"
            }
            Self::SubmodulesUnsupported => {
                "submodules are not supported yet: declare a repository without them"
            }
            Self::BaseBranchMissing => {
                "check `defaultBranch` of the Repo and `baseBranch` of the Space against the source's branches"
            }
            Self::ForeignDirectory => {
                "move away what stands at the worktree's path: it is not ours to remove"
            }
            Self::MarkerMismatch => {
                "the worktree belongs to another object or user: delete the space, or move the directory away"
            }
            Self::DataUnreachable => {
                "put the data directory where the run user may pass: every directory above it needs mode o+x"
            }
            Self::GitMissing => "install git 2.35 or later in /usr/bin or /usr/local/bin",
            Self::GitFailed => {
                "see the message; `git fsck` in the source shows whether it is sound"
            }
            Self::GitTimedOut => {
                "see whether the disk of the source or of the data directory is overloaded"
            }
            Self::VolumeFull => "free space on the data volume, or grow it",
            Self::SystemError => "see the message",
        }
    }

    /// Whether the same request may succeed later though nobody changed anything declared.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::GitFailed | Self::GitTimedOut | Self::VolumeFull | Self::SystemError => true,
            Self::ReflinkUnsupported
            | Self::CrossVolume
            | Self::PrimitiveMissing
            | Self::UrlUnsupported
            | Self::SourceMissing
            | Self::NotARepository
            | Self::UnbornHead
            | Self::ObjectFormatUnsupported
            | Self::PartialClone
            | Self::SubmodulesUnsupported
            | Self::BaseBranchMissing
            | Self::ForeignDirectory
            | Self::MarkerMismatch
            | Self::DataUnreachable
            | Self::GitMissing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn every_errno_has_its_reason() {
        for (errno, reason) in [
            (Errno::OPNOTSUPP, ReasonCode::ReflinkUnsupported),
            (Errno::NOTTY, ReasonCode::ReflinkUnsupported),
            (Errno::INVAL, ReasonCode::ReflinkUnsupported),
            (Errno::XDEV, ReasonCode::CrossVolume),
            (Errno::NOSYS, ReasonCode::PrimitiveMissing),
            (Errno::PERM, ReasonCode::PrimitiveMissing),
            (Errno::NOSPC, ReasonCode::VolumeFull),
            (Errno::DQUOT, ReasonCode::VolumeFull),
            (Errno::IO, ReasonCode::SystemError),
        ] {
            assert_eq!(ReasonCode::of_clone(&errno.into()), reason, "{errno}");
        }
        assert_eq!(
            ReasonCode::of_clone(&io::Error::other("x")),
            ReasonCode::SystemError
        );
    }

    #[test]
    fn every_reason_has_a_remedy_and_a_stable_name() {
        for reason in ReasonCode::iter() {
            assert!(!reason.remedy().is_empty(), "{reason}");
            assert_eq!(reason.to_string().parse(), Ok(reason));
        }
        assert_eq!(
            ReasonCode::ReflinkUnsupported.to_string(),
            "reflinkUnsupported"
        );
    }
}
