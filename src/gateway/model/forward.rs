//! A request on its way to the provider.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderMap};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use jiff::fmt::rfc2822;
use serde::Deserialize;
use tokio::time::timeout;

use super::answer::Refusal;
use super::body::{Answer, Outlets};
use super::meter::Meter;
use super::{Gate, REQUEST_BYTES_MAX, TroubleKind, UpstreamTrouble};
use crate::model::backoff::RETRY_AFTER_MAX;

/// Headers that are about one connection, and end with it.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a request may not carry out: whose it is, and what our own request says itself.
const NOT_SENT: &[&str] = &[
    "accept-encoding",
    "authorization",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "x-api-key",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// The longest id or type of the provider's that is passed on, in bytes.
const WORD_BYTES_MAX: usize = 200;

pub(super) async fn handle(
    State(gate): State<Arc<Gate>>,
    request: Request<Body>,
) -> Response<Body> {
    match gate.handle(request).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(),
    }
}

/// The part of a request's body that decides how long its answer may take.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    stream: bool,
}

impl Gate {
    async fn handle(self: &Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Refusal> {
        let path = self.admit(&request)?;
        if request.method() == Method::HEAD && path.is_empty() {
            return Ok(Response::new(Body::empty()));
        }
        if !self.paths.contains(&path.as_str()) || request.method() != Method::POST {
            let what = format!("{} {path} is not passed on", request.method());
            return Err(Refusal::new(StatusCode::NOT_FOUND, "not_found_error", what));
        }
        let mut outlets = self.outlets().await?;
        let is_metered = !path.ends_with("/count_tokens");
        let uri = self.target(&path, request.uri().query())?;
        let (head, body) = request.into_parts();
        let body = self.receive(body).await?;
        let is_stream =
            is_metered && serde_json::from_slice(&body).is_ok_and(|Asked { stream }| stream);
        let headers = self.outgoing(&head.headers);
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let limit = match is_stream {
            true => self.timeouts.first_byte,
            false => self.timeouts.whole,
        };
        let answer = self.ask(request, limit, &mut outlets).await?;
        self.answer(answer, is_metered, outlets)
    }

    /// The path below the run's base, if the request is the run's and the run may ask.
    fn admit(&self, request: &Request<Body>) -> Result<String, Refusal> {
        let not_ours = || {
            let status = StatusCode::UNAUTHORIZED;
            Refusal::new(status, "authentication_error", "not a run's token")
        };
        let path = request.uri().path().strip_prefix("/r/");
        let path = path.ok_or_else(not_ours)?;
        let (token, path) = path.split_once('/').unwrap_or((path, ""));
        let is_bare = request.method() == Method::HEAD;
        if !self.token.is(token.as_bytes()) || !(is_bare || self.is_shown(request.headers())) {
            return Err(not_ours());
        }
        if let Some(reason) = self.closed() {
            return Err(Refusal::closed(&reason));
        }
        Ok(match path {
            "" => String::new(),
            path => format!("/{path}"),
        })
    }

    /// Whether the token is shown as the key, too.
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let key = headers.get("x-api-key").map(HeaderValue::as_bytes);
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        key.or(bearer).is_some_and(|shown| self.token.is(shown))
    }

    /// Room for what the request may have to report.
    async fn outlets(&self) -> Result<Outlets, Refusal> {
        let room = || async { self.sink.clone().reserve_owned().await };
        let (Ok(usage), Ok(trouble)) = (room().await, room().await) else {
            return Err(Refusal::closed("the run is over"));
        };
        Ok(Outlets {
            usage: Some(usage),
            trouble: Some(trouble),
        })
    }

