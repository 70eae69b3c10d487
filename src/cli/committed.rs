//! Manifests from git objects, at paths of the working directory: what a commit holds where those
//! paths lie, without a checkout.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::error::{CliError, CliResult, Kind, OrFail};
use super::files::{STDIN, joined, shown_directory};
use crate::git::objects::{Objects, TreeLimits};
use crate::manifest::{ManifestFile, is_manifest_path};
use crate::model::worktree::ObjectId;

/// Of one file more than a manifest may have, so that its finding says so.
const LIMITS: TreeLimits = TreeLimits {
    files_max: 100_000,
    file_bytes_max: 4 << 20,
};

/// A path, as it was typed and within its repository, with `/`.
struct Place {
    typed: String,
    within: String,
}

/// The manifests at `paths`, relative to `directory`, as `rev` has them.
///
/// # Errors
/// When a path is in no repository, the repository has no such revision, or that has no such path.
pub(crate) fn read(paths: &[String], rev: &str, directory: &Path) -> CliResult<Vec<ManifestFile>> {
    read_with(paths, rev, directory, Absent::Fails)
}

/// The same, where a path that `rev` lacks has no manifests.
///
/// # Errors
/// When a path is in no repository, or the repository has no such revision.
pub(crate) fn read_some(
    paths: &[String],
    rev: &str,
    directory: &Path,
) -> CliResult<Vec<ManifestFile>> {
    read_with(paths, rev, directory, Absent::IsEmpty)
}

/// What a path means that the revision lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Fails,
    IsEmpty,
}

fn read_with(
    paths: &[String],
    rev: &str,
    directory: &Path,
    absent: Absent,
) -> CliResult<Vec<ManifestFile>> {
    let mut by_repository: BTreeMap<PathBuf, Vec<Place>> = BTreeMap::new();
    for path in paths {
        if path == STDIN {
            let message = "standard input is in no repository";
            return Err(CliError::new(Kind::Usage, message).hint("name files or directories"));
        }
        let (root, within) = locate(path, directory)?;
        let place = Place {
            typed: path.clone(),
            within,
        };
        by_repository.entry(root).or_default().push(place);
    }
    let mut files = BTreeMap::new();
    for (root, places) in by_repository {
        let found = files_of(&root, &places, rev, absent)?;
        files.extend(found);
    }
    Ok(files
        .into_iter()
        .map(|(path, bytes)| ManifestFile { path, bytes })
        .collect())
}

/// The repository that holds `path`, and where in it that is.
fn locate(path: &str, directory: &Path) -> CliResult<(PathBuf, String)> {
    let absolute = directory.join(path);
    let absolute = absolute
        .canonicalize()
        .unwrap_or_else(|_absent| without_dots(&absolute));
    for root in absolute.ancestors() {
        let is_checkout = root.join(".git").exists();
        if !is_checkout && Objects::open(root).is_err() {
            continue;
        }
        let within = absolute.strip_prefix(root).unwrap_or(Path::new(""));
        return Ok((root.to_owned(), within.to_string_lossy().into_owned()));
    }
    Err(CliError::new(
        Kind::Usage,
        format!("no git repository holds {path}"),
    ))
}

/// The path without `.` and `..`, where there is nothing to ask.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                plain.push(component);
            }
        }
    }
    plain
}

/// The commit that `rev` stands for now in the repository at `root`.
///
/// # Errors
/// When there is none, or more than one.
pub(crate) fn commit(objects: &Objects, root: &Path, rev: &str) -> CliResult<ObjectId> {
    let found = objects.revision(rev);
    let found = found.map_err(|error| CliError::failed_to(Kind::Usage, &error))?;
    found.ok_or_else(|| {
        CliError::new(
            Kind::Usage,
            format!("there is no revision '{rev}' in {}", root.display()),
        )
    })
}

fn files_of(
    root: &Path,
    places: &[Place],
    rev: &str,
    absent: Absent,
) -> CliResult<BTreeMap<String, Vec<u8>>> {
    let failed = |error: &dyn std::error::Error| CliError::failed_to(Kind::Usage, error);
    let objects = Objects::open(root).map_err(|error| failed(&error))?;
    let commit = commit(&objects, root, rev)?;
    let seen = RefCell::new(BTreeSet::new());
    let keep = |path: &[u8]| {
        let Ok(path) = std::str::from_utf8(path) else {
            return false;
        };
        let mut is_kept = false;
        for (index, place) in places.iter().enumerate() {
            if let Some(below) = below(path, &place.within) {
                seen.borrow_mut().insert(index);
                is_kept |= below.is_empty() || is_manifest_path(below);
            }
        }
        is_kept
    };
    let found = objects
        .files(&commit, "", keep, LIMITS)
        .map_err(|error| failed(&error))?;
    let missing = (0..places.len()).find(|index| !seen.borrow().contains(index));
    if let (Some(index), Absent::Fails) = (missing, absent)
        && !places[index].within.is_empty()
    {
        let message = format!("there is no {} in {rev}", places[index].typed);
        return Err(CliError::new(Kind::Usage, message));
    }
    let mut files = BTreeMap::new();
    for file in found {
        let path = String::from_utf8(file.path);
        let path = path.or_fail(Kind::Internal, "failed to name a file that was kept")?;
        for place in places {
            let shown = match below(&path, &place.within) {
                Some("") => place.typed.clone(),
                Some(below) if is_manifest_path(below) => {
                    joined(shown_directory(&place.typed), below)
                }
                Some(_) | None => continue,
            };
            files.insert(shown, file.bytes.clone());
        }
    }
    Ok(files)
}

/// What of `path` lies below `place`: nothing of `place` itself.
fn below<'p>(path: &'p str, place: &str) -> Option<&'p str> {
    if place.is_empty() {
        return Some(path);
    }
    let rest = path.strip_prefix(place)?;
    if rest.is_empty() {
        return Some(rest);
    }
    rest.strip_prefix('/')
}
