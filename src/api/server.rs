//! The routes, and the socket that they are served on.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use thiserror::Error;
use tokio::net::UnixListener;

use super::control::Control;
use super::peer::{Peer, require_admin};
use super::problem::Failure;
use super::{act, look};
use crate::task::Tracker;

/// Why the socket is not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Somebody else answers on it.
    #[error("listen on {}: another process answers there", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket is in the way.
    #[error("listen on {}: it exists and is no socket", path.display())]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
    },
    /// The system refused.
    #[error("listen on {}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Serves the API on the UNIX socket `path`, for the daemon's own user and root, until `tracker` is
/// cancelled. A socket that a dead daemon left is replaced.
///
/// # Errors
/// When the socket cannot be made.
///
/// # Panics
/// Outside a tokio runtime.
pub fn serve(path: &Path, control: Control, tracker: &Tracker) -> Result<(), ServeError> {
    let listener = bind(path)?;
    let service = router(control, tracker.clone()).into_make_service_with_connect_info::<Peer>();
    let token = tracker.child_token();
    let server = axum::serve(listener, service).with_graceful_shutdown(token.cancelled_owned());
    drop(tracker.spawn("api", async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the socket is not served any more");
        }
    }));
    Ok(())
}

/// Every route.
fn router(control: Control, tracker: Tracker) -> Router {
    let own = rustix::process::geteuid().as_raw();
    Router::new()
        .route("/healthz", get(look::health))
        .route("/readyz", get(look::ready))
        .route("/v1/surroundings", get(look::surroundings))
        .route("/v1/objects", get(look::objects))
        .route("/v1/objects/{kind}", get(look::objects_of_kind))
        .route("/v1/objects/{kind}/{name}", get(look::object))
        .route("/v1/runs", get(look::runs))
        .route("/v1/runs/{run}", get(look::run))
        .route("/v1/runs/{run}/events", get(look::run_events))
        .route("/v1/runs/{run}/transcript", get(look::transcript))
        .route("/v1/runs/{run}/prompt", get(look::prompt))
        .route("/v1/runs/{run}/trace", get(look::trace))
        .route("/v1/runs/{run}/wait", get(look::wait))
        .route("/v1/runs/{run}/stop", post(act::stop))
        .route("/v1/runs/{run}/steer", post(act::steer))
        .route("/v1/dispatch", post(act::dispatch))
        .route("/v1/messages", post(act::message))
        .route("/v1/agents/{agent}/pause", post(act::pause))
        .route("/v1/agents/{agent}/resume", post(act::resume))
        .route("/v1/spaces/{space}/takeover", post(act::takeover))
        .route("/v1/spaces/{space}/handback", post(act::handback))
        .route("/v1/poke", post(act::poke))
        .route("/v1/reconcile", post(act::reconcile))
        .route("/v1/source", get(look::source))
        .route("/v1/revisions/{revision}/approve", post(act::approve))
        .route("/v1/why", get(look::why))
        .route("/v1/budget", get(look::budget))
        .route("/v1/events", get(look::events))
        .fallback(nowhere)
        .layer(from_fn_with_state(tracker, finish))
        .layer(from_fn_with_state(own, require_admin))
        .with_state(control)
}

/// Finishes a request that acts, also when its client goes away meanwhile: a row that was written
/// has its lever pulled.
async fn finish(State(tracker): State<Tracker>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let answer = tracker.spawn("request", next.run(request)).await;
    answer.unwrap_or_else(|_panicked_and_logged| {
        Failure::internal("the request could not be finished").into_response()
    })
}

async fn nowhere(uri: Uri) -> Failure {
    std::future::ready(Failure::not_found(format!("there is no {}", uri.path()))).await
}

/// Only its owner may open the socket, and root.
fn bind(path: &Path) -> Result<UnixListener, ServeError> {
    clear(path)?;
    let listen = || {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    listen().map_err(|source| ServeError::Listen {
        path: path.to_owned(),
        source,
    })
}

/// Removes a socket on which nobody answers.
fn clear(path: &Path) -> Result<(), ServeError> {
    let path_owned = || path.to_owned();
    let failed = |source| ServeError::Listen {
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ServeError::NotASocket { path: path_owned() });
        }
        Ok(_socket) => {}
    }
    if UnixStream::connect(path).is_ok() {
        return Err(ServeError::Taken { path: path_owned() });
    }
    fs::remove_file(path).map_err(failed)
}
