//! A model's provider on loopback: Anthropic Messages as they are on the wire, streamed or in one
//! piece, with every fault that one can have. The first part of the path, `/s/<scenario>`, says
//! which; the last prompt says by markers what the model does: `FILE=<path>` writes that file,
//! `CMD=<rest of the line>` runs that command, `CALL=<tool> <JSON>` calls that tool, and without
//! any it only says something.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use axum::serve::ListenerExt;
use homeostat::task::Tracker;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What one answer uses, whatever it says.
pub(crate) const INPUT: u64 = 1_200;
pub(crate) const CACHED_WRITE: u64 = 300;
pub(crate) const CACHED_READ: u64 = 800;
pub(crate) const OUTPUT: u64 = 40;

/// Of how many pieces of text the answer of the scenario `long` is made.
const LONG_BLOCKS: usize = 100;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The server; it ends with its tracker.
#[derive(Clone, Debug)]
pub(crate) struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    /// Lets the next piece of an answer of the scenario `step` go.
    step: Notify,
}

impl ModelServer {
    pub(crate) async fn start(tracker: &Tracker) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&shared));
        // As a provider's servers do: small pieces go out as they come.
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        let over = tracker.child_token();
        drop(tracker.spawn("model server", async move {
            let server = axum::serve(listener, router);
            tokio::select! {
                served = server => served.unwrap(),
                () = over.cancelled() => {}
            }
        }));
        Self { address, shared }
    }

    /// The base URL of a scenario.
    pub(crate) fn base(&self, scenario: &str) -> String {
        format!("http://{}/s/{scenario}", self.address)
    }

    /// Every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How often a model of that scenario was asked for an answer.
    pub(crate) fn asked(&self, scenario: &str) -> usize {
        asked(&self.shared, scenario)
    }

    /// Lets one piece go, of an answer that goes piece by piece.
    pub(crate) fn step(&self) {
        self.shared.step.notify_one();
    }
}

fn asked(shared: &Shared, scenario: &str) -> usize {
    let path = format!("/s/{scenario}/v1/messages");
    let seen = shared.seen.lock().unwrap();
    let of = |seen: &&Seen| seen.path.split('?').next() == Some(path.as_str());
    seen.iter().filter(of).count()
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    let path = head.uri.to_string();
    shared.seen.lock().unwrap().push(Seen {
        path: path.clone(),
        headers: head.headers,
        body: body.clone(),
    });
    if head.method == Method::HEAD {
        return Ok(Response::new(Body::empty()));
    }
    let rest = path.strip_prefix("/s/").unwrap_or_default();
    let (scenario, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if rest.starts_with("v1/messages/count_tokens") {
        return Ok(whole(StatusCode::OK, &json!({ "input_tokens": 100 })));
    }
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(answer(scenario, &request, shared).await)
}

fn whole(status: StatusCode, value: &Value) -> Response<Body> {
    with_type(status, "application/json", Body::from(value.to_string()))
}

fn with_type(status: StatusCode, kind: &str, body: Body) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .header("request-id", "req_fake_1")
        .body(body)
        .unwrap()
}

/// The refusal, with the wish to be left alone.
fn asking(mut refusal: Response<Body>, wait: &'static str) -> Response<Body> {
    let wait = axum::http::HeaderValue::from_static(wait);
    refusal.headers_mut().insert("retry-after", wait);
    refusal
}

