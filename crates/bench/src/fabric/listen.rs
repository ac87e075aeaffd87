//! Accepts connections up to the limit.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Builder};
use std::time::Duration;

use super::{Bounds, ConnectionError, FabricAddress, FabricError, FabricTransport, direct, socket};

/// Connections above the limit that are still told that there are too many.
const REFUSED: u32 = 16;
/// The pause after `accept` failed: the system lacks file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// A server that returns zeros and discards writes.
#[derive(Debug)]
pub struct Listener {
    open: Vec<(FabricTransport, TcpListener)>,
    bounds: Bounds,
    connections: Arc<AtomicU32>,
}

/// An event of a listener.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A client connected.
    Connected(SocketAddr),
    /// A connection ended; with the error, if any.
    Ended(SocketAddr, Result<(), ConnectionError>),
    /// The system failed to provide a connection or a thread for it; this may be temporary.
    AcceptFailed(io::Error),
}

/// Counts an open connection until dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Listener {
    /// Listens on `places`.
    ///
    /// # Errors
    /// The place on which listening failed, and the error.
    pub fn bind(places: &[FabricAddress], bounds: Bounds) -> Result<Listener, (FabricAddress, FabricError)> {
        let bind = |place: &FabricAddress| {
            TcpListener::bind(place.address()?).map_err(FabricError::Listen).map(|l| (place.transport, l))
        };
        let open = places.iter().map(|place| bind(place).map_err(|e| (place.clone(), e)));
        Ok(Listener { open: open.collect::<Result<_, _>>()?, bounds, connections: Arc::default() })
    }

    /// The addresses on which it listens, in the order of the places.
    ///
    /// # Errors
    /// The system's error.
    pub fn addresses(&self) -> io::Result<Vec<(FabricTransport, SocketAddr)>> {
        self.open.iter().map(|(transport, l)| Ok((*transport, l.local_addr()?))).collect()
    }

    /// Serves for the lifetime of the process. Many threads call `on_event`.
    pub fn run(self, on_event: impl Fn(ListenerEvent) + Clone + Send + Sync + 'static) {
        let Listener { open, bounds, connections } = &self;
        thread::scope(|scope| {
            for (transport, listener) in open {
                let on_event = on_event.clone();
                scope.spawn(move || accept(*transport, listener, *bounds, connections, &on_event));
            }
        });
    }
}

fn accept(
    transport: FabricTransport,
    listener: &TcpListener,
    bounds: Bounds,
    connections: &Arc<AtomicU32>,
    on_event: &(impl Fn(ListenerEvent) + Clone + Send + Sync + 'static),
) {
    loop {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) => {
                on_event(ListenerEvent::AcceptFailed(e));
                thread::sleep(PAUSE);
                continue;
            }
        };
        let counted = Counted(connections.clone());
        let before = connections.fetch_add(1, Ordering::AcqRel);
        if before >= bounds.connections.saturating_add(REFUSED) {
            continue; // closed without a message
        }
        let (full, report) = (before >= bounds.connections, on_event.clone());
        let thread = Builder::new().name(format!("fabric-{}", peer.port())).spawn(move || {
            let _counted = counted;
            report(ListenerEvent::Connected(peer));
            report(ListenerEvent::Ended(peer, serve(transport, stream, &bounds, full)));
        });
        if let Err(e) = thread {
            on_event(ListenerEvent::AcceptFailed(e));
        }
    }
}

fn serve(
    transport: FabricTransport,
    stream: TcpStream,
    bounds: &Bounds,
    full: bool,
) -> Result<(), ConnectionError> {
    match transport {
        FabricTransport::Iwarp => direct::serve(stream, bounds, full),
        FabricTransport::Tcp => socket::serve(stream, bounds, full),
    }
}
