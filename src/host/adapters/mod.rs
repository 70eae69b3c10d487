//! Whether runs on an Adapter could start here: its program, as the run's user sees it, and the
//! credential that its model calls would use. `smoke` has one take a turn.
//!
//! Nothing is left behind: what a program writes goes into a directory that is removed.

mod model;
mod smoke;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use strum::Display;
use tempfile::TempDir;

pub use self::smoke::{Smoke, SmokeError};
use crate::adapter::claude_code::{self, Probe, ProbeError, VersionError};
use crate::adapter::{LaunchError, program_of};
use crate::credential::{CredentialStore, Credentials, Provider, Sources, StoreError, resolve};
use crate::model::chain::chain;
use crate::model::spec::{AdapterSpec, AdapterType, OutputFormat};
use crate::sandbox::RunIdentity;

/// What a program gets to answer one question.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// How an Adapter came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum AdapterVerdict {
    /// Its runs can start.
    Good,
    /// Its program can start; something else is to be seen to.
    Warning,
    /// Its program is not there.
    NotInstalled,
    /// Its program can't be used.
    Bad,
}

/// Something that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// What was found out about an Adapter, or about a type of which none need be declared.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdapterFinding {
    /// The Adapter's name; none for a type.
    pub adapter: Option<String>,
    /// Its type.
    pub r#type: AdapterType,
    /// How it came out.
    pub verdict: AdapterVerdict,
    /// Where its program is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Which version of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where the credential of its runs comes from, as their records name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// How one turn of it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoke: Option<Smoke>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// All findings: one for each type, then one for each Adapter.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct AdapterReport {
    /// The findings.
    pub findings: Vec<AdapterFinding>,
}

impl AdapterReport {
    /// Whether every declared Adapter can be used; where none is declared, every type.
    pub fn is_good(&self) -> bool {
        let has_declared = self.findings.iter().any(|it| it.adapter.is_some());
        self.findings
            .iter()
            .filter(|it| it.adapter.is_some() == has_declared)
            .all(|it| it.verdict <= AdapterVerdict::Warning)
    }
}

/// With what Adapters are tried.
#[derive(Debug)]
pub struct AdapterProbe<'a> {
    /// This program, of which the shim is a hidden subcommand.
    pub shim: &'a Path,
    /// The user that runs have.
    pub identity: RunIdentity,
    /// Where programs are found.
    pub search_path: &'a str,
    /// The environment that stands for the daemon's.
    pub process: &'a BTreeMap<OsString, OsString>,
    /// The daemon's data directory.
    pub data_dir: &'a Path,
    /// When.
    pub now: Timestamp,
}

