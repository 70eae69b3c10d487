//! The end of a run: what its worktrees hold, what it is called, and one transaction.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::classify::{Exit, Facts, classify};
use super::registry::{DispatchError, Shared};
use super::transcript::{Fold, continuation_summary};
use crate::adapter::ConfigFile;
use crate::model::chain::chain;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::RunId;
use crate::model::run::{EndReason, RunTree};
use crate::model::worktree::ObjectId;
use crate::model::worktree::UserIds;
use crate::store::{RunClose, TreeResult};
use crate::task::blocking;
use crate::worktree::inspect::inspect;
use crate::worktree::unlock::unlock;

/// How a run's process came to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    /// Who ended it.
    pub end_reason: EndReason,
    /// How it went.
    pub exit: Exit,
}

/// What the trees of a run hold, before it begins or after it ended. A tree that can't be looked at
/// has no head and no dirt on record: not known is not clean.
pub(super) async fn inspect_trees(
    shared: &Shared,
    trees: &[RunTree],
) -> Result<Vec<TreeResult>, DispatchError> {
    let (layout, user) = (shared.settings.layout.clone(), shared.settings.user());
    let trees = trees.to_vec();
    let look = move || {
        trees
            .iter()
            .map(|tree| {
                let seen = tree
                    .base
                    .parse::<ObjectId>()
                    .map_err(|error| chain(&error))
                    .and_then(|base| {
                        inspect(&layout, Path::new(&tree.path), &base, user)
                            .map_err(|error| chain(&error))
                    });
                match seen {
                    Ok(facts) => TreeResult {
                        worktree: tree.id,
                        is_dirty: Some(facts.is_dirty()),
                        head: facts.head.map(|head| head.to_string()),
                    },
                    Err(message) => {
                        tracing::warn!(tree = tree.path, message, "worktree not inspected");
                        TreeResult {
                            worktree: tree.id,
                            head: None,
                            is_dirty: None,
                        }
                    }
                }
            })
            .collect()
    };
    Ok(blocking("inspect worktrees", look).await?)
}

/// Takes away what a git that was killed with the run has left locked, so that the next run can
/// commit. To be called when nothing of the run is alive.
async fn unlock_trees(shared: &Shared, trees: &[RunTree]) -> Result<(), DispatchError> {
    let (user, trees) = (shared.settings.user(), trees.to_vec());
    let free = move || {
        for tree in &trees {
            match unlock(Path::new(&tree.path), user) {
                Ok(0) => {}
                Ok(count) => tracing::info!(tree = tree.path, count, "removed locks of git"),
                Err(error) => tracing::warn!(tree = tree.path, %error, "locks of git not removed"),
            }
        }
    };
    Ok(blocking("unlock worktrees", free).await?)
}

/// Whether a tree is known to differ from how the run found it.
fn has_changed(before: &[TreeResult], after: &[TreeResult]) -> bool {
    after.iter().any(|after| {
        let before = before
            .iter()
            .find(|before| before.worktree == after.worktree);
        let head_moved = after.head.is_some() && before.is_some_and(|it| it.head != after.head);
        let got_dirty = after.is_dirty == Some(true)
            && before.is_some_and(|before| before.is_dirty == Some(false));
        head_moved || got_dirty
    })
}

/// What is closed: the run, as its record and its task know it.
pub(super) struct Closing<'a> {
    pub run: RunId,
    pub ending: Ending,
    pub fold: Fold,
    pub trees: &'a [RunTree],
    pub before: &'a [TreeResult],
    pub silence: std::time::Duration,
    /// Which prices held; none where nothing was priced by us.
    pub price_table: Option<String>,
}

/// Looks at the trees, classifies, and closes the row with all that belongs to it. Nothing of the
/// run may be alive.
pub(super) async fn close(shared: &Shared, closing: Closing<'_>) -> Result<(), DispatchError> {
    let Closing {
        run,
        ending,
        mut fold,
        trees,
        before,
        silence,
        price_table,
    } = closing;
    unlock_trees(shared, trees).await?;
    let after = inspect_trees(shared, trees).await?;
    fold.close();
    let reply = fold.reply_text();
    let contract = shared.store.contract_of(run).await?;
    let outcome = classify(&Facts {
        end: ending.end_reason,
        exit: ending.exit,
        has_done: fold.has_done(),
        last_error: fold.last_error(),
        reply: &reply,
        has_changed_tree: has_changed(before, &after),
        contract,
        silence,
    });
    let continuation = outcome
        .is_retryable
        .then(|| continuation_summary(&fold, &[]));
    let transcript_json = serde_json::to_string(fold.segments()).ok();
    let close = RunClose {
        run,
        status: outcome.status,
        liveness: outcome.liveness,
        family: outcome.family,
        end_reason: outcome.end_reason,
        error_code: outcome.error_code,
        exit_code: ending.exit.code,
        signal: ending.exit.signal,
        summary: Some(outcome.summary),
        usage: *fold.usage(),
        model: fold.model().map(ToOwned::to_owned),
        price_table,
        reply: Some(reply),
        transcript_json,
        trees: after,
        continuation,
        ended_at: shared.clock.now(),
    };
    let closed = shared.store.close_run(close).await?;
    crash_point(CrashPoint::RunClosed);
    tracing::info!(%run, ?closed, status = %outcome.status, liveness = %outcome.liveness, "run over");
    let run_dir = shared.run_dir(run);
    if let Err(error) = blocking("remove run directory", move || remove_run_dir(&run_dir)).await? {
        tracing::warn!(%run, %error, "run directory left behind");
    }
    (shared.on_change)("run closed");
    Ok(())
}

/// The directories of one run.
#[derive(Clone, Debug)]
pub(super) struct RunDirs {
    /// The run user's home.
    pub home: PathBuf,
    /// The run user's place for temporary files.
    pub tmp: PathBuf,
    /// Generated configuration of its program, which the run user can only read.
    pub config: PathBuf,
}

/// Makes the run's own directory, with a home and a place for temporary files, both the run user's.
pub(super) fn make_run_dir(path: &Path, user: UserIds) -> io::Result<RunDirs> {
    remove_run_dir(path)?;
    DirBuilder::new().mode(0o700).create(path)?;
    let (home, tmp, config) = (path.join("home"), path.join("tmp"), path.join("config"));
    for directory in [&home, &tmp] {
        DirBuilder::new().mode(0o700).create(directory)?;
        own(directory, user)?;
    }
    DirBuilder::new().mode(0o711).create(&config)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o711))?;
    Ok(RunDirs { home, tmp, config })
}

/// Writes generated configuration, for the run user to read and for no one else.
pub(super) fn write_config(
    directory: &Path,
    files: &[ConfigFile],
    user: UserIds,
) -> io::Result<()> {
    for ConfigFile { name, text } in files {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(directory.join(name))?;
        file.write_all(text.as_bytes())?;
        if rustix::process::geteuid().is_root() {
            // By the group, so that it is not the run user's to change.
            std::os::unix::fs::fchown(&file, None, Some(user.gid))?;
            file.set_permissions(Permissions::from_mode(0o440))?;
        }
    }
    Ok(())
}

/// Gives an empty directory of ours to the run user, where that is somebody else.
fn own(directory: &Path, user: UserIds) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

/// Removes the run's own directory, if it is there. Links in it are not followed.
fn remove_run_dir(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
