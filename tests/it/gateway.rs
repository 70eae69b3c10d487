//! The model gateway between a client like an agent's and a provider with every fault.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use homeostat::credential::{Scheme, Secret};
use homeostat::gateway::{
    ANTHROPIC_PATHS, Client, GatewayError, GatewaySpec, KeyError, MeteredUsage, ModelGateway,
    Notice, RunToken, Timeouts, TroubleKind, UpstreamKey, UpstreamTrouble,
};
use homeostat::model::event::UsageReport;
use homeostat::task::Tracker;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::support::model_server::{CACHED_READ, CACHED_WRITE, INPUT, ModelServer, OUTPUT};

const TOKEN: &str = "0123456789abcdefghijkl";
/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);

fn key(text: &str, scheme: Scheme) -> Result<UpstreamKey, KeyError> {
    UpstreamKey::new(&Secret::new(text.to_owned()), scheme)
}

struct Rig {
    tracker: Tracker,
    server: ModelServer,
    client: Client,
}

/// A run's gateway, and what it reports.
struct Run {
    gateway: ModelGateway,
    notices: mpsc::Receiver<Notice>,
    token: String,
}

impl Rig {
    async fn new() -> Self {
        let tracker = Tracker::new();
        Self {
            server: ModelServer::start(&tracker).await,
            client: Client::new(&tracker).unwrap(),
            tracker,
        }
    }

    fn run(&self, scenario: &str) -> Run {
        self.run_of(TOKEN, &self.server.base(scenario), Timeouts::default())
    }

    fn run_of(&self, token: &str, upstream: &str, timeouts: Timeouts) -> Run {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let spec = GatewaySpec {
            token: RunToken::new(token).unwrap(),
            upstream: upstream.to_owned(),
            key: key("real-key", Scheme::ApiKey).unwrap(),
            timeouts,
            paths: ANTHROPIC_PATHS,
        };
        let (sink, notices) = mpsc::channel(8);
        let gateway =
            ModelGateway::start(listener, spec, self.client.clone(), sink, &self.tracker).unwrap();
        Run {
            gateway,
            notices,
            token: token.to_owned(),
        }
    }
}

/// What came back.
#[derive(Debug)]
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
    /// Whether the body came to its end.
    is_whole: bool,
}

impl Run {
    fn request(&self, path: &str, body: &Value) -> Request<Body> {
        Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.gateway.base_url()))
            .header("x-api-key", &self.token)
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap()
    }

    async fn ask(&self, stream: bool) -> Got {
        let body = json!({
            "model": "claude-fake-1", "stream": stream, "max_tokens": 9,
            "messages": [{ "role": "user", "content": "hello" }],
        });
        got(send(self.request("/v1/messages?beta=true", &body)).await).await
    }

    async fn notice(&mut self) -> Notice {
        let next = timeout(LONG, self.notices.recv()).await;
        next.expect("a notice in time").expect("an open channel")
    }

    /// Waits until everything is reported, and returns it.
    async fn rest(mut self) -> Vec<Notice> {
        drop(self.gateway);
        let mut notices = Vec::new();
        while let Some(notice) = timeout(LONG, self.notices.recv()).await.expect("an end") {
            notices.push(notice);
        }
        notices
    }
}

/// Sends a request on a connection of its own.
async fn send(request: Request<Body>) -> hyper::Response<Incoming> {
    let authority = request.uri().authority().unwrap().to_string();
    let stream = TcpStream::connect(&authority).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    drop(Tracker::new().spawn("client", async move { drop(connection.await) }));
    let (mut head, body) = request.into_parts();
    head.headers.insert("host", authority.parse().unwrap());
    head.uri = head.uri.path_and_query().unwrap().as_str().parse().unwrap();
    sender
        .send_request(Request::from_parts(head, body))
        .await
        .unwrap()
}

async fn got(response: hyper::Response<Incoming>) -> Got {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    let mut is_whole = true;
    while let Some(frame) = timeout(LONG, body.frame()).await.expect("an end") {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Err(_) => {
                is_whole = false;
                break;
            }
        }
    }
    Got {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(bytes).unwrap(),
        is_whole,
    }
}

fn usage(output: u64, is_complete: bool) -> Notice {
    Notice::Usage(MeteredUsage {
        request_id: Some("req_fake_1".to_owned()),
        model: Some("claude-fake-1".to_owned()),
        usage: UsageReport {
            input_tokens: INPUT,
            output_tokens: output,
            cached_read_tokens: CACHED_READ,
            cached_write_tokens: CACHED_WRITE,
            ..UsageReport::default()
        },
        is_complete,
    })
}

fn trouble(kind: TroubleKind) -> Notice {
    Notice::Trouble(UpstreamTrouble {
        kind,
        retry_after: None,
        request_id: Some("req_fake_1".to_owned()),
    })
}

