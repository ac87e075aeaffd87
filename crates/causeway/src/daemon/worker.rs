//! The workers: one thread with a current-thread runtime each. A connection stays on its worker until it ends.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use smb_server::Admitted;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use super::direct;
use super::listen::Transport;
use super::watchdog::Pulse;
use crate::config::ServerSection;
use crate::control::types;

/// Connections that may wait for one worker; beyond that the listener waits.
const QUEUE_MAX: usize = 1024;
/// How long the end of a worker waits for blocking threads of its runtime.
const END: Duration = Duration::from_secs(1);

/// An accepted connection.
pub(super) struct Incoming {
    pub(super) admitted: Admitted,
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) transport: Transport,
}

/// All workers.
pub(super) struct Workers {
    workers: Vec<Worker>,
}

struct Worker {
    incoming: mpsc::Sender<Incoming>,
    connections: Arc<AtomicUsize>,
    pulse: Arc<Pulse>,
    stop: Arc<Notify>,
    runtime: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state of a worker's thread.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) arena: Arena,
    pub(super) env: Env,
    connections: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts the workers.
    pub(super) fn start(section: &ServerSection, arena: &Arena, env: &Env) -> io::Result<Workers> {
        let count = match section.workers {
            0 => thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let start = |number| {
            let (sender, receiver) = mpsc::channel(QUEUE_MAX);
            let connections = Arc::new(AtomicUsize::new(0));
            let (pulse, stop) = (Pulse::new(env), Arc::new(Notify::new()));
            let context =
                Context { arena: arena.clone(), env: env.clone(), connections: Arc::clone(&connections) };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (beating, stopped) = (Arc::clone(&pulse), Arc::clone(&stop));
            let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                runtime.spawn(beating.beat());
                runtime.block_on(async {
                    tokio::select! {
                        () = take(receiver, context) => {}
                        () = stopped.notified() => {}
                    }
                });
                runtime.shutdown_timeout(END);
            })?;
            let thread = Mutex::new(Some(thread));
            Ok(Worker { incoming: sender, connections, pulse, stop, runtime: handle, thread })
        };
        let workers = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Workers { workers })
    }

    /// Assigns a connection to the worker with the fewest connections.
    pub(super) async fn assign(&self, incoming: Incoming) {
        let fewest = self.workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed));
        if let Some(worker) = fewest {
            worker.connections.fetch_add(1, Ordering::Relaxed);
            let peer = incoming.peer;
            if worker.incoming.send(incoming).await.is_err() {
                tracing::warn!(%peer, "connection refused: the server is stopping");
            }
        }
    }

    /// Stops all workers; their outstanding work is dropped.
    pub(super) fn stop(&self) {
        for worker in &self.workers {
            worker.stop.notify_one();
        }
        for worker in &self.workers {
            if let Some(thread) = worker.thread.lock().take()
                && thread.join().is_err()
            {
                tracing::error!("a worker thread has panicked");
            }
        }
    }

    /// The runtimes of the workers, for tasks other than connections.
    pub(super) fn runtimes(&self) -> Vec<Handle> {
        self.workers.iter().map(|w| w.runtime.clone()).collect()
    }

    /// The pulses of the workers, for the watchdog.
    pub(super) fn pulses(&self) -> Vec<Arc<Pulse>> {
        self.workers.iter().map(|w| Arc::clone(&w.pulse)).collect()
    }

    /// The workers in the form of the server's status.
    pub(super) fn describe(&self) -> Vec<types::Worker> {
        let describe = |w: &Worker| {
            let (stalls, longest_stall_ms) = w.pulse.stalls();
            types::Worker { connections: w.connections.load(Ordering::Relaxed), stalls, longest_stall_ms }
        };
        self.workers.iter().map(describe).collect()
    }
}

async fn take(mut receiver: mpsc::Receiver<Incoming>, context: Context) {
    while let Some(incoming) = receiver.recv().await {
        let context = context.clone();
        // The connection is counted until its task ends, even if the task panics.
        let counted = Counted(Arc::clone(&context.connections));
        tokio::spawn(async move {
            let _counted = counted;
            serve(incoming, context).await;
        });
    }
}

async fn serve(incoming: Incoming, context: Context) {
    let Incoming { admitted, stream, peer, transport } = incoming;
    let stream = match tokio::net::TcpStream::from_std(stream) {
        Ok(s) => s,
        Err(error) => {
            tracing::warn!(%peer, %error, "connection lost");
            return;
        }
    };
    match transport {
        Transport::Tcp => admitted.serve_tcp(stream).await,
        Transport::Iwarp => direct::serve(admitted, stream, peer, context).await,
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
