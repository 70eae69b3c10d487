//! The daemon, over its UNIX socket: one request, one connection, JSON both ways.

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::error::{CliError, CliResult, Kind, OrFail};
use crate::api::dto::{Problem, ProblemCode};

/// A daemon that may or may not answer.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
}

/// How long an ordinary answer may take. What waits on purpose adds its own time.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

impl Client {
    /// The daemon on `socket`. It is not asked anything yet.
    ///
    /// # Errors
    /// When the system has no room for an event loop.
    pub(crate) fn new(socket: PathBuf) -> CliResult<Self> {
        let runtime = runtime()?;
        Ok(Self { socket, runtime })
    }

    /// Reads `path`.
    ///
    /// # Errors
    /// When no daemon answers, or with the problem that it answers.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> CliResult<T> {
        self.exchange(Method::GET, path, Bytes::new(), ANSWER_MAX)
    }

    /// Reads `path`, whose answer may take `wait` longer than others.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(crate) fn get_waiting<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> CliResult<T> {
        self.exchange(
            Method::GET,
            path,
            Bytes::new(),
            ANSWER_MAX.saturating_add(wait),
        )
    }

    /// Sends `body` to `path`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(crate) fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> CliResult<T> {
        self.post_within(path, body, ANSWER_MAX)
    }

    /// Sends `body` to `path`, and waits at most `limit` for the answer.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub(crate) fn post_within<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        limit: Duration,
    ) -> CliResult<T> {
        let body = serde_json::to_vec(body)
            .or_fail(Kind::Internal, "failed to write a request as JSON")?;
        self.exchange(Method::POST, path, body.into(), limit)
    }

    fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> CliResult<T> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "homeostat")
            .header(CONNECTION, "close")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .or_fail(Kind::Internal, "failed to form a request")?;
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, self.converse(request)).await });
        let (status, body) = answer.unwrap_or_else(|_elapsed| {
            let message = format!("the daemon did not answer within {} s", limit.as_secs());
            Err(self.unreachable(message))
        })?;
        if status.is_success() {
            return serde_json::from_slice(&body).or_fail(
                Kind::Unreachable,
                "the daemon's answer is not of the form that this version reads",
            );
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(of_problem(&problem)),
            Err(_not_ours) => Err(self.unreachable(format!("the daemon answers {status}"))),
        }
    }

    /// Sends the request on a connection of its own and reads the answer to its end.
    async fn converse(&self, request: Request<Full<Bytes>>) -> CliResult<(StatusCode, Bytes)> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| self.unreachable("no daemon answers").because(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        let exchange = async move {
            let response = sender.send_request(request).await?;
            Ok::<_, hyper::Error>(read(response).await)
        };
        // The connection ends when the exchange has dropped its sender.
        let (answer, _closed) = tokio::join!(exchange, connection);
        answer
            .map_err(|error| self.broken(&error))?
            .map_err(|error| self.broken(error.as_ref()))
    }

    fn broken(&self, error: &dyn std::error::Error) -> CliError {
        self.unreachable("the daemon broke off").because(error)
    }

    fn unreachable(&self, message: impl Into<String>) -> CliError {
        CliError::new(Kind::Unreachable, message).hint(format!(
            "is `homeostat daemon` running? It listens on {}",
            self.socket.display()
        ))
    }
}

/// An event loop on this thread.
///
/// # Errors
/// When the system has no room for one.
pub(crate) fn runtime() -> CliResult<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail(Kind::Usage, "failed to start an event loop")
}

async fn read(
    response: Response<Incoming>,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    Ok((status, body.collect().await?.to_bytes()))
}

/// The error of a command that was answered so.
pub(crate) fn of_problem(problem: &Problem) -> CliError {
    let kind = match problem.code {
        ProblemCode::NotFound => Kind::NotFound,
        ProblemCode::BadRequest | ProblemCode::Ambiguous => Kind::Usage,
        ProblemCode::Forbidden | ProblemCode::Refused => Kind::Refused,
        ProblemCode::Unavailable => Kind::Unreachable,
        ProblemCode::Internal => Kind::Internal,
    };
    let error = CliError::new(kind, problem.message.clone());
    problem
        .details
        .iter()
        .fold(error, |error, detail| error.hint(detail.clone()))
}
