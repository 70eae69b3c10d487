//! Whether a provider takes the credential that a run would use.

use std::time::Duration;

use thiserror::Error;

use crate::credential::{CredentialError, Provider, Resolved, Sources, resolve};
use crate::gateway::{Client, GatewayError};
use crate::task::Tracker;

pub use crate::gateway::KeyVerdict;

/// What a provider gets to answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Why a provider was not asked.
#[derive(Debug, Error)]
pub enum KeyError {
    /// There is nothing to ask it with.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// It can't be asked.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

/// Asks the provider one cheap question with the credential that a run would use, where that run
/// would ask.
///
/// # Errors
/// When there is no such credential, or no such place.
pub async fn try_key(
    provider: Provider,
    sources: &Sources<'_>,
) -> Result<(Resolved, KeyVerdict), KeyError> {
    let resolved = resolve(provider, sources)?;
    let client = Client::new(&Tracker::new())?;
    let base = sources.base_url(provider);
    let asked = client.check_key(provider, &base, &resolved, ANSWER_MAX);
    let verdict = asked.await?;
    Ok((resolved, verdict))
}
