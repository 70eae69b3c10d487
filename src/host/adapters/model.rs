//! A model's provider for one turn: whatever it is asked, it answers with one sentence, streamed or
//! in one piece, and says what that used.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::{Clock, SystemClock};
use crate::gateway::REQUEST_BYTES_MAX;
use crate::task::Tracker;

/// What it says.
pub(super) const ANSWER: &str = "homeostat hears you.";
/// What each answer uses, in tokens.
pub(super) const INPUT: u64 = 11;
/// The same for what is said.
pub(super) const OUTPUT: u64 = 5;

/// The server; it ends with its tracker.
#[derive(Debug)]
pub(super) struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    answers: AtomicU64,
    /// When the first question came, in milliseconds of the monotonic clock; 0 before that.
    first_ms: AtomicU64,
}

impl Model {
    pub(super) async fn start(tracker: &Tracker) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&shared));
        let over = tracker.child_token();
        drop(tracker.spawn("one turn's model", async move {
            let served = axum::serve(listener, router);
            if let Err(error) = served.with_graceful_shutdown(over.cancelled_owned()).await {
                tracing::warn!(%error, "the model of one turn is not served any more");
            }
        }));
        Ok(Self { address, shared })
    }

    pub(super) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How often it answered.
    pub(super) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// When it was first asked; none if it was not.
    pub(super) fn first_asked(&self) -> Option<Duration> {
        match self.shared.first_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }
}

/// The part of a question that decides the form of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    stream: bool,
    model: String,
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return Ok(Response::new(Body::empty()));
    }
    if head.uri.path().ends_with("/count_tokens") {
        return Ok(response(
            "application/json",
            json!({ "input_tokens": INPUT }).to_string(),
        ));
    }
    let now = u64::try_from(SystemClock.monotonic().as_millis()).unwrap_or(u64::MAX);
    let first = &shared.first_ms;
    // It is set once; that it was set before is no failure.
    first
        .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
        .ok();
    shared.answers.fetch_add(1, Ordering::Relaxed);
    let body = Limited::new(body, REQUEST_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let asked: Asked = serde_json::from_slice(&body).unwrap_or_default();
    Ok(match asked.stream {
        true => response("text/event-stream", events(&asked.model)),
        false => {
            let content = json!([{ "type": "text", "text": ANSWER }]);
            let message = message(&asked.model, &content, OUTPUT);
            response("application/json", message.to_string())
        }
    })
}

fn response(kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let kind = axum::http::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn message(model: &str, content: &Value, output: u64) -> Value {
    json!({
        "id": "msg_doctor", "type": "message", "role": "assistant", "model": model,
        "content": content, "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": INPUT, "output_tokens": output },
    })
}

fn events(model: &str) -> String {
    let delta = json!({ "type": "text_delta", "text": ANSWER });
    let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
    let events = [
        json!({ "type": "message_start", "message": message(model, &json!([]), 1) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": OUTPUT } }),
        json!({ "type": "message_stop" }),
    ];
    let events = events.iter().map(|event| {
        let kind = event["type"].as_str().unwrap_or_default();
        format!("event: {kind}\ndata: {event}\n\n")
    });
    events.collect()
}
