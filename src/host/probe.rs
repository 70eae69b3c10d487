//! The checks, one function each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use strum::{Display, EnumIter};

use crate::git::command;
use crate::process::cgroup::find_parent;
use crate::worktree::{probe, source};

/// The oldest git whose options we use.
const GIT_MIN: (u32, u32) = (2, 35);
/// Where Debian and others keep what only root needs.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Display, EnumIter)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum CheckName {
    /// The kernel's release.
    Kernel,
    /// The git program.
    Git,
    /// Cloning files in the data directory.
    Reflink,
    /// A repo's source, as a path.
    Source,
    /// Making an XFS volume.
    MkfsXfs,
    /// The sandbox program.
    Bwrap,
    /// Control groups of our own.
    Cgroup,
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Verdict {
    /// It is there and works.
    Good,
    /// It is not there; something optional does not work.
    Absent,
    /// It does not work; the daemon can't do its main job so.
    Bad,
}

/// One check's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was checked.
    pub check: CheckName,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found: a version, a path, a reason code.
    pub detail: String,
    /// What to do about it; none when it is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn good(check: CheckName, detail: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Good,
            detail: detail.into(),
            remedy: None,
        }
    }

    fn poor(
        check: CheckName,
        verdict: Verdict,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            verdict,
            detail: detail.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Everything that was found, in the order of [`CheckName`]; sources in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HostReport {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl HostReport {
    /// The finding of a check that is made once.
    pub fn finding(&self, check: CheckName) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.check == check)
    }

    /// Whether nothing is [`Verdict::Bad`].
    pub fn is_good(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict != Verdict::Bad)
    }

    /// Whether files can be cloned where the data directory is or will be.
    pub fn has_reflink(&self) -> bool {
        let finding = self.finding(CheckName::Reflink);
        finding.is_some_and(|finding| finding.verdict == Verdict::Good)
    }
}

/// Looks at the host: `data` is where the data directory is or will be, `sources` the operator's
/// repositories, `path` the `PATH` in which agent programs are looked for.
pub fn probe_host(data: &Path, sources: &[PathBuf], path: &OsStr) -> HostReport {
    let mut findings = vec![kernel(), git(), reflink(data)];
    findings.extend(sources.iter().map(|path| check_source(path)));
    findings.push(tool(
        CheckName::MkfsXfs,
        "mkfs.xfs",
        "install xfsprogs to make a reflink volume with `homeostat volume create`",
    ));
    findings.push(tool(
        CheckName::Bwrap,
        "bwrap",
        "install bubblewrap to run agents in a sandbox",
    ));
    findings.push(cgroup());
    for (check, program, remedy) in [
        (
            CheckName::Claude,
            "claude",
            "install Claude Code to use an Adapter of type claudeCode",
        ),
        (
            CheckName::Codex,
            "codex",
            "install Codex to use an Adapter of type codex",
        ),
        (
            CheckName::Gemini,
            "gemini",
            "install Gemini CLI to use an Adapter of type gemini",
        ),
    ] {
        findings.push(match find(program, path) {
            Some(found) => Finding::good(check, found.display().to_string()),
            None => Finding::poor(check, Verdict::Absent, "not on PATH", remedy),
        });
    }
    HostReport { findings }
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    // pidfd, openat2 and clone3 are all there from here on.
    let needed = (5, 6);
    if version_of(&release).is_some_and(|version| version >= needed) {
        Finding::good(CheckName::Kernel, release)
    } else {
        let remedy = "run Linux 5.6 or later";
        Finding::poor(CheckName::Kernel, Verdict::Bad, release, remedy)
    }
}

fn git() -> Finding {
    let remedy = format!("install git {}.{} or later", GIT_MIN.0, GIT_MIN.1);
    match command::version() {
        Ok(version) if version_of(&version).is_some_and(|found| found >= GIT_MIN) => {
            Finding::good(CheckName::Git, version)
        }
        Ok(version) => Finding::poor(CheckName::Git, Verdict::Bad, version, remedy),
        Err(error) => Finding::poor(
            CheckName::Git,
            Verdict::Bad,
            format!("can't {error}"),
            remedy,
        ),
    }
}

/// The first two numbers of `6.1.0-13-amd64` or `2.47.3`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

fn reflink(data: &Path) -> Finding {
    let there = data.ancestors().find(|path| path.is_dir());
    let there = there.unwrap_or(Path::new("/"));
    match probe::probe(there) {
        Ok(()) => Finding::good(CheckName::Reflink, there.display().to_string()),
        Err(refusal) => Finding::poor(
            CheckName::Reflink,
            Verdict::Absent,
            refusal.reason.to_string(),
            refusal.reason.remedy(),
        ),
    }
}

fn check_source(path: &Path) -> Finding {
    let checked = source::check(path).and_then(|source| source.tree(None));
    match checked {
        Ok(_tree) => Finding::good(CheckName::Source, path.display().to_string()),
        Err(error) => {
            let remedy = error.reason().remedy();
            Finding::poor(
                CheckName::Source,
                Verdict::Bad,
                format!("can't {error}"),
                remedy,
            )
        }
    }
}

fn tool(check: CheckName, program: &str, remedy: &str) -> Finding {
    match find(program, OsStr::new(SYSTEM_PATH)) {
        Some(found) => Finding::good(check, found.display().to_string()),
        None => Finding::poor(check, Verdict::Absent, "not installed", remedy),
    }
}

/// Where `program` is on `path`.
fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    let path: OsString = path.to_owned();
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|file| {
            let metadata = fs::metadata(file);
            metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// As the daemon tries it for its runs.
fn cgroup() -> Finding {
    let remedy = "run under systemd with `Delegate=yes`, or as root on a host with cgroup v2";
    match find_parent() {
        Some(group) => Finding::good(CheckName::Cgroup, group.display().to_string()),
        None => {
            let detail = "no cgroup v2 group that runs could have their own below";
            Finding::poor(CheckName::Cgroup, Verdict::Absent, detail, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (text, version) in [
            ("6.18.44-fc", Some((6, 18))),
            ("2.9", Some((2, 9))),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(version_of(text), version, "{text}");
        }
        assert!(version_of("2.9") < Some(GIT_MIN));
    }

    #[test]
    fn every_check_is_made_and_every_poor_one_has_a_remedy() {
        let root = tempfile::Builder::new().tempdir().unwrap();
        let sources = [root.path().join("none")];
        let report = probe_host(
            &root.path().join("data"),
            &sources,
            OsStr::new("/nonexistent"),
        );
        for check in CheckName::iter() {
            let finding = report.finding(check).unwrap();
            assert_eq!(
                finding.verdict != Verdict::Good,
                finding.remedy.is_some(),
                "{check}"
            );
        }
        let source = report.finding(CheckName::Source).unwrap();
        assert_eq!(source.verdict, Verdict::Bad);
        assert!(!report.is_good());
        let claude = report.finding(CheckName::Claude).unwrap();
        assert_eq!(claude.verdict, Verdict::Absent);
        assert!(!root.path().join("data").exists());
    }

    #[test]
    fn a_program_is_found_where_it_can_be_run() {
        let root = tempfile::Builder::new().tempdir().unwrap();
        let file = root.path().join("codex");
        fs::write(&file, "").unwrap();
        assert_eq!(find("codex", root.path().as_os_str()), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("codex", root.path().as_os_str()), Some(file));
    }
}