    fn target(&self, path: &str, query: Option<&str>) -> Result<Uri, Refusal> {
        let base = self.upstream.path().trim_end_matches('/');
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let mut parts = self.upstream.clone().into_parts();
        parts.path_and_query =
            Some(format!("{base}{path}{query}").parse().map_err(|_ignored| {
                let message = "the request's query is not one";
                Refusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
            })?);
        Uri::from_parts(parts).map_err(|error| {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                error.to_string(),
            )
        })
    }

    /// The whole request. A run that stops sending in the middle of it has no time to lose.
    async fn receive(&self, body: Body) -> Result<Bytes, Refusal> {
        let whole = Limited::new(body, REQUEST_BYTES_MAX).collect();
        match timeout(self.timeouts.idle, whole).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "request_too_large",
                format!("the request is longer than {REQUEST_BYTES_MAX} bytes"),
            )),
            Ok(Err(_)) | Err(_) => Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                "the request did not come whole",
            )),
        }
    }

    /// The run's headers without those that are not to go out, and the real key.
    fn outgoing(&self, given: &HeaderMap) -> HeaderMap {
        let mut headers = without_hops(given);
        for name in NOT_SENT {
            headers.remove(*name);
        }
        // What is compressed can't be metered.
        let plain = HeaderValue::from_static("identity");
        headers.insert(header::ACCEPT_ENCODING, plain);
        headers.insert(self.key.name.clone(), self.key.value.clone());
        headers
    }

    /// The head of the answer.
    async fn ask(
        &self,
        request: Request<Body>,
        limit: Duration,
        outlets: &mut Outlets,
    ) -> Result<Response<Incoming>, Refusal> {
        let asked = timeout(limit, self.client.pool.request(request));
        let answered = tokio::select! {
            answered = asked => answered,
            () = self.cut.cancelled() => return Err(self.cut_off()),
        };
        match answered {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "provider unreachable"
                );
                outlets.report(trouble(TroubleKind::Unreachable));
                let message = "the model's provider can't be reached";
                Err(Refusal::upstream(StatusCode::BAD_GATEWAY, message))
            }
            Err(_elapsed) => {
                outlets.report(trouble(TroubleKind::FirstByte));
                let message = format!(
                    "the model's provider did not begin to answer within {} s",
                    limit.as_secs()
                );
                Err(Refusal::upstream(StatusCode::GATEWAY_TIMEOUT, message))
            }
        }
    }

    /// What a request is told that is ended on its way.
    pub(super) fn cut_off(&self) -> Refusal {
        let reason = self.closed();
        Refusal::closed(reason.as_deref().unwrap_or("the run is over"))
    }

    fn answer(
        self: &Arc<Self>,
        answer: Response<Incoming>,
        is_metered: bool,
        mut outlets: Outlets,
    ) -> Result<Response<Body>, Refusal> {
        let (mut head, body) = answer.into_parts();
        let request_id = word(&head.headers, "request-id");
        let mut meter = Meter::Nothing;
        if head.status.is_success() {
            let kind = word(&head.headers, "content-type").unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            meter = match (kind, is_metered) {
                ("text/event-stream", true) => Meter::stream(),
                ("application/json", true) => Meter::whole(),
                ("application/json", false) => Meter::Nothing,
                (other, _) => {
                    let other = other.to_owned();
                    let message =
                        format!("the model's provider answered with {other:?}, which is no answer");
                    outlets.report(UpstreamTrouble {
                        request_id,
                        ..trouble(TroubleKind::NoAnswer(other))
                    });
                    return Err(Refusal::upstream(StatusCode::BAD_GATEWAY, message));
                }
            };
        } else if is_trouble(head.status) {
            outlets.report(UpstreamTrouble {
                kind: TroubleKind::Status(head.status.as_u16()),
                retry_after: retry_after(&head.headers),
                request_id: request_id.clone(),
            });
        }
        head.headers = without_hops(&head.headers);
        head.headers.remove(header::SET_COOKIE);
        if matches!(meter, Meter::Stream(_)) {
            // An error may be added at its end.
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let answer = Answer::new(body, meter, Arc::clone(self), request_id, outlets);
        Ok(Response::from_parts(head, Body::new(answer)))
    }
}

fn trouble(kind: TroubleKind) -> UpstreamTrouble {
    UpstreamTrouble {
        kind,
        retry_after: None,
        request_id: None,
    }
}

/// Whether a status is one that the planner has to know.
fn is_trouble(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
        )
}

/// The headers that are not about the connection; those that it names are.
fn without_hops(given: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = given
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut headers = given.clone();
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
    for name in named {
        headers.remove(name);
    }
    headers
}

/// A header that is a word of the provider's, as far as it is text.
fn word(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    // Text of a header is ASCII.
    Some(text[..text.len().min(WORD_BYTES_MAX)].to_owned())
}

/// How long the provider asks to be left alone: in seconds, or until a date by its own clock, which
/// it tells along. At most [`RETRY_AFTER_MAX`].
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim());
    let word = text(header::RETRY_AFTER)?;
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let wait = if is_number {
        // More than fits is more than anyone waits.
        Duration::from_secs(word.parse().unwrap_or(u64::MAX))
    } else {
        let date = |text| rfc2822::parse(text).ok();
        let (until, now) = (date(word)?, date(text(header::DATE)?)?);
        // What is over already asks for nothing.
        Duration::try_from(until.duration_since(&now)).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_MAX)).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::HeaderMap;

    use super::retry_after;

    #[test]
    fn a_provider_says_in_two_ways_how_long() {
        const DATE: &str = "Mon, 30 Nov 2026 12:00:00 GMT";
        for (word, date, seconds) in [
            ("3600", DATE, Some(3600)),
            (" 7 ", "", Some(7)),
            ("86401", DATE, Some(86_400)),
            ("99999999999999999999999", DATE, Some(86_400)),
            ("Mon, 30 Nov 2026 12:01:30 GMT", DATE, Some(90)),
            ("Wed, 30 Dec 2026 12:00:00 GMT", DATE, Some(86_400)),
            // Over already, or now.
            ("Mon, 30 Nov 2026 11:59:00 GMT", DATE, None),
            ("0", DATE, None),
            // Nobody knows how far away that is.
            ("Mon, 30 Nov 2026 12:01:30 GMT", "", None),
            ("Mon, 30 Nov 2026 12:01:30 GMT", "noon", None),
            ("-5", DATE, None),
            ("soon", DATE, None),
            ("", DATE, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", word.parse().unwrap());
            if !date.is_empty() {
                headers.insert("date", date.parse().unwrap());
            }
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(&headers), expected, "{word:?} at {date:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
