//! Accepts connections up to the limit.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Builder};
use std::time::Duration;

use super::{Bounds, Broken, Carrier, FabricError, FabricPlace, direct, socket};

/// Connections above the limit that are still told that there are too many.
const REFUSED: u32 = 16;
/// The pause after `accept` failed: the system lacks file descriptors or memory.
const REST: Duration = Duration::from_millis(50);

/// A server that returns zeros and discards writes.
#[derive(Debug)]
pub struct Listener {
    open: Vec<(Carrier, TcpListener)>,
    bounds: Bounds,
    connections: Arc<AtomicU32>,
}

/// An event of a listener.
#[derive(Debug)]
pub enum Heard {
    /// A client connected.
    Came(SocketAddr),
    /// A connection ended; with the error, if any.
    Ended(SocketAddr, Result<(), Broken>),
    /// The system failed to provide a connection or a thread for it; this may be temporary.
    NotTaken(io::Error),
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
    pub fn bind(places: &[FabricPlace], bounds: Bounds) -> Result<Listener, (FabricPlace, FabricError)> {
        let bind = |place: &FabricPlace| {
            TcpListener::bind(place.address()?).map_err(FabricError::Listen).map(|l| (place.carrier, l))
        };
        let open = places.iter().map(|place| bind(place).map_err(|e| (place.clone(), e)));
        Ok(Listener { open: open.collect::<Result<_, _>>()?, bounds, connections: Arc::default() })
    }

    /// The addresses on which it listens, in the order of the places.
    ///
    /// # Errors
    /// The system's error.
    pub fn addresses(&self) -> io::Result<Vec<(Carrier, SocketAddr)>> {
        self.open.iter().map(|(carrier, l)| Ok((*carrier, l.local_addr()?))).collect()
    }

    /// Serves for the lifetime of the process. Many threads call `heard`.
    pub fn run(self, heard: impl Fn(Heard) + Clone + Send + Sync + 'static) {
        let Listener { open, bounds, connections } = &self;
        thread::scope(|scope| {
            for (carrier, listener) in open {
                let heard = heard.clone();
                scope.spawn(move || accept(*carrier, listener, *bounds, connections, &heard));
            }
        });
    }
}

fn accept(
    carrier: Carrier,
    listener: &TcpListener,
    bounds: Bounds,
    connections: &Arc<AtomicU32>,
    heard: &(impl Fn(Heard) + Clone + Send + Sync + 'static),
) {
    loop {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) => {
                heard(Heard::NotTaken(e));
                thread::sleep(REST);
                continue;
            }
        };
        let counted = Counted(connections.clone());
        let before = connections.fetch_add(1, Ordering::AcqRel);
        if before >= bounds.connections.saturating_add(REFUSED) {
            continue; // closed without a message
        }
        let (full, tell) = (before >= bounds.connections, heard.clone());
        let thread = Builder::new().name(format!("fabric-{}", peer.port())).spawn(move || {
            let _counted = counted;
            tell(Heard::Came(peer));
            tell(Heard::Ended(peer, serve(carrier, stream, &bounds, full)));
        });
        if let Err(e) = thread {
            heard(Heard::NotTaken(e));
        }
    }
}

fn serve(carrier: Carrier, stream: TcpStream, bounds: &Bounds, full: bool) -> Result<(), Broken> {
    match carrier {
        Carrier::Iwarp => direct::serve(stream, bounds, full),
        Carrier::Tcp => socket::serve(stream, bounds, full),
    }
}
