//! One cheap question that tells whether a provider takes a key, without a run.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use tokio::time::timeout;

use super::{Client, GatewayError, UpstreamKey, parse_upstream};
use crate::credential::{Provider, Resolved, Scheme};
use crate::model::chain::chain;

/// What a provider made of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyVerdict {
    /// It answers with this key.
    Accepted,
    /// It refuses the key, with this status.
    Refused(u16),
    /// It answers with this status, which says nothing of the key.
    Unclear(u16),
    /// It does not answer, and this is why.
    Unreachable(String),
}

impl Client {
    /// Asks the provider at `upstream` which models it has, which costs nothing. A redirection is
    /// not followed: the key is for that address alone.
    ///
    /// # Errors
    /// When the address is none, or the key can't be sent.
    pub async fn check_key(
        &self,
        provider: Provider,
        upstream: &str,
        credential: &Resolved,
        limit: Duration,
    ) -> Result<KeyVerdict, GatewayError> {
        let base = parse_upstream(upstream)?;
        let uri = format!(
            "{}{}",
            base.to_string().trim_end_matches('/'),
            path(provider)
        );
        let key = UpstreamKey::new(&credential.secret, credential.scheme)?;
        let refused = |_not_a_uri| GatewayError::Upstream {
            upstream: upstream.to_owned(),
        };
        let mut request = Request::get(uri).body(Body::empty()).map_err(refused)?;
        let headers = request.headers_mut();
        let name = match (provider, credential.scheme) {
            (Provider::Google, Scheme::ApiKey) => HeaderName::from_static("x-goog-api-key"),
            _ => key.name,
        };
        headers.insert(name, key.value);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if provider == Provider::Anthropic {
            let version = HeaderName::from_static("anthropic-version");
            headers.insert(version, HeaderValue::from_static("2023-06-01"));
        }
        Ok(match timeout(limit, self.pool.request(request)).await {
            Ok(Ok(answer)) => verdict(answer.status()),
            Ok(Err(error)) => KeyVerdict::Unreachable(chain(&error)),
            Err(_elapsed) => {
                let limit = limit.as_secs();
                KeyVerdict::Unreachable(format!("no answer within {limit} s"))
            }
        })
    }
}

/// Where a provider lists its models, below its base.
const fn path(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "/v1/models?limit=1",
        Provider::Openai => "/models",
        Provider::Google => "/v1beta/models?pageSize=1",
    }
}

fn verdict(status: StatusCode) -> KeyVerdict {
    match status {
        status if status.is_success() => KeyVerdict::Accepted,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => KeyVerdict::Refused(status.as_u16()),
        status => KeyVerdict::Unclear(status.as_u16()),
    }
}
