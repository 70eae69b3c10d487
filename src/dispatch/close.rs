//! The end of a run: what its worktrees hold, what it is called, and one transaction.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::classify::{Exit, Facts, classify};
use super::registry::{DispatchError, Shared};
use super::transcript::{ChangedTree, Fold, continuation_summary};
use crate::adapter::{ConfigFile, SESSION_NOT_FOUND};
use crate::model::chain::chain;
use crate::model::crash::{CrashPoint, crash_point};
use crate::model::id::RunId;
use crate::model::run::{EndReason, RunTree};
use crate::model::worktree::ObjectId;
use crate::model::worktree::UserIds;
use crate::store::{RunClose, TreeResult};
use crate::task::blocking;
use crate::worktree::inspect::inspect;
use crate::worktree::layout::Layout;
use crate::worktree::trash::discard;
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
    let looked = look_at(shared, trees).await?;
    Ok(looked.into_iter().map(|looked| looked.result).collect())
}

/// A tree, and paths in it that are not committed.
pub(super) struct Looked {
    pub(super) result: TreeResult,
    pub(super) changed: Vec<String>,
}

/// Looks at each of the trees.
pub(super) async fn look_at(
    shared: &Shared,
    trees: &[RunTree],
) -> Result<Vec<Looked>, DispatchError> {
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
                    Ok(facts) => Looked {
                        result: TreeResult {
                            worktree: tree.id,
                            is_dirty: Some(facts.is_dirty()),
                            head: facts.head.map(|head| head.to_string()),
                            dirt: facts.dirt,
                        },
                        changed: facts.changed,
                    },
                    Err(message) => {
                        tracing::warn!(tree = tree.path, message, "worktree not inspected");
                        Looked {
                            result: TreeResult {
                                worktree: tree.id,
                                head: None,
                                is_dirty: None,
                                dirt: None,
                            },
                            changed: Vec::new(),
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

/// Whether a tree is known to differ from how the run found it: both looks at it succeeded, and
/// they saw another commit or other uncommitted changes.
fn has_changed(before: &[TreeResult], after: &TreeResult) -> bool {
    let before = before.iter().find(|it| it.worktree == after.worktree);
    before.is_some_and(|before| {
        before.is_dirty.is_some()
            && after.is_dirty.is_some()
            && (&before.head, &before.dirt) != (&after.head, &after.dirt)
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
    let after = look_at(shared, trees).await?;
    let is_changed: Vec<bool> = after
        .iter()
        .map(|after| has_changed(before, &after.result))
        .collect();
    fold.close();
    let contract = shared.store.contract_of(run).await?;
    let outcome = classify(&Facts {
        end: ending.end_reason,
        exit: ending.exit,
        has_done: fold.has_done(),
        last_error: fold.last_error(),
        last_text: fold.last_text(),
        has_changed_tree: is_changed.contains(&true),
        contract,
        silence,
    });
    if outcome.error_code.as_deref() == Some(SESSION_NOT_FOUND) {
        let forgotten = shared.store.forget_session_of(run).await?;
        tracing::info!(%run, ?forgotten, "the agent's program does not know its session");
    }
    let continuation = outcome.is_retryable.then(|| {
        let looked = trees.iter().zip(&after).zip(&is_changed);
        let changed = looked.filter(|(_, is_changed)| **is_changed);
        let changed = changed.map(|((tree, after), _)| ChangedTree {
            repo: &tree.repo_name,
            files: &after.changed,
        });
        continuation_summary(&fold, &changed.collect::<Vec<_>>())
    });
    let transcript_json = serde_json::to_string(fold.segments()).ok();
    let close = RunClose {
        run,
        status: outcome.status,
        liveness: outcome.liveness,
        family: outcome.family,
        end_reason: outcome.end_reason,
        error_code: outcome.error_code,
        is_retryable: outcome.is_retryable,
        exit_code: ending.exit.code,
        signal: ending.exit.signal,
        summary: Some(outcome.summary),
        usage: *fold.usage(),
        model: fold.model().map(ToOwned::to_owned),
        price_table,
        reply: Some(fold.reply_text()),
        transcript_json,
        trees: after.into_iter().map(|after| after.result).collect(),
        continuation,
        ended_at: shared.clock.now(),
    };
    let closed = shared.store.close_run(close).await?;
    crash_point(CrashPoint::RunClosed);
    tracing::info!(%run, ?closed, status = %outcome.status, liveness = %outcome.liveness, "run over");
    let (layout, run_dir) = (shared.settings.layout.clone(), shared.run_dir(run));
    let remove = move || remove_run_dir(&layout, &run_dir);
    if let Err(error) = blocking("remove run directory", remove).await? {
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
/// A run is launched once, and a start empties the scratch before: nothing of it is there yet.
pub(super) fn make_run_dir(path: &Path, user: UserIds) -> io::Result<RunDirs> {
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

/// Moves the run's own directory, if it is there, to the trash: what an agent made of it, however
/// deep and with whatever modes, is deleted from there.
fn remove_run_dir(layout: &Layout, path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => discard(layout, path),
    }
}

#[cfg(test)]
mod tests {
    use super::{has_changed, make_run_dir, remove_run_dir};
    use crate::model::id::{Uid, WorktreeId};
    use crate::model::worktree::UserIds;
    use crate::store::TreeResult;
    use crate::worktree::layout::Layout;

    /// A look at a tree: its head, and the fingerprint of what is not committed in it.
    fn seen(head: Option<&str>, dirt: Option<&str>) -> TreeResult {
        TreeResult {
            worktree: WorktreeId::of(Uid::derived(&["s"]), Uid::derived(&["r"])),
            head: head.map(ToOwned::to_owned),
            is_dirty: Some(dirt.is_some()),
            dirt: dirt.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn a_tree_has_changed_when_two_looks_at_it_differ() {
        let unseen = TreeResult {
            is_dirty: None,
            ..seen(None, None)
        };
        for (before, after, is_changed) in [
            (seen(Some("a"), None), seen(Some("a"), None), false),
            (seen(Some("a"), None), seen(Some("b"), None), true),
            (seen(None, None), seen(Some("a"), None), true),
            (seen(Some("a"), None), seen(Some("a"), Some("x")), true),
            (
                seen(Some("a"), Some("x")),
                seen(Some("a"), Some("x")),
                false,
            ),
            (seen(Some("a"), Some("x")), seen(Some("a"), Some("y")), true),
            (seen(Some("a"), Some("x")), seen(Some("a"), None), true),
            (unseen.clone(), seen(Some("a"), Some("x")), false),
            (seen(Some("a"), None), unseen.clone(), false),
        ] {
            let found = has_changed(std::slice::from_ref(&before), &after);
            assert_eq!(found, is_changed, "{before:?} {after:?}");
        }
        assert!(!has_changed(&[], &seen(Some("a"), Some("x"))));
    }

    #[test]
    fn a_run_directory_goes_to_the_trash_as_it_is() {
        let data = tempfile::TempDir::new().unwrap();
        let layout = Layout::new(data.path());
        layout.ensure().unwrap();
        let path = layout.build().join("run-1");
        let user = UserIds {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let home = make_run_dir(&path, user).unwrap().home;
        let mut deep = home;
        for _ in 0..200 {
            deep.push("deeper");
        }
        std::fs::create_dir_all(&deep).unwrap();
        // Twice: as after a crash in between.
        for _ in 0..2 {
            remove_run_dir(&layout, &path).unwrap();
            assert!(!path.exists());
            assert_eq!(std::fs::read_dir(layout.trash()).unwrap().count(), 1);
        }
    }
}
