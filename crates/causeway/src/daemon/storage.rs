//! The pools of this server. One thread with a current-thread runtime runs their tasks; the logs of their spaces, and the
//! clients of these, are served by the workers.
//!
//! **Lifecycle.** [`Storage::start`] → the configured paths are searched and every pool found is opened → requests,
//! each a task → [`Storage::stop`]: clients of spaces ended, spaces flushed, pools exported.
//!
//! **Errors.** [`StorageError`], each with its cure. A pool that cannot be opened is listed with the reason.

mod allocations;
mod attach;
mod counting;
mod create;
mod describe;
mod disks;
mod enclosures;
mod error;
mod find;
mod health;
mod import;
mod jobs;
mod levels;
mod machine;
mod media;
mod mover;
mod open_pool;
mod pools;
mod removing;
mod reporter;
mod resuming;
mod returning;
mod shared;
mod space_shape;
mod spaces;
mod stored_attachments;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use arena::Arena;
use env::{BoxFuture, Env};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use vfs::SpaceFiles;

pub use error::StorageError;
pub use pools::Pools;
use stored_attachments::StoredAttachments;

use super::events::Events;
use crate::config::StorageSection;

/// Requests that may wait for the thread.
const QUEUE_MAX: usize = 64;

/// See the module.
pub struct Storage {
    pools: Arc<Pools>,
    /// The files of shares, by the name of the pool.
    files: Mutex<HashMap<String, Arc<SpaceFiles>>>,
    requests: mpsc::Sender<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Request {
    Run(Box<dyn FnOnce(Arc<Pools>) -> BoxFuture<()> + Send>),
    Stop(oneshot::Sender<()>),
}

impl Storage {
    /// Starts the thread. Requests wait until the search for pools is complete. Attachments are stored in the directory
    /// `state`; `machine` identifies this machine if the system has no machine id. Each virtual disk is served by one
    /// of the `workers`, which must outlive this.
    pub(super) fn start(
        section: &StorageSection,
        arena: &Arena,
        env: &Env,
        events: &Arc<Events>,
        state: Option<&Path>,
        machine: [u8; 16],
        workers: Vec<Handle>,
    ) -> io::Result<Storage> {
        let attachments = StoredAttachments::open(state)?;
        let (requests, receiver) = mpsc::channel(QUEUE_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let pools = Arc::new(Pools::new(
            section,
            arena.clone(),
            env.clone(),
            Arc::clone(events),
            attachments,
            machine,
            workers,
        ));
        let theirs = Arc::clone(&pools);
        let thread = thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || runtime.block_on(serve(receiver, theirs)))?;
        Ok(Storage { pools, files: Mutex::default(), requests, thread: Mutex::new(Some(thread)) })
    }

    /// Runs a call on the storage thread.
    ///
    /// # Errors
    /// The call's; [`StorageError::Stopping`].
    pub async fn run_on_thread<T, F>(
        &self,
        call: impl FnOnce(Arc<Pools>) -> F + Send + 'static,
    ) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StorageError>> + Send + 'static,
    {
        let (send, receive) = oneshot::channel();
        let work: Box<dyn FnOnce(Arc<Pools>) -> BoxFuture<()> + Send> = Box::new(|pools| {
            Box::pin(async move {
                let answer = call(Arc::clone(&pools)).await;
                pools.name_counters();
                let _ = send.send(answer);
            })
        });
        self.requests.send(Request::Run(work)).await.map_err(|_| StorageError::Stopping)?;
        receive.await.map_err(|_| StorageError::Stopping)?
    }

    /// Waits until the configured paths have been searched for pools.
    pub(super) async fn wait_for_search(&self) {
        // Requests are processed after the search.
        let _ = self.run_on_thread(|_| async { Ok(()) }).await;
    }

    /// Starts to disconnect the clients of spaces concurrently with the other clients, so that the times do not add
    /// up.
    pub(super) async fn begin_disconnect(&self) {
        let begin = |pools: Arc<Pools>| async move {
            pools.begin_disconnect();
            Ok(())
        };
        // Without the storage thread there are no clients.
        let _ = self.run_on_thread(begin).await;
    }

    /// Exports every pool and ends the thread.
    pub(super) async fn stop(&self) {
        let (done, finished) = oneshot::channel();
        if self.requests.send(Request::Stop(done)).await.is_ok() {
            let _ = finished.await;
        }
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the storage thread has panicked");
        }
    }
}

async fn serve(mut requests: mpsc::Receiver<Request>, pools: Arc<Pools>) {
    if let Err(error) = ublk::delete_dead_devices().await {
        tracing::warn!("cannot remove the block devices of a previous server: {error}");
    }
    pools.import_at_start().await;
    pools.name_counters();
    tokio::spawn(Arc::clone(&pools).watch_health());
    tokio::spawn(Arc::clone(&pools).watch_returns());
    while let Some(request) = requests.recv().await {
        match request {
            Request::Run(work) => drop(tokio::spawn(work(Arc::clone(&pools)))),
            Request::Stop(done) => {
                pools.close_all().await;
                pools.name_counters();
                let _ = done.send(());
                return;
            }
        }
    }
}