async fn answer(scenario: &str, request: &Value, shared: Arc<Shared>) -> Response<Body> {
    let status = |code: u16, kind: &str| {
        let value = json!({ "type": "error", "error": { "type": kind, "message": format!("fake {code}") } });
        whole(StatusCode::from_u16(code).unwrap(), &value)
    };
    match scenario {
        "e400" => return status(400, "invalid_request_error"),
        "e403" => return status(403, "permission_error"),
        "e401" => return status(401, "authentication_error"),
        "e429" => return status(429, "rate_limit_error"),
        "ra429" => return asking(status(429, "rate_limit_error"), "3600"),
        "ra429-then-ok" if asked(&shared, scenario) == 1 => {
            return asking(status(429, "rate_limit_error"), "1");
        }
        "e500" => return status(500, "api_error"),
        "e529" => return status(529, "overloaded_error"),
        "garbage" => {
            let page = "<html><body>log in</body></html>";
            return with_type(StatusCode::OK, "text/html", Body::from(page));
        }
        "hang" => std::future::pending().await,
        _ => {}
    }
    let blocks = plan(scenario, request);
    let stop = match (scenario, blocks.last()) {
        ("max-tokens", _) => "max_tokens",
        (_, Some(block)) if block["type"] == "tool_use" => "tool_use",
        _ => "end_turn",
    };
    if request["stream"] != true {
        let mut usage = usage();
        usage["output_tokens"] = json!(OUTPUT);
        return whole(
            StatusCode::OK,
            &json!({
                "id": id_of("msg", request), "type": "message", "role": "assistant",
                "model": request["model"], "content": blocks, "stop_reason": stop,
                "stop_sequence": null, "usage": usage,
            }),
        );
    }
    let mut pieces: VecDeque<_> = match scenario {
        "bad-sse" => ["event: message_start\ndata: {not json\n\n", "data: }}}\n\n"]
            .map(|text| Step::Send(text.into()))
            .into(),
        _ => events(request, &blocks, stop),
    };
    match scenario {
        "cut" => {
            pieces.truncate(4);
            pieces.push_back(Step::Cut);
        }
        "stall" => {
            pieces.truncate(4);
            pieces.push_back(Step::Stall);
        }
        "sse-error" => {
            pieces.truncate(4);
            let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
            pieces.push_back(event(&error));
        }
        "step" => {
            // The head goes out with the first piece.
            pieces = pieces
                .into_iter()
                .flat_map(|step| [Step::Wait, step])
                .collect();
        }
        _ => {}
    }
    let script = Script {
        pieces,
        waiting: None,
        shared,
    };
    with_type(StatusCode::OK, "text/event-stream", Body::new(script))
}

fn usage() -> Value {
    json!({
        "input_tokens": INPUT, "cache_creation_input_tokens": CACHED_WRITE,
        "cache_read_input_tokens": CACHED_READ, "output_tokens": 1,
        "service_tier": "standard",
    })
}

/// The text of the last message of the user that holds a marker, and how many tools answered
/// after it.
fn last_prompt(request: &Value) -> (String, usize) {
    let (mut prompt, mut results) = (String::new(), 0);
    for message in request["messages"].as_array().into_iter().flatten() {
        let texts: Vec<&str> = match &message["content"] {
            Value::String(text) => vec![text],
            content => content
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|block| block["text"].as_str().or_else(|| told(block)))
                .collect(),
        };
        let answers = message["content"].as_array().into_iter().flatten();
        results += answers
            .filter(|block| block["type"] == "tool_result")
            .count();
        let text = texts.join("\n");
        if message["role"] == "user"
            && ["FILE=", "CMD=", "CALL="]
                .iter()
                .any(|mark| text.contains(mark))
        {
            (prompt, results) = (text, 0);
        }
    }
    (prompt, results)
}

/// What the user said while a tool ran: Claude Code puts it behind the tool's answer.
fn told(block: &Value) -> Option<&str> {
    let answer = block["content"].as_str()?;
    let (_, told) = answer.split_once("The user sent a new message while you were working:")?;
    Some(told)
}

/// An id that no other answer in the conversation has.
fn id_of(kind: &str, request: &Value) -> String {
    let turns = request["messages"].as_array().map_or(0, Vec::len);
    format!("{kind}_fake_{turns}")
}

