//! A run's way to its model: whose key pays, the gateway that holds it, and what the wire tells.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use super::reach::{listener, mint_token};
use super::registry::Shared;
use crate::credential::{CredentialError, CredentialStore, Provider, Resolved, Sources, resolve};
use crate::gateway::{
    ANTHROPIC_PATHS, GatewayError, GatewaySpec, KeyError, ListenError, ModelGateway, Notice,
    RunToken, TokenError, UpstreamKey,
};
use crate::model::run::RunOrder;
use crate::model::spec::AdapterType;
use crate::model::wake::Wake;
use crate::task::{TaskError, blocking};

/// Notices that wait to be recorded; a gateway whose notices are not read slows its run down.
const NOTICES_MAX: usize = 64;

/// What a run reaches its model by. Dropping it ends the gateway.
pub(super) struct ModelAccess {
    pub(super) gateway: ModelGateway,
    pub(super) notices: mpsc::Receiver<Notice>,
    /// The key that the run shows; worth nothing elsewhere.
    pub(super) run_key: String,
    /// Where the real key came from.
    pub(super) source: String,
    /// Whether every run of the Adapter would ask the same provider with the same key.
    pub(super) is_shared: bool,
    /// What must not be seen in what the run says.
    pub(super) secrets: Vec<(String, String)>,
}

impl ModelAccess {
    /// Lets nothing more through, and ends the answers that are on their way.
    pub(super) fn close(&self, reason: &str) {
        self.gateway.close_admission(reason);
        self.gateway.cut_answers();
    }
}

/// Why a run can't reach its model.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccessError {
    #[error("find the model's credential")]
    Credential(#[from] CredentialError),
    #[error("read the credential store")]
    Store(#[from] crate::credential::StoreError),
    #[error("use the model's credential")]
    Key(#[from] KeyError),
    #[error("name the run to its gateway")]
    Token(#[from] TokenError),
    #[error("bind the run's gateway")]
    Bind(#[source] std::io::Error),
    #[error("start the run's gateway")]
    Gateway(#[from] GatewayError),
    #[error("start the run's tools")]
    Tools(#[from] ListenError),
}

impl AccessError {
    /// The code for run records.
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Credential(CredentialError::Missing { .. }) => "credential_missing",
            Self::Credential(_) | Self::Store(_) | Self::Key(_) => "credential_unusable",
            Self::Token(_) | Self::Bind(_) | Self::Gateway(_) | Self::Tools(_) => "gateway",
        }
    }
}

/// Opens the way to the model that the adapter needs; none for an adapter that knows of no model.
pub(super) async fn open(
    shared: &Shared,
    order: &RunOrder,
    wake: &Wake,
) -> Result<Result<Option<ModelAccess>, AccessError>, TaskError> {
    match order.adapter.r#type {
        AdapterType::Command => Ok(Ok(None)),
        AdapterType::ClaudeCode => {
            let store = CredentialStore::new(&shared.settings.data_dir);
            let stored = blocking("read credentials", move || store.load()).await?;
            Ok(stored.map_err(AccessError::from).and_then(|stored| {
                let sources = Sources {
                    adapter: &order.adapter.env,
                    caller: &wake.env,
                    stored: &stored,
                    process: &shared.settings.variables,
                    now: shared.clock.now(),
                };
                start(shared, &sources).map(Some)
            }))
        }
    }
}

fn start(shared: &Shared, sources: &Sources<'_>) -> Result<ModelAccess, AccessError> {
    let resolved = resolve(Provider::Anthropic, sources)?;
    let run_key = mint_token();
    let (sink, notices) = mpsc::channel(NOTICES_MAX);
    let spec = GatewaySpec {
        token: RunToken::new(run_key.clone())?,
        upstream: sources.base_url(Provider::Anthropic),
        key: UpstreamKey::new(&resolved.secret, resolved.scheme)?,
        timeouts: shared.settings.timeouts,
        paths: ANTHROPIC_PATHS,
    };
    let gateway = ModelGateway::start(
        listener()?,
        spec,
        shared.settings.models.clone(),
        sink,
        &shared.tracker,
    )?;
    Ok(ModelAccess {
        gateway,
        notices,
        source: resolved.place.to_string(),
        is_shared: is_shared(sources, &resolved),
        secrets: vec![
            ("model key".to_owned(), resolved.secret.expose().to_owned()),
            ("run key".to_owned(), run_key.clone()),
        ],
        run_key,
    })
}

/// Whether a run that brings no variables of its own asks the same provider with the same key.
fn is_shared(sources: &Sources<'_>, resolved: &Resolved) -> bool {
    let nothing = BTreeMap::new();
    let others = Sources {
        caller: &nothing,
        ..*sources
    };
    let provider = Provider::Anthropic;
    others.base_url(provider) == sources.base_url(provider)
        && resolve(provider, &others).is_ok_and(|theirs| theirs.place == resolved.place)
}

/// Names and values of the variables that look like secrets by their names.
pub(super) fn secrets_of(env: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    const WORDS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL"];
    let is_secret = |name: &str| {
        let name = name.to_ascii_uppercase();
        WORDS.iter().any(|word| name.contains(word))
    };
    env.iter()
        .filter(move |(name, _)| is_secret(name))
        .map(|(name, value)| (name.clone(), value.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::{Provider, Sources, is_shared, resolve};
    use crate::credential::Credentials;

    #[test]
    fn what_a_run_brings_is_nobody_elses() {
        let stored = Credentials::default();
        let host = BTreeMap::from([("ANTHROPIC_API_KEY".into(), "host".into())]);
        for (adapter, caller, expected) in [
            ("", "", true),
            ("", "OTHER=1", true),
            ("", "ANTHROPIC_API_KEY=own", false),
            ("ANTHROPIC_API_KEY=all", "ANTHROPIC_API_KEY=own", true),
            (
                "ANTHROPIC_BASE_URL=http://all",
                "ANTHROPIC_BASE_URL=http://own",
                true,
            ),
        ] {
            let env = |text: &str| {
                let pairs = text.split_once('=').into_iter();
                let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                pairs.collect::<BTreeMap<_, _>>()
            };
            let (adapter, caller) = (env(adapter), env(caller));
            let sources = Sources {
                adapter: &adapter,
                caller: &caller,
                stored: &stored,
                process: &host,
                now: Timestamp::UNIX_EPOCH,
            };
            let resolved = resolve(Provider::Anthropic, &sources).unwrap();
            assert_eq!(
                is_shared(&sources, &resolved),
                expected,
                "{adapter:?} {caller:?}"
            );
        }
    }
}
