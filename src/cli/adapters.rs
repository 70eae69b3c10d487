//! The Adapters that are declared: in a source, or in what the daemon accepted.

use serde::Deserialize;

use super::args::SourceArgs;
use super::error::{CliResult, Kind, OrFail};
use super::host::{Host, snapshot, unusable};
use super::reader::Reader;
use super::ui::Ui;
use crate::api::dto::Object;
use crate::config::ConfigError;
use crate::manifest::{self, ManifestFile};
use crate::model::kind::Kind as ObjectKind;
use crate::model::spec::AdapterSpec;

/// An Adapter, by its name.
pub(crate) type Declared = (String, AdapterSpec);

/// Those of the source that `args` name, else those that a daemon or its database has, else those
/// of the configured source, else none.
///
/// # Errors
/// When one of these is there and can't be read.
pub(crate) fn declared(args: &SourceArgs, host: &Host, ui: &mut Ui) -> CliResult<Vec<Declared>> {
    if !args.is_given() {
        match Reader::open(host, ui) {
            Ok(reader) => {
                let list = reader.objects(Some(ObjectKind::Adapter))?;
                return list.objects.iter().filter_map(of_object).collect();
            }
            Err(error) if error.kind() == Kind::Unreachable => {}
            Err(error) => return Err(error),
        }
    }
    let setting = match host.layers(args.settings())?.source() {
        Ok(setting) => setting,
        Err(ConfigError::NoSource) => return Ok(Vec::new()),
        Err(error) => return Err(unusable(Kind::Usage, &error)),
    };
    let files = snapshot(&setting, host)?.files.into_iter();
    let files: Vec<_> = files
        .map(|(path, bytes)| ManifestFile { path, bytes })
        .collect();
    let loaded = manifest::load(&files);
    if !loaded.is_valid() {
        ui.say("note: the source has faults, which `homeostat validate` shows");
    }
    let adapters = loaded.catalog.adapters.into_iter();
    let adapters = adapters.map(|(name, adapter)| (name.name.to_string(), adapter.spec));
    Ok(adapters.collect())
}

/// None of one that is being deleted.
fn of_object(object: &Object) -> Option<CliResult<Declared>> {
    let spec = object.manifest.as_ref()?.get("spec")?;
    let spec = AdapterSpec::deserialize(spec).or_fail(
        Kind::Usage,
        format!(
            "failed to read {}, which another version wrote",
            object.reference()
        ),
    );
    Some(spec.map(|spec| (object.name.clone(), spec)))
}
