//! Finding an agent's program.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::LaunchError;

/// What a path turned out to be.
enum Found {
    /// A file that may be executed.
    Program,
    /// Something else.
    Other,
    /// Nothing.
    Nothing,
}

/// The absolute path of `command`: itself, or a file of that name in a directory of
/// `search_path`, the first that can be executed. A relative path is refused, and so are relative
/// directories of the search path, for both would be read in the agent's own working directory.
pub(super) fn resolve(command: &str, search_path: &str) -> Result<PathBuf, LaunchError> {
    let not_found = |looked_in: &str| LaunchError::ProgramNotFound {
        command: command.to_owned(),
        looked_in: looked_in.to_owned(),
    };
    if command.starts_with('/') {
        let path = PathBuf::from(command);
        return match look(&path)? {
            Found::Program => Ok(path),
            Found::Other => Err(LaunchError::ProgramNotExecutable { path }),
            Found::Nothing => Err(not_found(command)),
        };
    }
    if command.contains('/') {
        return Err(LaunchError::ProgramRelative {
            command: command.to_owned(),
        });
    }
    if command.is_empty() {
        return Err(not_found(search_path));
    }
    // As a shell does, go on after a candidate that is no use, and report the first such one.
    let mut first_obstacle = None;
    for directory in search_path.split(':').filter(|dir| dir.starts_with('/')) {
        let path = Path::new(directory).join(command);
        let obstacle = match look(&path) {
            Ok(Found::Program) => return Ok(path),
            Ok(Found::Nothing) => continue,
            Ok(Found::Other) => LaunchError::ProgramNotExecutable { path },
            Err(error) => error,
        };
        first_obstacle.get_or_insert(obstacle);
    }
    Err(first_obstacle.unwrap_or_else(|| not_found(search_path)))
}

/// The system knows no argument with a NUL byte.
pub(super) fn refuse_nul(argv: &[String]) -> Result<(), LaunchError> {
    match argv.iter().position(|arg| arg.contains('\0')) {
        None => Ok(()),
        Some(at) => Err(LaunchError::NotRepresentable {
            what: format!("argument {at}"),
        }),
    }
}

fn look(path: &Path) -> Result<Found, LaunchError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match path.metadata() {
        Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => Ok(Found::Program),
        Ok(_) => Ok(Found::Other),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(Found::Nothing),
        Err(source) => Err(LaunchError::ProgramNotVisible {
            path: path.to_owned(),
            source,
        }),
    }
}
