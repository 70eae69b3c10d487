//! What a run's model gateway adds to a streamed answer: the same request straight to a provider on
//! loopback, and through the gateway, in turn.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use homeostat::clock::{Clock, SystemClock};
use homeostat::credential::{Scheme, Secret};
use homeostat::gateway::{
    ANTHROPIC_PATHS, Client, GatewaySpec, ModelGateway, Notice, RunToken, Timeouts, UpstreamKey,
};
use homeostat::task::Tracker;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::{Times, compare, report, rounds};
use crate::support::model_server::ModelServer;

const TOKEN: &str = "0123456789abcdefghijkl";
/// Rounds before anything is measured.
const WARM: usize = 50;
/// As long as the first request of Claude Code, in bytes.
const REQUEST_BYTES: usize = 124_000;

/// One way to the provider: a connection that is kept, as an agent's program keeps one.
struct Way {
    sender: SendRequest<Body>,
    authority: String,
    path: String,
    key: &'static str,
    first: Vec<Duration>,
    last: Vec<Duration>,
}

impl Way {
    async fn open(tracker: &Tracker, base: &str, key: &'static str) -> Self {
        let (authority, path) = base
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let stream = TcpStream::connect(authority).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        drop(tracker.spawn("client", async move { drop(connection.await) }));
        Self {
            sender,
            authority: authority.to_owned(),
            path: format!("/{path}/v1/messages?beta=true"),
            key,
            first: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Asks once, and notes when the first and the last of the answer came.
    async fn ask(&mut self, body: &Bytes) -> Vec<u8> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header("host", &self.authority)
            .header("x-api-key", self.key)
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .body(Body::from(body.clone()))
            .unwrap();
        self.sender.ready().await.unwrap();
        let begun = SystemClock.monotonic();
        let response = self.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut answer = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = answer.frame().await {
            if bytes.is_empty() {
                self.first.push(SystemClock.monotonic() - begun);
            }
            bytes.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        self.last.push(SystemClock.monotonic() - begun);
        bytes
    }
}

/// A gateway to that provider, and how many answers it metered in the end.
fn gateway(tracker: &Tracker, upstream: String) -> (ModelGateway, mpsc::Receiver<Notice>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = GatewaySpec {
        token: RunToken::new(TOKEN).unwrap(),
        upstream,
        key: UpstreamKey::new(&Secret::new("real-key".to_owned()), Scheme::ApiKey).unwrap(),
        timeouts: Timeouts::default(),
        paths: ANTHROPIC_PATHS,
    };
    let (sink, notices) = mpsc::channel(64);
    let client = Client::new(tracker).unwrap();
    let started = ModelGateway::start(listener, spec, client, sink, tracker);
    (started.unwrap(), notices)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures: cargo xtask bench gateway"]
async fn what_a_gateway_adds_to_a_streamed_answer() {
    let tracker = Tracker::new();
    let server = ModelServer::start(&tracker).await;
    let base = server.base("long");
    let (gateway, mut notices) = gateway(&tracker, base.clone());
    let metered = tracker.spawn("count", async move {
        let mut count = 0;
        while let Some(notice) = notices.recv().await {
            assert!(matches!(notice, Notice::Usage(usage) if usage.is_complete));
            count += 1;
        }
        count
    });
    let mut direct = Way::open(&tracker, &base, "real-key").await;
    let mut through = Way::open(&tracker, gateway.base_url(), TOKEN).await;
    let body = json!({
        "model": "claude-fake-1", "stream": true, "max_tokens": 9,
        "messages": [{ "role": "user", "content": "x".repeat(REQUEST_BYTES) }],
    });
    let body = Bytes::from(body.to_string());
    let count = rounds();
    for round in 0..WARM + count {
        let ways = if round % 2 == 0 {
            [&mut direct, &mut through]
        } else {
            [&mut through, &mut direct]
        };
        let [one, other] = ways;
        assert_eq!(one.ask(&body).await, other.ask(&body).await);
    }
    drop(gateway);
    assert_eq!(metered.await.unwrap(), WARM + count);
    let measured = |times: &[Duration]| Times::of(times[WARM..].to_vec());
    let first = compare(
        "first byte",
        &measured(&direct.first),
        &measured(&through.first),
    );
    let last = compare(
        "last byte",
        &measured(&direct.last),
        &measured(&through.last),
    );
    report(&json!({
        "bench": "gateway", "rounds": count, "requestBytes": body.len(),
        "baseline": "the same request straight to the provider", "goal": "p50 addedMs <= 2",
        "firstByte": first, "lastByte": last,
    }));
}
