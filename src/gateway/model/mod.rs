//! A run's way to its model: Anthropic Messages, passed through, with the real key put in on the
//! way out and usage read off on the way back.
//!
//! ```text
//! agent ── http://127.0.0.1:PORT/r/TOKEN/v1/messages, key TOKEN ──▶ gateway
//!            gateway ── base URL/v1/messages, the real key ──▶ provider
//! ```
//!
//! Bodies go through unchanged and at once, both ways, with three exceptions, each of which ends a
//! request so that the agent's program understands it: a provider that does not begin to answer or
//! falls silent ([`Timeouts`]), one that answers something that is no answer of this API, and a run
//! whose admission was closed. Every answer that was begun is reported once ([`MeteredUsage`]), also
//! one that was cut: with what had been seen of it.
//!
//! `forward` takes a request there and its answer back; `body` is the answer on its way; `meter`
//! reads it. `check` asks a provider whether it takes a key.

mod answer;
mod body;
mod check;
mod forward;
mod meter;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::check::KeyVerdict;
use super::listener::{Bounded, ListenError, RunToken};
use crate::credential::{Scheme, Secret};
use crate::model::event::UsageReport;
use crate::task::Tracker;

/// The longest request that is taken, in bytes: what the provider takes.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;

/// What the Anthropic Messages API is asked for by an agent.
pub const ANTHROPIC_PATHS: &[&str] = &["/v1/messages", "/v1/messages/count_tokens"];

/// How long a connection to the provider may take to come about.
const CONNECT: Duration = Duration::from_secs(20);

/// How long an idle connection to the provider is kept.
const KEEP_IDLE: Duration = Duration::from_secs(60);

/// How many idle connections to one provider are kept.
const KEEP_IDLE_MAX: usize = 16;

/// Where a gateway's notices go. A request waits until there is room for all that it may have to
/// report: a slow reader slows the run down, and loses nothing.
pub type Sink = mpsc::Sender<Notice>;

/// What a gateway has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An answer ended.
    Usage(MeteredUsage),
    /// A request did not get the answer that it should have.
    Trouble(UpstreamTrouble),
}

/// What one answer used, read from the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeteredUsage {
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The tokens; their cost is not the gateway's to know.
    pub usage: UsageReport,
    /// Whether the answer came to its end, so that nothing is missing.
    pub is_complete: bool,
}

/// Trouble with the provider, for who plans the next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTrouble {
    /// What happened.
    pub kind: TroubleKind,
    /// How long the provider asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
}

/// Kinds of trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// It refused with this status: 401, 403, 429 or one from 500.
    Status(u16),
    /// It can't be connected to, or hung up before it answered.
    Unreachable,
    /// It did not begin to answer in time.
    FirstByte,
    /// It stopped in the middle of an answer for too long.
    Idle,
    /// It hung up in the middle of an answer.
    Cut,
    /// It reported an error of this type in the middle of an answer.
    InStream(String),
    /// It answered with something else than an answer, of this content type.
    NoAnswer(String),
    /// It answered, and its usage could not be read.
    Unmetered,
}

/// How long a provider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the head of a streamed answer.
    pub first_byte: Duration,
    /// Until the head of an answer in one piece: as long as it takes to make.
    pub whole: Duration,
    /// Between two pieces of an answer. A provider that thinks sends pings.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(120),
            whole: Duration::from_secs(600),
            idle: Duration::from_secs(120),
        }
    }
}

/// A text that can't be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("send a key that is empty or no text of a header")]
pub struct KeyError;

/// The real key, and how the provider wants to be shown it. It does not print.
#[derive(Clone)]
pub struct UpstreamKey {
    name: HeaderName,
    value: HeaderValue,
}

