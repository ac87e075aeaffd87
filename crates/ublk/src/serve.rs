//! Passes requests from the driver to the disk, and replies back.
//!
//! One task owns the queue and all outstanding requests. A tag belongs to the driver until a request arrives,
//! and then to the server until the request is answered. The task ends when the driver has closed every tag
//! and all requests are complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arena::{Arena, Class, IoBufMut, Sg};
use disk::{Disk, DiskError, sized, write_zeros};
use env::{BoxFuture, Ctx, IoFlags};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::QUEUE_DEPTH;
use crate::abi::{Descriptor, payload_at};
use crate::request::{self, Operation, Request};
use crate::ring::{Event, Queue};
use crate::shape::{Bounds, Options};

/// Rounds of answering and fetching before the task yields.
const ROUNDS_MAX: usize = 8;

pub(crate) struct Server {
    queue: Queue,
    target: Arc<Target>,
    under_way: FuturesUnordered<BoxFuture<(u16, i32)>>,
    new_sizes: mpsc::UnboundedReceiver<NewSize>,
    /// The number of closed tags.
    over: u16,
}

/// The new size for validating requests, in bytes, and a channel to acknowledge it.
pub(crate) type NewSize = (u64, oneshot::Sender<()>);

/// The shared state of requests.
#[derive(Clone)]
struct Target {
    name: String,
    disk: Arc<dyn Disk>,
    bounds: Bounds,
    options: Options,
    arena: Arena,
    file: Arc<File>,
}

impl Server {
    /// A server of a queue whose tags have all been fetched.
    pub(crate) fn new(
        queue: Queue,
        name: String,
        disk: Arc<dyn Disk>,
        bounds: Bounds,
        options: Options,
        arena: Arena,
        new_sizes: mpsc::UnboundedReceiver<NewSize>,
    ) -> Server {
        let file = Arc::clone(queue.file());
        let target = Arc::new(Target { name, disk, bounds, options, arena, file });
        Server { queue, target, under_way: FuturesUnordered::new(), new_sizes, over: 0 }
    }

    /// Serves until the device is stopped, or removed by another process.
    pub(crate) async fn serve(mut self) {
        let name = self.target.name.clone();
        match self.requests().await {
            Ok(()) => tracing::info!("ublk: block device {name} was stopped"),
            // When the queue is closed, the driver fails the remaining requests and removes the device.
            Err(error) => tracing::error!("ublk: block device {name} ended: its io_uring failed: {error}"),
        }
    }

    async fn requests(&mut self) -> io::Result<()> {
        let fd = self.queue.waiter()?;
        loop {
            let more = self.turn()?;
            if self.over == QUEUE_DEPTH && self.under_way.is_empty() {
                return Ok(());
            }
            if more {
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                Some((tag, result)) = self.under_way.next() => self.queue.answer(tag, result)?,
                Some((size, taken)) = self.new_sizes.recv() => {
                    self.set_size(size);
                    let _ = taken.send(());
                }
                ready = fd.readable() => ready?.clear_ready(),
                () = std::future::ready(()), if more => {}
            }
        }
    }

    fn set_size(&mut self, size: u64) {
        let bounds = Bounds { size, ..self.target.bounds };
        self.target = Arc::new(Target { bounds, ..Target::clone(&self.target) });
    }

    /// Answers completed requests and starts new ones; returns whether more may be available at once.
    fn turn(&mut self) -> io::Result<bool> {
        for _ in 0..ROUNDS_MAX {
            while let Some(Some((tag, result))) = self.under_way.next().now_or_never() {
                self.queue.answer(tag, result)?;
            }
            self.queue.submit()?;
            let events = self.queue.events();
            if events.is_empty() {
                return Ok(self.queue.has_more());
            }
            for event in events {
                match event {
                    Event::Request(tag, asked) => self.begin(tag, asked)?,
                    Event::Over(tag, number) => {
                        self.over += 1;
                        if number != -libc::ENODEV {
                            tracing::warn!("ublk: {}: slot {tag} failed: error {number}", self.target.name);
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn begin(&mut self, tag: u16, asked: Descriptor) -> io::Result<()> {
        match request::check(asked, &self.target.bounds) {
            Ok(request) => {
                let target = Arc::clone(&self.target);
                self.under_way.push(Box::pin(async move { (tag, target.perform(tag, request).await) }));
                Ok(())
            }
            Err(number) => {
                tracing::warn!("ublk: {}: request refused with error {number}: {asked:?}", self.target.name);
                self.queue.answer(tag, -number)
            }
        }
    }
}

impl Target {
    /// Executes a request. Returns the reply to the driver: bytes of payload, or a negative error number.
    async fn perform(&self, tag: u16, request: Request) -> i32 {
        let c =
            Ctx { flags: IoFlags { write_through: request.through, ..IoFlags::default() }, ..Ctx::default() };
        let Request { operation, offset, length, .. } = request;
        let done = match operation {
            Operation::Read => return self.read(&c, tag, offset, length).await,
            Operation::Write => return self.write(&c, tag, offset, length).await,
            Operation::Flush => self.disk.flush(&c).wait().await,
            Operation::Discard => self.disk.discard(&c, offset, length).wait().await,
            Operation::WriteZeroes { keep } => self.write_zeroes(&c, offset, length, keep).await,
        };
        done.map_or_else(|e| self.number(&e), |()| 0)
    }

    async fn read(&self, c: &Ctx, tag: u16, offset: u64, length: u64) -> i32 {
        let buffers = sized(self.arena.alloc_sg(length as usize, Class::Payload).await, length as usize);
        let (read, mut buffers) = self.disk.read(c, offset, buffers).wait().await;
        if let Err(e) = read {
            return self.number(&e);
        }
        let mut at = payload_at(tag, 0);
        for b in &mut buffers {
            let bytes = b.filled_mut();
            if let Err(e) = self.file.write_all_at(bytes, at) {
                return self.lost(&e);
            }
            at += bytes.len() as u64;
        }
        length as i32
    }

    async fn write(&self, c: &Ctx, tag: u16, offset: u64, length: u64) -> i32 {
        let mut buffers = sized(self.arena.alloc_sg(length as usize, Class::Payload).await, length as usize);
        let mut at = payload_at(tag, 0);
        for b in &mut buffers {
            let bytes = b.filled_mut();
            if let Err(e) = self.file.read_exact_at(bytes, at) {
                return self.lost(&e);
            }
            at += bytes.len() as u64;
        }
        let src: Sg = buffers.into_iter().map(IoBufMut::freeze).collect();
        let written = self.disk.write(c, offset, src).wait().await;
        written.map_or_else(|e| self.number(&e), |()| length as i32)
    }

    async fn write_zeroes(&self, c: &Ctx, offset: u64, length: u64, keep: bool) -> Result<(), DiskError> {
        write_zeros(&*self.disk, c, offset, length, self.options.discard_zeros && !keep).await
    }

    fn number(&self, e: &DiskError) -> i32 {
        tracing::warn!("ublk: {}: {e}", self.name);
        -request::number(e)
    }

    /// The payload cannot be copied: the driver has aborted the request.
    fn lost(&self, e: &io::Error) -> i32 {
        tracing::warn!("ublk: {}: the payload of a request cannot be copied: {e}", self.name);
        -libc::EIO
    }
}
