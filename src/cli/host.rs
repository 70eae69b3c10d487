//! The settings of this host, as a command finds them.

use std::ffi::OsStr;
use std::path::Path;

use super::args::{HostArgs, SourceArgs};
use super::error::{CliError, CliResult, Kind, OrFail};
use crate::config::{Client, ConfigError, Draft, Environment, Layers, Setting, SourceSetting};
use crate::daemon::source_of;
use crate::manifest;
use crate::source::Snapshot;

/// What the flags that every command takes, and the process's surroundings, say.
#[derive(Debug)]
pub(crate) struct Host {
    args: HostArgs,
    environment: Environment,
}

impl Host {
    /// Nothing is read or checked yet.
    pub(crate) const fn new(args: HostArgs, environment: Environment) -> Self {
        Self { args, environment }
    }

    /// The process's surroundings.
    pub(crate) const fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Who asks, for records.
    pub(crate) fn user(&self) -> String {
        let uid = self.environment.uid;
        match self.environment.user_name() {
            Some(name) => format!("{name} (uid {uid})"),
            None => format!("uid {uid}"),
        }
    }

    /// Where programs are looked up.
    pub(crate) fn search_path(&self) -> &OsStr {
        self.environment.search_path()
    }

    /// What it takes to reach the daemon or its state.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub(crate) fn client(&self) -> CliResult<Client> {
        self.layers(Vec::new())?
            .client()
            .map_err(|error| unusable(Kind::Usage, &error))
    }

    /// All settings, with `flags` of one command above what every command takes.
    ///
    /// # Errors
    /// When a layer cannot be read, or names something that is no setting.
    pub(crate) fn layers(&self, flags: Vec<(Setting, Option<String>)>) -> CliResult<Layers> {
        let mut draft = Draft::new();
        let common = [
            (Setting::DataDir, self.args.data_dir.clone()),
            (Setting::Socket, self.args.socket.clone()),
        ];
        for (setting, text) in common.into_iter().chain(flags) {
            let Some(text) = text else { continue };
            draft
                .set(setting, &text, &self.environment.directory)
                .map_err(|source| ConfigError::BadFlag {
                    flag: flag(setting),
                    source,
                })
                .map_err(|error| unusable(Kind::Usage, &error))?;
        }
        let file = self.args.config.as_deref().map(Path::new);
        Layers::load(draft, file, self.environment.clone())
            .map_err(|error| unusable(Kind::Usage, &error))
    }
}

/// The manifests that a setting names, as they are now. A remote one is fetched for this once.
pub(crate) fn snapshot(setting: &SourceSetting, host: &Host) -> CliResult<Snapshot> {
    let failed = "failed to take in the source";
    let scratch = tempfile::Builder::new().prefix("homeostat-").tempdir();
    let scratch = scratch.or_fail(Kind::Usage, failed)?;
    let mirror = scratch.path().join("source.git");
    source_of(setting, mirror, &host.environment().variables)
        .snapshot(manifest::is_manifest_path)
        .or_fail(Kind::Usage, failed)
}

impl SourceArgs {
    /// Whether they name a source.
    pub(crate) const fn is_given(&self) -> bool {
        self.source.is_some() || self.source_repo.is_some()
    }

    /// As settings.
    pub(crate) fn settings(&self) -> Vec<(Setting, Option<String>)> {
        vec![
            (Setting::Source, self.source.clone()),
            (Setting::SourceRepo, self.source_repo.clone()),
            (Setting::SourceRef, self.source_ref.clone()),
            (Setting::SourcePath, self.source_path.clone()),
        ]
    }
}

/// The error of a command whose settings cannot be used.
pub(crate) fn unusable(kind: Kind, error: &ConfigError) -> CliError {
    let unusable = CliError::of(kind, error);
    match error.hint() {
        Some(hint) => unusable.hint(hint),
        None => unusable,
    }
}

fn flag(setting: Setting) -> String {
    let mut flag = "--".to_owned();
    for c in setting.to_string().chars() {
        if c.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(c.to_ascii_lowercase());
    }
    flag
}
