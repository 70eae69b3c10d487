//! Manifests from paths on the command line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::error::{CliError, CliResult, Kind, OrFail};
use crate::manifest::{ManifestFile, is_manifest_path};
use crate::yaml::limits::{DEPTH_MAX, FILE_BYTES_MAX};

/// Means standard input.
pub(super) const STDIN: &str = "-";

/// The name that findings in standard input have.
const STDIN_NAME: &str = "<stdin>";

/// The manifests at `paths`: files as they are, and the manifests in directories. A file that is
/// reached twice is read once.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn read(paths: &[String]) -> CliResult<Vec<ManifestFile>> {
    let mut files = BTreeMap::new();
    for path in paths {
        if path == STDIN {
            let bytes =
                bounded(io::stdin()).or_fail(Kind::Usage, "failed to read standard input")?;
            files.insert(STDIN_NAME.to_owned(), bytes);
            continue;
        }
        let kind = fs::metadata(path).or_fail(Kind::Usage, format!("failed to read {path}"))?;
        if kind.is_dir() {
            walk(Path::new(path), shown_directory(path), "", 0, &mut files)?;
        } else {
            files.insert(path.clone(), read_file(Path::new(path))?);
        }
    }
    Ok(files
        .into_iter()
        .map(|(path, bytes)| ManifestFile { path, bytes })
        .collect())
}

/// Reads the manifests below `directory`, which is `within` the directory that was named and that
/// findings show as `shown`. Links are followed to files, not to directories.
fn walk(
    directory: &Path,
    shown: &str,
    within: &str,
    depth: usize,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> CliResult<()> {
    let failed = || format!("failed to read {}", directory.display());
    if depth > DEPTH_MAX {
        let message = format!(
            "{} lies more than {DEPTH_MAX} directories deep",
            directory.display()
        );
        return Err(CliError::new(Kind::Usage, message));
    }
    let entries = fs::read_dir(directory).or_fail(Kind::Usage, failed())?;
    for entry in entries {
        let entry = entry.or_fail(Kind::Usage, failed())?;
        let Some(name) = entry.file_name().to_str().map(ToOwned::to_owned) else {
            continue;
        };
        let is_directory = entry.file_type().or_fail(Kind::Usage, failed())?.is_dir();
        let within = joined(within, &name);
        if is_directory && !name.starts_with('.') {
            walk(&entry.path(), shown, &within, depth + 1, files)?;
        } else if !is_directory && is_manifest_path(&within) {
            files.insert(joined(shown, &within), read_file(&entry.path())?);
        }
    }
    Ok(())
}

/// How findings begin the paths of what is in a directory that was named.
pub(super) fn shown_directory(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "." => "",
        shown => shown,
    }
}

/// `name` in the directory `parent`, which may be empty.
pub(super) fn joined(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        return name.to_owned();
    }
    format!("{parent}/{name}")
}

fn read_file(path: &Path) -> CliResult<Vec<u8>> {
    File::open(path)
        .and_then(bounded)
        .or_fail(Kind::Usage, format!("failed to read {}", path.display()))
}

/// At most one byte more than a manifest may have, so that the check says what is wrong.
fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader
        .take(u64::try_from(FILE_BYTES_MAX + 1).unwrap_or(u64::MAX))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
