//! One server on four workers, as the program runs it, and clients on other threads that work on the same few files of
//! two shares at the same time: they open with oplocks and leases, lock, write, read back, rename, delete, watch, lose
//! their connections and reconnect their durable opens on others; some have their session's channels on two workers.
//!
//! Each request gets one final reply; under a lock a client reads what it has written, also after its connection was
//! lost; at the end nothing is left. The seeds are fixed, but the order of the threads is not. `THREADS_SECONDS` (10)
//! sets the duration.

mod client;
mod peer;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use env::Env;
use smb_server::{Limits, Server, ShareConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::counters::gauges;
use crate::world::World;
use client::{Client, Did};

const WORKERS: usize = 4;
const CLIENT_THREADS: usize = 4;
const CLIENTS: usize = 16;
/// How long connections may take to end, and opens without one to be closed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server's workers: a thread and a runtime each, as in the program (crates/causeway/src/daemon/worker.rs).
pub struct Workers {
    incoming: Vec<mpsc::UnboundedSender<std::net::TcpStream>>,
    next: AtomicUsize,
    threads: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    fn start(server: &Arc<Server>) -> Workers {
        let (incoming, threads) = (0..WORKERS)
            .map(|number| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let server = Arc::clone(server);
                let thread = std::thread::Builder::new().name(format!("worker-{number}"));
                (sender, thread.spawn(move || work(server, receiver)).expect("a thread"))
            })
            .unzip();
        Workers { incoming, next: AtomicUsize::new(0), threads: parking_lot::Mutex::new(threads) }
    }

    /// A connection to the next worker.
    pub async fn dial(&self) -> TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let theirs = theirs.expect("accepted").0.into_std().expect("a socket");
        let worker = self.next.fetch_add(1, Ordering::Relaxed) % WORKERS;
        self.incoming[worker].send(theirs).expect("the worker runs");
        ours.expect("connected")
    }

    /// Waits until all connections have ended.
    fn end(mut self) {
        self.incoming.clear();
        for thread in self.threads.get_mut().drain(..) {
            thread.join().expect("no worker panics");
        }
    }
}

fn work(server: Arc<Server>, mut incoming: mpsc::UnboundedReceiver<std::net::TcpStream>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        while let Some(stream) = incoming.recv().await {
            let stream = TcpStream::from_std(stream).expect("a socket");
            connections.spawn(Arc::clone(&server).serve_tcp(stream));
        }
        tokio::time::timeout(PATIENCE, connections.join_all()).await.expect("all connections end");
        // Also runs the tasks that drops have started: this worker closes the opens that lost their connection.
        let empty = async {
            while !server.opens().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, empty).await.expect("all opens are closed");
    });
}

#[test]
fn four_workers() {
    let seconds = std::env::var("THREADS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let world = World::new(Env::real(), 64 << 20, Limits::default());
    let folder = tempfile::tempdir().expect("a folder");
    let share = ShareConfig::new("dir", crate::folder::open_to_all(folder.path()));
    world.server.add_share(share).expect("a new name");
    let workers = Arc::new(Workers::start(&world.server));
    let until = world.env.now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..CLIENT_THREADS)
        .map(|thread| {
            let (workers, env) = (Arc::clone(&workers), world.env.clone());
            std::thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let mut clients = JoinSet::new();
                    for number in (thread..CLIENTS).step_by(CLIENT_THREADS) {
                        let client = Client::new(Arc::clone(&workers), env.clone(), number as u8 + 1);
                        clients.spawn(client.run(until));
                    }
                    let mut did = Did::default();
                    while let Some(one) = clients.join_next().await {
                        did += one.expect("a client does not panic");
                    }
                    did
                })
            })
        })
        .collect();
    let mut did = Did::default();
    for thread in threads {
        did += thread.join().expect("no client panics");
    }
    Arc::into_inner(workers).expect("the clients have ended").end();
    println!("{did:?}");
    did.assert_all_happened();
    let server = &world.server;
    assert!(server.sessions().is_empty() && server.opens().is_empty());
    assert_eq!((server.connections(), server.totals().connections), (0, 0));
    assert_eq!(world.arena.usage().used, 0, "{:?}", world.arena.usage());
    assert_eq!(gauges(&server.registry().snapshot()), vec![]);
}
