//! The working root of a space, and the overlay directories of its agents.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, CWD, statat};

use super::layout::{LISTED, Layout, PASSAGE, ensure_directory};
use super::marker::{Marker, MarkerError, MarkerKind};
use super::run_as::run_as;
use super::seed::make_root;
use crate::model::id::Uid;
use crate::model::worktree::UserIds;

/// Why a space has no working root.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// A directory could not be made.
    #[error("make {}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its marker could not be written, or is another's.
    #[error("mark {}", path.display())]
    Mark {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: MarkerError,
    },
    /// Something that we did not make is there.
    #[error("use {}: homeostat did not make it", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// The run user can't get there.
    #[error("reach {} as uid {uid}", path.display())]
    Unreachable {
        /// Which.
        path: PathBuf,
        /// The run user.
        uid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Whose room, for whom, since when.
#[derive(Clone, Copy, Debug)]
pub struct SpaceRequest {
    /// The workspace.
    pub workspace: Uid,
    /// The space.
    pub space: Uid,
    /// Who owns what is in it.
    pub user: UserIds,
    /// For the marker.
    pub now: Timestamp,
}

/// Makes the root of a space if it isn't there, marked as ours. Answers with its absolute path.
///
/// # Errors
/// [`SpaceError`]. Can be repeated after any of them, and after a crash.
pub fn ensure_space_root(layout: &Layout, request: &SpaceRequest) -> Result<PathBuf, SpaceError> {
    let make = |path: &Path| {
        let path = path.to_owned();
        move |source| SpaceError::Make { path, source }
    };
    layout.ensure().map_err(make(layout.data()))?;
    let root = layout.space(request.workspace, request.space);
    let mark = |source| SpaceError::Mark {
        path: root.clone(),
        source,
    };
    for directory in [
        layout.workspace(request.workspace),
        layout.workspace(request.workspace).join("spaces"),
        root.clone(),
    ] {
        ensure_directory(&directory, PASSAGE).map_err(make(&directory))?;
    }
    match Marker::verify(MarkerKind::Space, &root, request.space) {
        Ok(_ours) => {}
        // Made by us a moment ago, or just before a crash: these uids are ours to name.
        Err(MarkerError::Unmarked { .. }) if is_empty(&root).map_err(make(&root))? => {
            let marker = Marker::new(MarkerKind::Space, request.space, request.user, request.now);
            marker.write(&root).map_err(mark)?;
        }
        Err(MarkerError::Unmarked { .. }) => return Err(SpaceError::Foreign { path: root }),
        Err(error) => return Err(mark(error)),
    }
    for directory in [root.join("repos"), root.join("agents")] {
        ensure_directory(&directory, LISTED).map_err(make(&directory))?;
    }
    reach(&root, request.user)?;
    Ok(root)
}

/// Makes the overlay directory of an agent in a space if it isn't there. Answers with its absolute
/// path. The space's root must be there.
///
/// # Errors
/// [`SpaceError`]. Can be repeated after any of them, and after a crash.
pub fn ensure_overlay(
    layout: &Layout,
    request: &SpaceRequest,
    agent: Uid,
) -> Result<PathBuf, SpaceError> {
    let path = layout.overlay(request.workspace, request.space, agent);
    let mark = |source| SpaceError::Mark {
        path: path.clone(),
        source,
    };
    let make = |source| SpaceError::Make {
        path: path.clone(),
        source,
    };
    match Marker::verify(MarkerKind::Overlay, &path, agent) {
        Ok(_ours) if path.is_dir() => return Ok(path),
        Ok(_ours) => {}
        Err(MarkerError::Unmarked { .. }) if !path.exists() => {
            let marker = Marker::new(MarkerKind::Overlay, agent, request.user, request.now);
            marker.write(&path).map_err(mark)?;
        }
        Err(MarkerError::Unmarked { .. }) => return Err(SpaceError::Foreign { path }),
        Err(error) => return Err(mark(error)),
    }
    make_root(&path, request.user).map_err(make)?;
    Ok(path)
}

fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(std::fs::read_dir(directory)?.next().is_none())
}

/// Whether the run user can get to a directory of ours; what stands above the data directory is
/// not ours to open up.
fn reach(path: &Path, user: UserIds) -> Result<(), SpaceError> {
    let seen = run_as(user, || {
        statat(CWD, path, AtFlags::empty()).map_err(io::Error::from)
    });
    seen.map(|_stat| ())
        .map_err(|source| SpaceError::Unreachable {
            path: path.to_owned(),
            uid: user.uid,
            source,
        })
}
