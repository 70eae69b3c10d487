//! The makers of a tree's content: [`skeleton`] writes a self-contained `.git`, [`clone`] fills
//! the tree from a seed by cloning file after file, [`checkout`] by letting git write it out.
//! [`index`] reads and restamps git's index, so that a cloned tree is clean without being read.
//!
//! All of them write into a directory that nobody uses yet; naming it is the caller's last step.

pub(super) mod checkout;
pub(super) mod clone;
pub(super) mod index;
pub(super) mod skeleton;

use std::io;
use std::path::PathBuf;

use crate::git::command::GitError;

/// Why a tree's content could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Something of ours could not be read.
    #[error("read {}", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file, link or directory of the new tree could not be made.
    #[error("make {}", path.display())]
    Make {
        /// What, from the root of the tree.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file could not be cloned.
    #[error("clone {}", path.display())]
    Clone {
        /// What, from the root of the tree.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The seed's index can't be restamped.
    #[error("read the index of the seed")]
    Index {
        /// What is wrong with it.
        #[source]
        source: index::IndexError,
    },
    /// The run user's identity could not be taken on.
    #[error("act as the run user")]
    Identity {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Git could not write the tree out.
    #[error("check the tree out")]
    Git {
        /// What git said.
        #[source]
        source: GitError,
    },
}

/// What `run_as` itself may say.
impl From<io::Error> for EngineError {
    fn from(source: io::Error) -> Self {
        Self::Identity { source }
    }
}
