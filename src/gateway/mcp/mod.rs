//! A run's way to the daemon's own tools: an MCP server over streamable HTTP, without sessions, so
//! that nothing of it has to survive a restart.
//!
//! On whose behalf a call is, and which tools there are, is the gateway's own; no argument can say
//! otherwise. Each call leaves a note among the run's events, and a call that can't be noted is not
//! made.

mod handler;
mod rate;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::listener::{Bounded, ListenError, RunToken};
use crate::clock::Clock;
use crate::model::event::AgentEvent;
use crate::model::tool::{Principal, Tool};
use crate::task::Tracker;
use crate::tool::ToolPort;
use handler::Handler;
use rate::Rates;

/// Bytes of one request at most. The longest plan fits, whatever it is made of.
pub const MCP_REQUEST_BYTES_MAX: usize = 1 << 20;
/// Where on its listener it answers.
const PATH: &str = "/mcp";
/// Requests that are answered at the same time.
const IN_FLIGHT_MAX: usize = 8;
/// How long one request may take, the reading of its body included.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// What a gateway is for.
#[derive(Debug)]
pub struct McpSpec {
    /// By what the run is known.
    pub token: RunToken,
    /// On whose behalf its calls are.
    pub principal: Principal,
    /// What it may call: what its prompt names.
    pub tools: Vec<Tool>,
    /// Where each call is noted. Calls wait while it is full, and are refused once it is closed.
    pub notes: mpsc::Sender<AgentEvent>,
}

/// A run's gateway. Dropping it ends it; a call that is on its way is finished first.
#[derive(Debug)]
pub struct McpGateway {
    url: String,
    over: CancellationToken,
}

/// What every request of the run is handled with.
#[derive(Debug)]
struct Gate {
    spec: McpSpec,
    clock: Arc<dyn Clock>,
    rates: Mutex<Rates>,
    in_flight: Semaphore,
}

impl McpGateway {
    /// Serves `listener` until the gateway is dropped or `tracker` is cancelled.
    ///
    /// # Errors
    /// When the listener is not ours alone.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start<P: ToolPort>(
        listener: std::net::TcpListener,
        spec: McpSpec,
        port: Arc<P>,
        clock: Arc<dyn Clock>,
        tracker: &Tracker,
    ) -> Result<Self, ListenError> {
        let bounded = Bounded::new(listener)?;
        let address = axum::serve::Listener::local_addr(&bounded).map_err(ListenError::Listen)?;
        let over = tracker.child_token();
        let gate = Arc::new(Gate {
            spec,
            clock,
            rates: Mutex::default(),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
        });
        let serving = bounded.serve(router(gate, port, &over), over.clone());
        drop(tracker.spawn("mcp gateway", async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "an MCP gateway is not served any more");
            }
        }));
        Ok(Self {
            url: format!("http://{address}{PATH}"),
            over,
        })
    }

    /// Where it answers. The token is not in it.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for McpGateway {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Gate {
    /// The counts stay whole whatever panicked beside them.
    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn router<P: ToolPort>(gate: Arc<Gate>, port: Arc<P>, over: &CancellationToken) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MCP_REQUEST_BYTES_MAX)
        // No browser has any business here.
        .enforce_origin_validation()
        .with_cancellation_token(over.child_token());
    let handled = Arc::clone(&gate);
    let handler = move || Ok(Handler::new(Arc::clone(&handled), Arc::clone(&port)));
    let sessions = Arc::<NeverSessionManager>::default();
    Router::new()
        .route_service(PATH, StreamableHttpService::new(handler, sessions, config))
        .layer(from_fn_with_state(gate, let_in))
}

/// Lets the run's own requests in, so many at a time and so often.
async fn let_in(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let is_own = bearer(request.headers()).is_some_and(|it| gate.spec.token.is(it.as_bytes()));
    if !is_own {
        let challenge = [(WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, "the run's token\n").into_response();
    }
    let too_many = || {
        let later = [(RETRY_AFTER, "1")];
        (StatusCode::TOO_MANY_REQUESTS, later, "too many requests\n").into_response()
    };
    let Ok(_in_flight) = gate.in_flight.try_acquire() else {
        return too_many();
    };
    if !gate.rates().request(gate.clock.monotonic()).is_granted() {
        return too_many();
    }
    match tokio::time::timeout(REQUEST_TIME_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => (StatusCode::REQUEST_TIMEOUT, "it took too long\n").into_response(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_is_read_as_http_spells_it() {
        for (header, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(bearer(&headers), expected, "{header}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