impl AdapterProbe<'_> {
    /// Tries every type as it is without an Adapter that says otherwise, and the given Adapters.
    /// It blocks while programs answer.
    ///
    /// # Errors
    /// When there is no room for a directory to try them in.
    pub fn probe(&self, adapters: &[(String, AdapterSpec)]) -> io::Result<AdapterReport> {
        let stored = CredentialStore::new(self.data_dir).load();
        let scratch = Scratch::make(self.identity)?;
        let types = [AdapterType::Command, AdapterType::ClaudeCode];
        let bare = types.map(|r#type| (None, bare(r#type)));
        let declared = adapters.iter().cloned();
        let declared = declared.map(|(name, spec)| (Some(name), spec));
        let findings = bare.into_iter().chain(declared).map(|(name, spec)| {
            let mut finding = AdapterFinding {
                adapter: name,
                r#type: spec.r#type,
                verdict: AdapterVerdict::Good,
                program: None,
                version: None,
                credential: None,
                smoke: None,
                problems: Vec::new(),
            };
            if finding.adapter.is_some() || spec.r#type != AdapterType::Command {
                self.look_at_program(&spec, &scratch, &mut finding);
            }
            if let Some(provider) = Provider::of_adapter(spec.r#type) {
                self.look_at_credential(provider, &spec, &stored, &mut finding);
            }
            finding
        });
        Ok(AdapterReport {
            findings: findings.collect(),
        })
    }

    /// Has each Adapter whose program can be used, and whose type has a model, take one turn.
    ///
    /// # Errors
    /// When there is no room for a directory to try them in.
    pub async fn smoke(
        &self,
        adapters: &[(String, AdapterSpec)],
        report: &mut AdapterReport,
    ) -> io::Result<()> {
        for finding in &mut report.findings {
            let declared = adapters
                .iter()
                .find(|(name, _)| Some(name) == finding.adapter.as_ref());
            let spec = declared.map_or_else(|| bare(finding.r#type), |(_, spec)| spec.clone());
            let has_model = Provider::of_adapter(finding.r#type).is_some();
            if !has_model || finding.verdict > AdapterVerdict::Warning {
                continue;
            }
            let scratch = Scratch::make(self.identity)?;
            match smoke::turn(self, &spec, &scratch).await {
                Ok(smoke) => finding.smoke = Some(smoke),
                Err(error) => {
                    let problem = format!("one turn failed: can't {}", chain(&error));
                    let remedy = "run its program by hand in an empty HOME, or use the version \
                                  that this one is tested with";
                    finding.add(AdapterVerdict::Bad, problem, remedy);
                }
            }
        }
        Ok(())
    }

    fn look_at_program(&self, spec: &AdapterSpec, scratch: &Scratch, finding: &mut AdapterFinding) {
        let path = match program_of(spec, self.search_path) {
            Ok(path) => path,
            Err(error) => {
                let verdict = match error {
                    LaunchError::NotInstalled { .. } | LaunchError::ProgramNotFound { .. } => {
                        AdapterVerdict::NotInstalled
                    }
                    _ => AdapterVerdict::Bad,
                };
                let problem = format!("can't {}", chain(&error));
                return finding.add(verdict, problem, error.remedy());
            }
        };
        if let Some(obstacle) = obstacle(&path, self.identity) {
            let uid = self.identity.uid();
            let problem = format!(
                "{} is closed to uid {uid}, as which agents run",
                obstacle.display()
            );
            let remedy = "install it where every user may read and execute it, such as /usr/local";
            finding.add(AdapterVerdict::Bad, problem, remedy);
        } else if spec.r#type == AdapterType::ClaudeCode {
            self.ask_claude(spec, scratch, finding);
        }
        finding.program = Some(path);
    }

    fn ask_claude(&self, spec: &AdapterSpec, scratch: &Scratch, finding: &mut AdapterFinding) {
        let home = scratch.path("home");
        let probe = Probe {
            shim: self.shim,
            identity: self.identity,
            command: spec.command.as_deref(),
            search_path: self.search_path,
            home: &home,
            limit: ANSWER_MAX,
        };
        let unusable = |finding: &mut AdapterFinding, error: &ProbeError| {
            let remedy = match error {
                ProbeError::Version {
                    source: VersionError::TooOld { .. },
                    ..
                } => "install a newer version of Claude Code",
                _ => "install Claude Code anew, or correct the Adapter's spec.command",
            };
            finding.add(
                AdapterVerdict::Bad,
                format!("can't {}", chain(error)),
                remedy,
            );
        };
        match claude_code::probe(&probe) {
            Ok((_, version)) => finding.version = Some(version.to_string()),
            Err(error) => return unusable(finding, &error),
        }
        match claude_code::unknown_options(&probe) {
            Ok(unknown) if unknown.is_empty() => {}
            Ok(unknown) => {
                let problem = format!(
                    "its help does not name {}, which runs are started with",
                    unknown.join(", ")
                );
                let remedy = "see with `homeostat doctor adapters --smoke` whether it works all \
                              the same";
                finding.add(AdapterVerdict::Warning, problem, remedy);
            }
            Err(error) => unusable(finding, &error),
        }
    }

    fn look_at_credential(
        &self,
        provider: Provider,
        spec: &AdapterSpec,
        stored: &Result<Credentials, StoreError>,
        finding: &mut AdapterFinding,
    ) {
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                let problem = format!("the credential store can't be used: {}", chain(error));
                let remedy = "do what that says: no run that needs a credential starts before";
                return finding.add(AdapterVerdict::Warning, problem, remedy);
            }
        };
        let sources = Sources {
            adapter: &spec.env,
            caller: &BTreeMap::new(),
            stored,
            process: self.process,
            now: self.now,
        };
        match resolve(provider, &sources) {
            Ok(resolved) => finding.credential = Some(resolved.place.to_string()),
            Err(error) => {
                let remedy = format!(
                    "run `homeostat login {provider}`, or set it in the daemon's environment"
                );
                finding.add(AdapterVerdict::Warning, error.to_string(), remedy);
            }
        }
    }
}