fn error_kind(got: &Got) -> String {
    let value: Value = serde_json::from_str(&got.body).expect("an error of the API");
    assert_eq!(value["type"], "error", "{got:?}");
    value["error"]["type"].as_str().expect("a type").to_owned()
}

#[tokio::test]
async fn an_answer_goes_through_unchanged_and_is_metered() {
    let rig = Rig::new().await;
    for stream in [true, false] {
        let run = rig.run("ok");
        let direct = Request::builder()
            .method(Method::POST)
            .uri(rig.server.base("ok") + "/v1/messages")
            .body(Body::from(
                json!({ "model": "claude-fake-1", "stream": stream, "messages": [{}] }).to_string(),
            ))
            .unwrap();
        let expected = got(send(direct).await).await;
        let answer = run.ask(stream).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.body, expected.body);
        assert_eq!(
            answer.headers["content-type"],
            expected.headers["content-type"]
        );
        assert_eq!(answer.headers["request-id"], "req_fake_1");
        assert_eq!(run.rest().await, [usage(OUTPUT, true)]);
    }
}

#[tokio::test]
async fn the_real_key_goes_out_and_nothing_of_the_runs() {
    let rig = Rig::new().await;
    let run = rig.run("ok");
    let body = json!({ "model": "m" });
    let mut request = run.request("/v1/messages?beta=true", &body);
    for (name, value) in [
        ("authorization", "Bearer stolen"),
        ("cookie", "a=b"),
        ("connection", "keep-alive, x-private"),
        ("x-private", "1"),
        ("proxy-authorization", "Basic x"),
        ("accept-encoding", "gzip"),
        ("anthropic-beta", "one,two"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    assert_eq!(got(send(request).await).await.status, StatusCode::OK);
    let seen = rig.server.seen();
    let [seen] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(seen.path, "/s/ok/v1/messages?beta=true");
    assert_eq!(seen.body, body.to_string());
    let mut headers: Vec<_> = seen
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .filter(|header| !header.starts_with("host: "))
        .collect();
    headers.sort();
    assert_eq!(
        headers,
        [
            "accept-encoding: identity",
            "anthropic-beta: one,two",
            "anthropic-version: 2023-06-01",
            "content-length: 13",
            "content-type: application/json",
            "x-api-key: real-key",
        ]
    );
}

#[tokio::test]
async fn only_the_run_is_served_and_only_what_a_model_is_for() {
    let rig = Rig::new().await;
    let run = rig.run("ok");
    let body = json!({ "model": "m" });
    let base = run.gateway.base_url().to_owned();
    let other = base.replace(TOKEN, "ABCDEFGHIJKLMNOPQRSTUV");
    let request = |method: Method, uri: String, key: Option<&str>| {
        let mut request = run.request("/v1/messages", &body);
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        request.headers_mut().remove("x-api-key");
        if let Some(key) = key {
            request
                .headers_mut()
                .insert("x-api-key", key.parse().unwrap());
        }
        request
    };
    let post = Method::POST;
    let root = base.split("/r/").next().unwrap().to_owned();
    #[rustfmt::skip]
    let table = [
        (Method::HEAD, base.clone(), None, 200),
        (post.clone(), format!("{base}/v1/messages"), Some(TOKEN), 200),
        (post.clone(), format!("{base}/v1/messages/count_tokens?beta=true"), Some(TOKEN), 200),
        (post.clone(), format!("{base}/v1/messages"), None, 401),
        (post.clone(), format!("{base}/v1/messages"), Some("ABCDEFGHIJKLMNOPQRSTUV"), 401),
        (post.clone(), format!("{other}/v1/messages"), Some(TOKEN), 401),
        (Method::HEAD, other, None, 401),
        (post.clone(), format!("{root}/v1/messages"), Some(TOKEN), 401),
        (Method::GET, format!("{root}/"), Some(TOKEN), 401),
        (post.clone(), format!("{base}/v1/files"), Some(TOKEN), 404),
        (post.clone(), format!("{base}/v1/messages/../files"), Some(TOKEN), 404),
        (post, base.clone(), Some(TOKEN), 404),
        (Method::GET, format!("{base}/v1/messages"), Some(TOKEN), 404),
    ];
    for (method, uri, key, status) in table {
        let what = format!("{method} {uri} {key:?}");
        let answer = got(send(request(method, uri, key)).await).await;
        assert_eq!(answer.status.as_u16(), status, "{what}: {answer:?}");
    }
    // A bearer token is as good as a key.
    let mut bearer = request(Method::POST, format!("{base}/v1/messages"), None);
    let value = format!("Bearer {TOKEN}").parse().unwrap();
    bearer.headers_mut().insert("authorization", value);
    assert_eq!(send(bearer).await.status(), StatusCode::OK);
    assert_eq!(rig.server.seen().len(), 3);
    // The count of tokens costs nothing.
    assert_eq!(run.rest().await.len(), 2);
}

#[tokio::test]
async fn a_refusal_goes_through_and_the_planner_hears_of_it() {
    let rig = Rig::new().await;
    let table = [
        ("e400", 400, None),
        ("e401", 401, Some(None)),
        ("e429", 429, Some(None)),
        ("ra429", 429, Some(Some(3600))),
        ("e500", 500, Some(None)),
        ("e529", 529, Some(None)),
    ];
    for (scenario, status, expected) in table {
        let run = rig.run(scenario);
        let answer = run.ask(true).await;
        assert_eq!(answer.status.as_u16(), status);
        assert!(
            answer.body.contains(&format!("fake {status}")),
            "{answer:?}"
        );
        let header = answer.headers.get("retry-after");
        assert_eq!(header.is_some(), scenario == "ra429");
        let expected: Vec<_> = expected
            .into_iter()
            .map(|seconds: Option<u64>| {
                Notice::Trouble(UpstreamTrouble {
                    kind: TroubleKind::Status(status),
                    retry_after: seconds.map(Duration::from_secs),
                    request_id: Some("req_fake_1".to_owned()),
                })
            })
            .collect();
        assert_eq!(run.rest().await, expected, "{scenario}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_of_the_api() {
    let rig = Rig::new().await;
    let run = rig.run("garbage");
    let answer = run.ask(true).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(error_kind(&answer), "api_error");
    assert!(answer.body.contains("text/html"), "{answer:?}");
    let page = TroubleKind::NoAnswer("text/html".to_owned());
    assert_eq!(run.rest().await, [trouble(page)]);

    let run = rig.run("bad-sse");
    assert_eq!(run.ask(true).await.status, StatusCode::OK);
    assert_eq!(run.rest().await, [trouble(TroubleKind::Unmetered)]);

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let run = rig.run_of(TOKEN, &nobody, Timeouts::default());
    let answer = run.ask(true).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    let unreachable = Notice::Trouble(UpstreamTrouble {
        kind: TroubleKind::Unreachable,
        retry_after: None,
        request_id: None,
    });
    assert_eq!(run.rest().await, [unreachable]);
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_an_error_and_is_metered_so_far() {
    let rig = Rig::new().await;
    let run = rig.run("cut");
    let answer = run.ask(true).await;
    assert!(answer.is_whole, "{answer:?}");
    assert!(answer.body.ends_with("in the middle of its answer\"}}\n\n"));
    assert!(answer.body.contains("event: error\n"));
    let expected = [trouble(TroubleKind::Cut), usage(1, false)];
    assert_eq!(run.rest().await, expected);

    let run = rig.run("sse-error");
    let answer = run.ask(true).await;
    assert!(answer.body.contains("overloaded_error"));
    let in_stream = TroubleKind::InStream("overloaded_error".to_owned());
    let expected = [trouble(in_stream), usage(1, false)];
    assert_eq!(run.rest().await, expected);
}

#[tokio::test]
async fn a_provider_that_falls_silent_is_given_up() {
    let rig = Rig::new().await;
    let timeouts = Timeouts {
        first_byte: Duration::from_millis(300),
        whole: Duration::from_millis(300),
        idle: Duration::from_millis(300),
    };
    for stream in [true, false] {
        let run = rig.run_of(TOKEN, &rig.server.base("hang"), timeouts);
        let answer = run.ask(stream).await;
        assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(error_kind(&answer), "timeout_error");
        let first = Notice::Trouble(UpstreamTrouble {
            kind: TroubleKind::FirstByte,
            retry_after: None,
            request_id: None,
        });
        assert_eq!(run.rest().await, [first]);
    }
    let run = rig.run_of(TOKEN, &rig.server.base("stall"), timeouts);
    let answer = run.ask(true).await;
    assert!(
        answer.is_whole && answer.body.contains("timeout_error"),
        "{answer:?}"
    );
    let expected = [trouble(TroubleKind::Idle), usage(1, false)];
    assert_eq!(run.rest().await, expected);
}

#[tokio::test]
async fn pieces_go_on_as_they_come() {
    let rig = Rig::new().await;
    let run = rig.run("step");
    let body = json!({ "model": "claude-fake-1", "stream": true });
    rig.server.step();
    let mut answer = send(run.request("/v1/messages", &body)).await.into_body();
    let mut pieces = 0;
    loop {
        // The next piece is not sent before this one has arrived.
        let Some(frame) = timeout(LONG, answer.frame()).await.expect("a piece") else {
            break;
        };
        let piece = frame.unwrap().into_data().unwrap();
        assert!(piece.starts_with(b"event: ") && piece.ends_with(b"\n\n"));
        pieces += 1;
        rig.server.step();
    }
    assert_eq!(pieces, 7);
    assert_eq!(run.rest().await, [usage(OUTPUT, true)]);
}

#[tokio::test]
async fn an_agent_that_hangs_up_is_metered_so_far() {
    let rig = Rig::new().await;
    let mut run = rig.run("step");
    let body = json!({ "model": "claude-fake-1", "stream": true });
    rig.server.step();
    let mut answer = send(run.request("/v1/messages", &body)).await.into_body();
    assert!(answer.frame().await.expect("the first piece").is_ok());
    drop(answer);
    rig.server.step();
    assert_eq!(run.notice().await, usage(1, false));
}

#[tokio::test]
async fn a_closed_run_is_refused_and_what_is_on_its_way_can_be_cut() {
    let rig = Rig::new().await;
    let mut run = rig.run("step");
    let body = json!({ "model": "claude-fake-1", "stream": true });
    rig.server.step();
    let mut answer = send(run.request("/v1/messages", &body)).await.into_body();
    assert!(answer.frame().await.expect("the first piece").is_ok());

    run.gateway
        .close_admission("the budget of Agent/acme/ada is used up");
    run.gateway.close_admission("a second reason");
    let refused = run.ask(true).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(error_kind(&refused), "permission_error");
    assert!(refused.body.contains("Agent/acme/ada is used up"));
    assert_eq!(refused.headers["x-should-retry"], "false");

    // What is on its way goes on until it is cut.
    rig.server.step();
    assert!(answer.frame().await.expect("another piece").is_ok());
    run.gateway.cut_answers();
    let last = timeout(LONG, answer.frame()).await.expect("an end");
    let last = last.expect("an event").unwrap().into_data().unwrap();
    let last = String::from_utf8(last.to_vec()).unwrap();
    assert!(
        last.contains("event: error") && last.contains("is used up"),
        "{last}"
    );
    assert!(answer.frame().await.is_none());
    assert_eq!(run.notice().await, usage(1, false));
    assert_eq!(rig.server.seen().len(), 1);
}

#[tokio::test]
async fn a_request_too_long_is_refused_before_it_goes_out() {
    let rig = Rig::new().await;
    let run = rig.run("ok");
    let body = json!("x".repeat(homeostat::gateway::REQUEST_BYTES_MAX));
    let answer = got(send(run.request("/v1/messages", &body)).await).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(error_kind(&answer), "request_too_large");
    assert!(rig.server.seen().is_empty());
}

#[tokio::test]
async fn fifty_runs_are_told_apart() {
    let rig = Rig::new().await;
    let ask = |number: usize| {
        let token = format!("{TOKEN}-{number}");
        let upstream = rig.server.base(&format!("ok@{number}"));
        let run = rig.run_of(&token, &upstream, Timeouts::default());
        async move {
            for _ in 0..=number % 3 {
                assert_eq!(
                    run.ask(number.is_multiple_of(2)).await.status,
                    StatusCode::OK
                );
            }
            let notices = run.rest().await;
            assert_eq!(notices, vec![usage(OUTPUT, true); number % 3 + 1]);
        }
    };
    let runs: Vec<_> = (0..50)
        .map(|number| rig.tracker.spawn("run", ask(number)))
        .collect();
    for run in runs {
        run.await.unwrap();
    }
    let seen = rig.server.seen();
    for number in 0..50 {
        let path = format!("/s/ok@{number}/");
        let count = seen
            .iter()
            .filter(|seen| seen.path.starts_with(&path))
            .count();
        assert_eq!(count, number % 3 + 1, "{path}");
    }
}

#[tokio::test]
async fn a_provider_has_an_address() {
    let rig = Rig::new().await;
    for upstream in [
        "",
        "example.com",
        "ftp://example.com",
        "http://",
        "http://h/?q",
        "/v1",
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let spec = GatewaySpec {
            token: RunToken::new(TOKEN).unwrap(),
            upstream: upstream.to_owned(),
            key: key("real", Scheme::Bearer).unwrap(),
            timeouts: Timeouts::default(),
            paths: ANTHROPIC_PATHS,
        };
        let shown = format!("{spec:?}");
        assert!(!shown.contains("real") && !shown.contains(TOKEN), "{shown}");
        let (sink, _notices) = mpsc::channel(8);
        let started = ModelGateway::start(listener, spec, rig.client.clone(), sink, &rig.tracker);
        assert!(
            matches!(started, Err(GatewayError::Upstream { .. })),
            "{upstream}"
        );
    }
    for text in ["", "two\nlines"] {
        assert!(key(text, Scheme::ApiKey).is_err());
        assert!(key(text, Scheme::Bearer).is_err());
    }
}