impl UpstreamKey {
    /// The header that shows `secret` as `scheme` says.
    ///
    /// # Errors
    /// When it can't be in a header.
    pub fn new(secret: &Secret, scheme: Scheme) -> Result<Self, KeyError> {
        let secret = secret.expose();
        if secret.is_empty() {
            return Err(KeyError);
        }
        let (name, value) = match scheme {
            Scheme::ApiKey => (
                HeaderName::from_static("x-api-key"),
                HeaderValue::from_str(secret),
            ),
            Scheme::Bearer => (
                header::AUTHORIZATION,
                HeaderValue::from_str(&format!("Bearer {secret}")),
            ),
        };
        let mut value = value.map_err(|_ignored| KeyError)?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

impl fmt::Debug for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a gateway is for.
#[derive(Debug)]
pub struct GatewaySpec {
    /// By what the run is known.
    pub token: RunToken,
    /// Where the provider is: `https://host`, with a path if it has one.
    pub upstream: String,
    /// What it is shown.
    pub key: UpstreamKey,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// What it may be asked for, below its base: [`ANTHROPIC_PATHS`].
    pub paths: &'static [&'static str],
}

/// Why there is no gateway.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// The listener.
    #[error("listen for the run")]
    Listen(#[from] ListenError),
    /// The provider's address is none.
    #[error("use {upstream:?} as a provider's address: it is not http:// or https:// and a host")]
    Upstream {
        /// What was given.
        upstream: String,
    },
    /// The key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The TLS library has no ciphers, or no roots.
    #[error("set up TLS")]
    Tls(#[source] std::io::Error),
}

/// Connections to providers, shared by the gateways of all runs. Clones share them.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, axum::body::Body>,
}

impl Client {
    /// No connection yet. TLS trusts the roots that browsers do, built in, so that an image without
    /// certificates works; plain HTTP is for providers on this machine.
    ///
    /// # Errors
    /// When the TLS library can't be set up.
    pub fn new(tracker: &Tracker) -> Result<Self, GatewayError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| GatewayError::Tls(std::io::Error::other(error)))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let pool = Pool::builder(Spawner(tracker.clone()))
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(KEEP_IDLE_MAX)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(connector);
        Ok(Self { pool })
    }
}

/// Spawns what the pool needs as tasks that are known.
#[derive(Clone)]
struct Spawner(Tracker);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, future: F) {
        drop(self.0.spawn("model connection", future));
    }
}

/// A run's gateway. Dropping it ends it, and every answer that is on its way.
#[derive(Debug)]
pub struct ModelGateway {
    base_url: String,
    gate: Arc<Gate>,
}

/// What every request of the run is handled with.
#[derive(Debug)]
pub(super) struct Gate {
    token: RunToken,
    upstream: Uri,
    key: UpstreamKey,
    timeouts: Timeouts,
    paths: &'static [&'static str],
    client: Client,
    sink: Sink,
    /// Why no further request is taken.
    closed: Mutex<Option<String>>,
    /// Ends the answers that are on their way.
    cut: CancellationToken,
    /// Ends everything.
    over: CancellationToken,
}

impl ModelGateway {
    /// Serves `listener` until the gateway is dropped or `tracker` is cancelled.
    ///
    /// # Errors
    /// When the listener is not ours alone, or the provider's address is none.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(
        listener: std::net::TcpListener,
        spec: GatewaySpec,
        client: Client,
        sink: Sink,
        tracker: &Tracker,
    ) -> Result<Self, GatewayError> {
        let bounded = Bounded::new(listener)?;
        let address = axum::serve::Listener::local_addr(&bounded).map_err(ListenError::Listen)?;
        let over = tracker.child_token();
        let gate = Arc::new(Gate {
            upstream: parse_upstream(&spec.upstream)?,
            token: spec.token,
            key: spec.key,
            timeouts: spec.timeouts,
            paths: spec.paths,
            client,
            sink,
            closed: Mutex::new(None),
            cut: over.child_token(),
            over: over.clone(),
        });
        let router = Router::new()
            .fallback(forward::handle)
            .with_state(Arc::clone(&gate));
        drop(tracker.spawn("model gateway", async move {
            if let Err(error) = bounded.serve(router, over).await {
                tracing::error!(%error, "a model gateway is not served any more");
            }
        }));
        Ok(Self {
            base_url: format!("http://{address}/r/{}", gate.token.expose()),
            gate,
        })
    }

    /// What the run takes for the provider's base URL. It holds the token.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Refuses every further request, with `reason` for people. What is on its way goes on.
    pub fn close_admission(&self, reason: impl Into<String>) {
        let closed = self.gate.closed.lock();
        let mut closed = closed.unwrap_or_else(PoisonError::into_inner);
        closed.get_or_insert_with(|| reason.into());
    }

    /// Ends the answers that are on their way, each with an error, after
    /// [`close_admission`](Self::close_admission).
    pub fn cut_answers(&self) {
        self.gate.cut.cancel();
    }
}

impl Drop for ModelGateway {
    fn drop(&mut self) {
        self.gate.over.cancel();
    }
}

impl Gate {
    fn closed(&self) -> Option<String> {
        let closed = self.closed.lock();
        closed.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The address of a provider, without a slash at its end.
fn parse_upstream(upstream: &str) -> Result<Uri, GatewayError> {
    let refused = || GatewayError::Upstream {
        upstream: upstream.to_owned(),
    };
    let uri: Uri = upstream
        .trim_end_matches('/')
        .parse()
        .map_err(|_ignored| refused())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    match is_web && uri.host().is_some() && uri.query().is_none() {
        true => Ok(uri),
        false => Err(refused()),
    }
}
