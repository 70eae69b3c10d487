//! What an agent's program keeps between the runs of one conversation.
//!
//! ```text
//! <space>/sessions/<agent uid>/<conversation>/    0711  ours
//!   state/                                        0700  the program's, fresh for each run
//!   past/                                               the run's before, while it is sorted
//! ```
//!
//! Only what the program needs to resume is carried from one run to the next. The rest could be
//! configuration, and no run may configure the next one.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::layout::{Layout, PASSAGE, ensure_directory};
use super::trash::discard;
use crate::model::id::{ConversationId, Uid};
use crate::model::worktree::UserIds;

/// Whose directory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// The space's workspace.
    pub workspace: Uid,
    /// The space. Its root must be there, and goes with everything in it.
    pub space: Uid,
    /// The agent.
    pub agent: Uid,
    /// The conversation.
    pub conversation: ConversationId,
    /// Who owns what is in it.
    pub user: UserIds,
}

/// Makes the program's directory for a new run, with those directories of the run before in it that
/// `carried` names. No run of the agent in this conversation may be alive.
///
/// # Errors
/// What the system said. Can be repeated after it, and after a crash.
pub fn open_session(
    layout: &Layout,
    request: SessionRequest,
    carried: &[&str],
) -> io::Result<PathBuf> {
    let root = layout.space(request.workspace, request.space);
    if !root.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut own = root.join("sessions");
    let (agent, conversation) = (request.agent.to_string(), request.conversation.to_string());
    for part in ["", &agent, &conversation] {
        own.push(part);
        ensure_directory(&own, PASSAGE)?;
    }
    let (state, past) = (own.join("state"), own.join("past"));
    if !is_directory(&past)? && is_directory(&state)? {
        fs::rename(&state, &past)?;
    }
    make_state(&state, request.user)?;
    if is_directory(&past)? {
        for name in carried {
            let (from, to) = (past.join(name), state.join(name));
            if is_directory(&from)? && !is_directory(&to)? {
                fs::rename(&from, &to)?;
            }
        }
        discard(layout, &past)?;
    }
    Ok(state)
}

/// Makes the directory if it isn't there. Its parent is ours, so the name can't be swapped.
fn make_state(path: &Path, user: UserIds) -> io::Result<()> {
    if !is_directory(path)? {
        DirBuilder::new().mode(0o700).create(path)?;
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

/// Whether a directory is there. A link to one is none.
fn is_directory(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn request(space: Uid) -> SessionRequest {
        SessionRequest {
            workspace: Uid::derived(&["w"]),
            space,
            agent: Uid::derived(&["a"]),
            conversation: ConversationId::derived(&["c"]),
            user: UserIds {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            },
        }
    }

    #[test]
    fn a_run_finds_what_is_carried_and_nothing_else() {
        let data = tempfile::TempDir::new().unwrap();
        let layout = Layout::new(data.path());
        layout.ensure().unwrap();
        let request = request(Uid::derived(&["s"]));
        let open = || open_session(&layout, request, &["projects", "linked"]);
        assert_eq!(open().unwrap_err().kind(), io::ErrorKind::NotFound);
        let root = layout.space(request.workspace, request.space);
        fs::create_dir_all(&root).unwrap();

        let state = open().unwrap();
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        fs::create_dir(state.join("projects")).unwrap();
        fs::write(state.join("projects/one"), "said").unwrap();
        fs::write(state.join("settings.json"), "{}").unwrap();
        symlink("/", state.join("linked")).unwrap();

        let names = |state: &Path| {
            let entries = fs::read_dir(state).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            names.collect::<Vec<_>>()
        };
        assert_eq!(open().unwrap(), state);
        assert_eq!(names(&state), ["projects"]);
        let said = fs::read_to_string(state.join("projects/one")).unwrap();
        assert_eq!(said, "said");

        // A daemon that died half way leaves the old one beside a new one.
        let past = state.with_file_name("past");
        fs::rename(&state, &past).unwrap();
        assert_eq!(open().unwrap(), state);
        assert_eq!(names(&state), ["projects"]);
        assert!(!past.exists());
    }
}
