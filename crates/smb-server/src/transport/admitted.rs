//! Connections that are admitted before their transport is set up.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::Env;
use futures_util::future::{Either, select};
use smb_direct::SmbDirect;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::Server;
use crate::connection::ConnectionError;
use crate::server::{ConnectionGuard, Unauthenticated};

/// A connection that the server has admitted. It counts from here on, so that the resources of a transport's set-up
/// (sockets, receive buffers) are bounded like those of later stages.
pub struct Admitted {
    pub(crate) server: Arc<Server>,
    pub(crate) id: u64,
    pub(crate) guard: ConnectionGuard,
    pub(crate) unauthenticated: Unauthenticated,
}

/// Why the set-up of a transport was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetupEnded {
    /// The peer took too long: the set-up and the first log-on must be complete within `authenticate_s`.
    #[error("the client did not complete the connection in time")]
    TimedOut,
    /// The server accepts no more connections.
    #[error("the server is stopping")]
    Draining,
}

impl Server {
    /// Admits a connection before any work is done for it; `None` when there are too many, or the server drains.
    /// Warnings about a flood are rate-limited.
    pub fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<Admitted> {
        let (id, guard) = self.enter()?;
        let admitted = self.enter_unauthenticated(peer, self.env.now());
        if admitted.is_none() {
            tracing::debug!(%peer, "connection refused: {}", ConnectionError::Refused);
        }
        Some(Admitted { server: Arc::clone(self), id, guard, unauthenticated: admitted? })
    }
}

impl Admitted {
    /// Runs the set-up of its transport; set-up and log-on share one deadline.
    ///
    /// # Errors
    /// See [`SetupEnded`]; the set-up is dropped.
    pub async fn set_up<T>(&self, set_up: impl Future<Output = T>) -> Result<T, SetupEnded> {
        let by: Instant =
            self.unauthenticated.since + Duration::from_secs(self.server.config.limits.authenticate_s);
        let env: &Env = &self.server.env;
        let (late, draining) = (pin!(env.sleep_until(by)), pin!(self.server.draining()));
        match select(pin!(set_up), select(late, draining)).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((Either::Left(_), _)) => Err(SetupEnded::TimedOut),
            Either::Right((Either::Right(_), _)) => Err(SetupEnded::Draining),
        }
    }

    /// Serves it over TCP until it ends, and closes its sessions and opens. An end other than the peer's orderly close
    /// is logged.
    pub async fn serve_tcp(self, stream: TcpStream) {
        super::tcp::serve(self, stream).await;
    }

    /// Like [`Server::serve_direct`], for this admitted connection.
    pub async fn serve_direct(self, direct: SmbDirect, peer: SocketAddr, local: SocketAddr) {
        super::direct::serve(self, direct, peer, local).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::tests::World;

    const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    /// Connections that are being set up count, and must log on within the time limit.
    #[tokio::test(start_paused = true)]
    async fn what_is_being_set_up_is_bounded() {
        let world = World::new();
        let server = &world.server;
        let most = server.config.limits.unauthenticated;
        let taken: Vec<_> = std::iter::from_fn(|| server.admit(PEER)).take(most + 1).collect();
        assert_eq!((taken.len(), server.connections()), (most, most));
        let begun = tokio::time::Instant::now();
        assert_eq!(taken[0].set_up(std::future::pending::<()>()).await, Err(SetupEnded::TimedOut));
        assert_eq!(begun.elapsed(), Duration::from_secs(server.config.limits.authenticate_s));
        assert_eq!(taken[1].set_up(async { 7 }).await, Ok(7), "what is ready is not given up");
        drop(taken);
        assert_eq!(server.connections(), 0);
        let one = server.admit(PEER).expect("there is room again");
        let (ended, ()) = tokio::join!(
            async move { one.set_up(std::future::pending::<()>()).await },
            server.drain(Duration::from_secs(5)),
        );
        assert_eq!(ended, Err(SetupEnded::Draining));
        assert!(server.admit(PEER).is_none(), "it takes no more");
    }
}