/// What the model says and calls.
fn plan(scenario: &str, request: &Value) -> Vec<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let tool = |name: &str, input: Value| json!({ "type": "tool_use", "id": id_of("toolu", request), "name": name, "input": input });
    if scenario == "silent" {
        return Vec::new();
    }
    if scenario == "long" {
        return vec![text("A few words, and then a few more."); LONG_BLOCKS];
    }
    let (prompt, results) = last_prompt(request);
    let marker = |mark: &str, end: fn(char) -> bool| {
        let (_, rest) = prompt.rsplit_once(mark)?;
        let value = rest.split(end).next().unwrap_or_default();
        Some(value.to_owned())
    };
    let has = |name: &str| {
        let tools = request["tools"].as_array().into_iter().flatten();
        tools.into_iter().any(|tool| tool["name"] == name)
    };
    if results > 0 {
        return vec![text("Done: the fake model finished the task.")];
    }
    if let Some(path) = marker("FILE=", char::is_whitespace)
        && has("Write")
    {
        let input = json!({ "file_path": path, "content": "hello from the fake model\n" });
        return vec![text("I will use a tool."), tool("Write", input)];
    }
    if let Some(command) = marker("CMD=", |c| c == '\n')
        && has("Bash")
    {
        let input = json!({ "command": command, "description": "run a command" });
        return vec![text("I will use a tool."), tool("Bash", input)];
    }
    if let Some(call) = marker("CALL=", |c| c == '\n')
        && let Some((name, input)) = call.split_once(' ')
        && has(name)
    {
        let input = serde_json::from_str(input).unwrap();
        return vec![text("I will use a tool."), tool(name, input)];
    }
    vec![text("A plain answer.")]
}

fn event(value: &Value) -> Step {
    let kind = value["type"].as_str().unwrap();
    Step::Send(format!("event: {kind}\ndata: {value}\n\n").into())
}

fn events(request: &Value, blocks: &[Value], stop: &str) -> VecDeque<Step> {
    let mut values = vec![
        json!({ "type": "message_start", "message": {
            "id": id_of("msg", request), "type": "message", "role": "assistant", "model": request["model"],
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage(),
        } }),
        json!({ "type": "ping" }),
    ];
    for (index, block) in blocks.iter().enumerate() {
        let (start, delta) = match block["type"].as_str() {
            Some("text") => (
                json!({ "type": "text", "text": "" }),
                json!({ "type": "text_delta", "text": block["text"] }),
            ),
            _ => {
                let mut start = block.clone();
                start["input"] = json!({});
                let input = block["input"].to_string();
                (
                    start,
                    json!({ "type": "input_json_delta", "partial_json": input }),
                )
            }
        };
        values
            .push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        values.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        values.push(json!({ "type": "content_block_stop", "index": index }));
    }
    values.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": { "output_tokens": OUTPUT } }));
    values.push(json!({ "type": "message_stop" }));
    values.iter().map(event).collect()
}

/// What a stream does next.
#[derive(Debug)]
enum Step {
    Send(Bytes),
    /// Wait to be told to go on.
    Wait,
    /// Say nothing any more.
    Stall,
    /// Break the connection, once what was sent before has gone out.
    Cut,
    /// Break it now.
    Broken,
}

struct Script {
    pieces: VecDeque<Step>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    shared: Arc<Shared>,
}

impl hyper::body::Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                if waiting.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.waiting = None;
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Step::Wait) => {
                    let shared = Arc::clone(&self.shared);
                    self.waiting = Some(Box::pin(async move { shared.step.notified().await }));
                }
                Some(Step::Stall) => self.waiting = Some(Box::pin(std::future::pending())),
                Some(Step::Cut) => {
                    let pause = tokio::time::sleep(Duration::from_millis(50));
                    self.pieces.push_front(Step::Broken);
                    self.waiting = Some(Box::pin(pause));
                }
                Some(Step::Broken) => {
                    return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
                }
            }
        }
    }
}
