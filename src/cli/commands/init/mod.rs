//! `init`: a config repository that fits this host.

mod scaffold;

use std::fs;
use std::path::{Path, PathBuf};

use scaffold::{Facts, Repo, Tool};

use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::host::Host;
use crate::cli::ui::Ui;
use crate::git::command::{Git, GitError};
use crate::host::{CheckName, Verdict, probe_host};
use crate::manifest::{self, ManifestFile};
use crate::model::units::Name;

/// Write a config repository that fits this host
///
/// It is valid as it is, and does something: the daemon runs its first ticket.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Write it to this directory, which is empty or not there
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Declare this local repository
    #[arg(long, value_name = "PATH")]
    repo: Vec<PathBuf>,
}

/// Writes it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let directory = &args.directory;
    require_empty(directory)?;
    let repos = args
        .repo
        .iter()
        .map(|path| repo(path))
        .collect::<CliResult<Vec<_>>>()?;
    let facts = look(repos, host)?;
    let files = scaffold::files(&facts);
    check(&files)?;
    for (path, text) in &files {
        write(&directory.join(path), text)?;
    }
    commit(directory).map_err(|error| {
        CliError::caused(Kind::Usage, "failed to make it a git repository", &error)
            .hint("the files are written; `git init` and `git commit` complete it")
    })?;
    for (path, _) in &files {
        ui.line(directory.join(path).display())?;
    }
    ui.flush()?;
    ui.say(scaffold::next(directory, &facts));
    Ok(Exit::Fine)
}

fn require_empty(directory: &Path) -> CliResult<()> {
    let failed = || format!("failed to look into {}", directory.display());
    let mut entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CliError::caused(Kind::Usage, failed(), &error)),
    };
    if entries.next().is_none() {
        return Ok(());
    }
    let message = format!("{} is not empty", directory.display());
    Err(CliError::new(Kind::Refused, message).hint("name a directory that is empty or not there"))
}

/// A repo that is named after its directory.
fn repo(path: &Path) -> CliResult<Repo> {
    let failed = || format!("failed to find the repository {}", path.display());
    let path = fs::canonicalize(path).or_fail(Kind::Usage, failed())?;
    let file_name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let stem = file_name.strip_suffix(".git").unwrap_or(file_name);
    let name: String = stem
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let name: Name = name
        .trim_matches('-')
        .parse()
        .or_fail(Kind::Usage, failed())?;
    let source = path.to_str().ok_or_else(|| {
        CliError::new(
            Kind::Usage,
            format!("the path {} is not UTF-8", path.display()),
        )
    })?;
    Ok(Repo {
        name,
        source: source.to_owned(),
    })
}

/// What the host can do, as far as the files say it.
fn look(repos: Vec<Repo>, host: &Host) -> CliResult<Facts> {
    let paths = host.client()?;
    let report = probe_host(&paths.data_dir, &[], host.search_path());
    let agents = [CheckName::Claude, CheckName::Codex, CheckName::Gemini];
    let tools = agents.iter().filter_map(|check| report.finding(*check));
    let tools = tools
        .filter(|finding| finding.verdict == Verdict::Good)
        .map(|finding| Tool {
            name: finding.check.to_string(),
            path: finding.detail.clone(),
        });
    Ok(Facts {
        data_dir: paths.data_dir.clone(),
        has_reflink: report.has_reflink(),
        reflink: report
            .finding(CheckName::Reflink)
            .map(|finding| finding.detail.clone())
            .unwrap_or_default(),
        tools: tools.collect(),
        repos,
    })
}

/// What is written must be valid: anything else is a bug of this program.
fn check(files: &[(String, String)]) -> CliResult<()> {
    let manifests: Vec<ManifestFile> = files
        .iter()
        .filter(|(path, _)| manifest::is_manifest_path(path))
        .map(|(path, text)| ManifestFile {
            path: path.clone(),
            bytes: text.clone().into_bytes(),
        })
        .collect();
    let loaded = manifest::load(&manifests);
    match loaded.diagnostics.first() {
        None => Ok(()),
        Some(fault) => Err(CliError::new(
            Kind::Internal,
            format!("what init would write is not valid: {}", fault.message),
        )),
    }
}

fn write(path: &Path, text: &str) -> CliResult<()> {
    let failed = || format!("failed to write {}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).or_fail(Kind::Usage, failed())?;
    }
    fs::write(path, text).or_fail(Kind::Usage, failed())
}

fn commit(directory: &Path) -> Result<(), GitError> {
    Git::new(directory, "init")
        .args(["--quiet", "--initial-branch=main"])
        .run()?;
    Git::new(directory, "add").args(["--all"]).run()?;
    Git::new(directory, "commit")
        .args(["--quiet", "--message", "Declare a fleet of one agent"])
        .setting("user.name=homeostat init")
        .setting("user.email=init@homeostat.invalid")
        .run()?;
    Ok(())
}