impl AdapterFinding {
    fn add(
        &mut self,
        verdict: AdapterVerdict,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.verdict = self.verdict.max(verdict);
        self.problems.push(Problem {
            problem: problem.into(),
            remedy: remedy.into(),
        });
    }
}

/// An Adapter that says nothing but its type.
fn bare(r#type: AdapterType) -> AdapterSpec {
    AdapterSpec {
        r#type,
        command: None,
        args: Vec::new(),
        env: BTreeMap::new(),
        prices: Vec::new(),
        output: OutputFormat::default(),
    }
}

/// The first on the way to the program that its permissions close to that user; none if the way is
/// open, or what is in it can't be seen from here.
fn obstacle(program: &Path, user: RunIdentity) -> Option<PathBuf> {
    let program = fs::canonicalize(program).ok()?;
    let mut way: Vec<&Path> = program.ancestors().collect();
    way.reverse();
    let is_closed = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        let class = match () {
            () if metadata.uid() == user.uid() => 6,
            () if metadata.gid() == user.gid() => 3,
            () => 0,
        };
        Some((metadata.mode() >> class) & 0o1 == 0)
    };
    let closed = way.into_iter().find(|path| is_closed(path) == Some(true));
    closed.map(Path::to_owned)
}

/// A run's directories, for a while.
#[derive(Debug)]
struct Scratch(TempDir);

impl Scratch {
    const NAMES: [&str; 5] = ["home", "tmp", "state", "work", "config"];

    fn make(user: RunIdentity) -> io::Result<Self> {
        let scratch = Self(
            tempfile::Builder::new()
                .prefix("homeostat-doctor-")
                .tempdir()?,
        );
        // It is passed through, and listed by nobody.
        fs::set_permissions(scratch.0.path(), Permissions::from_mode(0o711))?;
        for name in Self::NAMES {
            let path = scratch.path(name);
            DirBuilder::new().mode(0o700).create(&path)?;
            if rustix::process::geteuid().is_root() {
                chown(&path, Some(user.uid()), Some(user.gid()))?;
            }
        }
        Ok(scratch)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executable(path: &Path) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_in_a_closed_directory_is_closed() {
        let dir = tempfile::Builder::new().tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let program = inner.join("claude");
        executable(&program);
        let other = RunIdentity::resolve(0, 0, Some(70_013)).unwrap();
        assert_eq!(obstacle(&program, other), None);
        let closed = |path: &Path, mode| {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            let found = obstacle(&program, other);
            fs::set_permissions(path, before).unwrap();
            found
        };
        let canonical = |path: &Path| Some(fs::canonicalize(path).unwrap());
        assert_eq!(closed(&inner, 0o750), canonical(&inner));
        assert_eq!(closed(&program, 0o750), canonical(&program));
        assert_eq!(obstacle(Path::new("/nonexistent"), other), None);
    }

    #[test]
    fn the_declared_ones_decide_where_there_are_any() {
        let finding = |adapter: Option<&str>, verdict| AdapterFinding {
            adapter: adapter.map(ToOwned::to_owned),
            r#type: AdapterType::ClaudeCode,
            verdict,
            program: None,
            version: None,
            credential: None,
            smoke: None,
            problems: Vec::new(),
        };
        use AdapterVerdict::{Bad, Good, NotInstalled, Warning};
        for (bare, declared, expected) in [
            (Good, None, true),
            (Warning, None, true),
            (NotInstalled, None, false),
            (NotInstalled, Some(Warning), true),
            (Good, Some(NotInstalled), false),
            (Good, Some(Bad), false),
        ] {
            let mut findings = vec![finding(None, bare)];
            findings.extend(declared.map(|verdict| finding(Some("a"), verdict)));
            assert_eq!(
                AdapterReport { findings }.is_good(),
                expected,
                "{bare} {declared:?}"
            );
        }
    }
}
