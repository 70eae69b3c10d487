//! In what runs' programs and credentials are looked for: what the daemon says of its own
//! surroundings where one answers, else this command's, which a daemon may not share.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;

use super::client::Client;
use super::error::CliResult;
use super::host::Host;
use crate::api::dto;

/// What there is to look in.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Where programs are.
    pub(crate) search_path: String,
    /// The environment. Of a daemon's, there are the names of what says something of a model's
    /// provider, each with a value that is none.
    pub(crate) variables: BTreeMap<OsString, OsString>,
    /// The user of runs, where it is known or said.
    pub(crate) run_uid: Option<u32>,
    /// Whether this is a daemon's word.
    pub(crate) is_daemons: bool,
}

/// Stands for a value that only the daemon knows.
const UNKNOWN: &str = "only-the-daemon-knows";

impl Surroundings {
    /// The daemon's if it answers, else this command's.
    ///
    /// # Errors
    /// When the settings can't be used.
    pub(crate) fn look(host: &Host) -> CliResult<Self> {
        let socket = host.client()?.socket;
        if UnixStream::connect(&socket).is_ok()
            // One of another version may not know.
            && let Ok(said) = Client::new(socket)?.get::<dto::Surroundings>("/v1/surroundings")
        {
            let names = said.model_variables.into_iter();
            return Ok(Self {
                search_path: said.search_path,
                variables: names.map(|name| (name.into(), UNKNOWN.into())).collect(),
                run_uid: Some(said.run_uid),
                is_daemons: true,
            });
        }
        Ok(Self {
            search_path: host.search_path().to_string_lossy().into_owned(),
            variables: host.environment().variables.clone(),
            run_uid: host.layers(Vec::new())?.run_uid(),
            is_daemons: false,
        })
    }
}
