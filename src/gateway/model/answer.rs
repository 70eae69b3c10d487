//! Answers of our own, in the words of the provider's API, so that an agent's program understands
//! them: as a whole answer, or as an event at the end of a stream.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::body::Bytes;
use serde_json::json;

/// Which program says so, for people who read an agent's error.
const ORIGIN: &str = "homeostat";

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// The API's word for it.
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
        }
    }

    /// The run may ask for nothing more. An agent's program does not try that again.
    pub(super) fn closed(reason: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", reason)
    }

    /// The provider is not to be had. An agent's program tries that again, a few times.
    pub(super) fn upstream(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            _ => "api_error",
        };
        Self::new(status, kind, message)
    }

    fn json(&self) -> String {
        json!({
            "type": "error",
            "error": { "type": self.kind, "message": format!("{ORIGIN}: {}", self.message) },
        })
        .to_string()
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.json()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if self.status.is_client_error() {
            // What is refused now is refused again.
            let no = HeaderValue::from_static("false");
            headers.insert(HeaderName::from_static("x-should-retry"), no);
        }
        response
    }

    /// The same as the last event of a stream that has begun.
    pub(super) fn event(&self) -> Bytes {
        Bytes::from(format!("\n\nevent: error\ndata: {}\n\n", self.json()))
    }
}
