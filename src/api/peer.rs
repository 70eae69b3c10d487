//! Who speaks: the kernel's word on the other end of the socket.

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

use super::problem::Failure;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its user; none when the kernel would not say.
    uid: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        Self {
            uid: credentials.map(|it| it.uid()),
        }
    }
}

impl Peer {
    /// The name under which its acts are recorded.
    pub(super) fn actor(self) -> String {
        match self.uid {
            Some(uid) => format!("uid:{uid}"),
            None => "unknown".to_owned(),
        }
    }

    /// Only the daemon's own user and root may speak at all.
    fn is_admin(self, own: u32) -> bool {
        self.uid.is_some_and(|uid| uid == own || uid == 0)
    }
}

/// Lets admins through.
pub(super) async fn require_admin(
    State(own): State<u32>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.is_admin(own) {
        return next.run(request).await;
    }
    let message = format!("{} may not speak to this daemon", peer.actor());
    Failure::forbidden(message)
        .detail(format!("speak as user {own}, or as root"))
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::Peer;

    #[test]
    fn only_the_daemons_user_and_root_are_admins() {
        for (uid, is_admin) in [
            (Some(0), true),
            (Some(7), true),
            (Some(8), false),
            (None, false),
        ] {
            assert_eq!(Peer { uid }.is_admin(7), is_admin, "{uid:?}");
        }
        assert_eq!(Peer { uid: Some(7) }.actor(), "uid:7");
    }
}
