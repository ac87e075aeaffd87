//! The listeners: bound before anything else starts, so that a port in use is reported at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

use super::descriptors::FailedAccepts;
use super::worker::Incoming;
use super::{Daemon, ServeError};
use crate::config::ServerSection;
use crate::control::types;

/// Connections that may wait in the kernel to be accepted.
const BACKLOG: u32 = 1024;
/// The pause after an accept that failed because descriptors or memory ran out.
const PAUSE: Duration = Duration::from_millis(100);

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// SMB over TCP.
    Tcp,
    /// SMB Direct over iWARP.
    Iwarp,
}

/// A bound listener.
pub(super) struct Bound {
    listener: TcpListener,
    transport: Transport,
    address: SocketAddr,
}

impl Transport {
    fn as_str(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Iwarp => "iwarp",
        }
    }
}

/// Binds all that the configuration names.
pub(super) fn bind_all(server: &ServerSection) -> Result<Vec<Bound>, ServeError> {
    let tcp = server.listen.iter().map(|a| (Transport::Tcp, *a));
    let iwarp = server.iwarp.iter().map(|a| (Transport::Iwarp, *a));
    tcp.chain(iwarp)
        .map(|(transport, address)| {
            bind(transport, address).map_err(|source| ServeError::Listen {
                address,
                transport: transport.as_str(),
                source,
            })
        })
        .collect()
}

/// The addresses of one kind.
pub(super) fn addresses(bound: &[Bound], transport: Transport) -> Vec<SocketAddr> {
    bound.iter().filter(|b| b.transport == transport).map(|b| b.address).collect()
}

fn bind(transport: Transport, address: SocketAddr) -> io::Result<Bound> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            // Allows both [::] and 0.0.0.0 in the configuration.
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            socket
        }
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?; // the chosen port, if 0 was requested
    Ok(Bound { listener, transport, address })
}

impl Bound {
    /// The listener in the form of the server's status.
    pub(super) fn describe(&self) -> types::Listener {
        types::Listener { transport: self.transport.as_str().to_owned(), address: self.address }
    }

    /// Passes connections to the workers while this future is polled.
    pub(super) async fn accept(self, daemon: Arc<Daemon>) {
        let mut failed = FailedAccepts::default();
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // Refused here and not in a worker, so that a refused connection does not slow down others.
                    let Some(admitted) = daemon.server.admit(peer) else { continue };
                    match stream.into_std() {
                        Ok(stream) => {
                            let transport = self.transport;
                            daemon.workers.assign(Incoming { admitted, stream, peer, transport }).await;
                        }
                        Err(error) => tracing::warn!(%peer, %error, "connection lost"),
                    }
                }
                // A connection that was closed before it was accepted needs no pause.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if let Some(failures) = failed.add(daemon.env.now()) {
                        tracing::error!(address = %self.address, %error, failures, "cannot accept connections");
                    }
                    daemon.env.sleep(PAUSE).await;
                }
            }
        }
    }
}
