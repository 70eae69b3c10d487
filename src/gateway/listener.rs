//! The run's side of a gateway: a loopback listener that takes a bounded number of connections,
//! and the token by which a request is the run's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::serve::Listener;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How many connections a run may hold open. Further ones wait to be accepted.
pub const CONNECTIONS_MAX: usize = 64;

/// The shortest token that is taken, in characters.
const TOKEN_CHARS_MIN: usize = 22;

/// Why a listener is not served.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Others than this machine could reach it.
    #[error("serve {address}, which is not a loopback address")]
    NotLoopback {
        /// Where it listens.
        address: SocketAddr,
    },
    /// The system refused.
    #[error("serve a listener")]
    Listen(#[source] io::Error),
}

/// A text that can't be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "take a token that is not at least {TOKEN_CHARS_MIN} letters, digits, dashes or underscores"
)]
pub struct TokenError;

/// What a run shows to be itself. It is a secret of the run, so that it does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct RunToken(String);

impl RunToken {
    /// Takes a text that is safe in a URL and too long to be guessed.
    ///
    /// # Errors
    /// When it is not.
    pub fn new(text: impl Into<String>) -> Result<Self, TokenError> {
        let text = text.into();
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match text.len() >= TOKEN_CHARS_MIN && text.bytes().all(is_safe) {
            true => Ok(Self(text)),
            false => Err(TokenError),
        }
    }

    /// The text, for the run's environment.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is it, in a time that tells nothing but its length.
    pub(super) fn is(&self, shown: &[u8]) -> bool {
        let differing = self
            .0
            .bytes()
            .zip(shown)
            .fold(0, |sum, (own, theirs)| sum | (own ^ theirs));
        self.0.len() == shown.len() && differing == 0
    }
}

impl fmt::Debug for RunToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunToken(…)")
    }
}

/// A loopback listener with a bound on its open connections.
#[derive(Debug)]
pub(super) struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Bounded {
    pub(super) fn new(listener: std::net::TcpListener) -> Result<Self, ListenError> {
        let address = listener.local_addr().map_err(ListenError::Listen)?;
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback { address });
        }
        listener
            .set_nonblocking(true)
            .map_err(ListenError::Listen)?;
        Ok(Self {
            listener: TcpListener::from_std(listener).map_err(ListenError::Listen)?,
            room: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        })
    }

    /// Serves `router` until `over`, and then until its requests are answered.
    pub(super) async fn serve(self, router: Router, over: CancellationToken) -> io::Result<()> {
        axum::serve(self, router)
            .with_graceful_shutdown(over.cancelled_owned())
            .await
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Small events go out as they come.
        stream.set_nodelay(true).ok();
        let connection = Connection {
            stream,
            _room: room,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, and its place among those that may be open.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// None only if the semaphore were closed, which nobody does.
    _room: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_plain_and_does_not_print() {
        let text = "0123456789abcdef_-ABCD";
        let token = RunToken::new(text).unwrap();
        assert!(token.is(text.as_bytes()));
        for other in ["", "0", "0123456789abcdef_-ABCE", "0123456789abcdef_-ABCDE"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "RunToken(…)");
        for bad in [
            "",
            "short",
            "0123456789abcdef/-ABCD",
            "0123456789abcdef -ABCD",
        ] {
            assert_eq!(RunToken::new(bad), Err(TokenError), "{bad}");
        }
    }

    #[tokio::test]
    async fn only_loopback_is_served() {
        let open = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let refused = Bounded::new(open);
        assert!(matches!(refused, Err(ListenError::NotLoopback { .. })));
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Bounded::new(own).is_ok());
    }
}
