//! One block device, from its start to its stop.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arena::Arena;
use disk::Disk;
use env::Env;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot, watch};

use crate::abi::Parameters;
use crate::control::{self, Control};
use crate::ring::Queue;
use crate::serve::{NewSize, Server};
use crate::shape;
use crate::{Error, Options, QUEUE_DEPTH};

/// udev may create a device's file slightly later than the kernel creates the device.
const NODE_TRIES: u32 = 100;
const NODE_PAUSE: Duration = Duration::from_millis(20);

/// A block device, served by a task of the runtime on which it was started.
pub struct Device {
    number: u32,
    path: PathBuf,
    control: Control,
    sizes: mpsc::UnboundedSender<NewSize>,
    ended: watch::Receiver<bool>,
}

impl Device {
    /// Makes a disk a block device, which is usable when this returns. Payload goes through `arena`.
    ///
    /// Call it on the Tokio runtime that is to serve the device: all of the driver's commands for its queue
    /// must come from one thread.
    ///
    /// # Errors
    /// See [`Error`]; the device is then removed.
    pub async fn start(
        disk: Arc<dyn Disk>,
        options: Options,
        arena: &Arena,
        env: &Env,
    ) -> Result<Device, Error> {
        let (parameters, bounds) = shape::of(disk.info(), &options, arena.usage().budget as u64)?;
        let control = Control::open().await?;
        let number = control.add(bounds.transfer_max as u32).await?;
        let (sizes, new_sizes) = mpsc::unbounded_channel();
        let server = |queue, name| Server::new(queue, name, disk, bounds, options, arena.clone(), new_sizes);
        match Device::begin(&control, number, &parameters, server, env).await {
            Ok(ended) => Ok(Device { number, path: block_path(number), control, sizes, ended }),
            Err(e) => {
                if let Err(left) = control.delete(number).await {
                    tracing::warn!("ublk: device {number} could not be deleted: {left}");
                }
                Err(e)
            }
        }
    }

    async fn begin(
        control: &Control,
        number: u32,
        parameters: &Parameters,
        server: impl FnOnce(Queue, String) -> Server,
        env: &Env,
    ) -> Result<watch::Receiver<bool>, Error> {
        control.describe(number, parameters).await?;
        let file = open_node(&PathBuf::from(format!("/dev/ublkc{number}")), env).await?;
        let mut queue = Queue::new(Arc::new(file), QUEUE_DEPTH).map_err(Error::NoRing)?;
        queue.fetch_all().map_err(|source| Error::Command { what: "deliver requests", source })?;
        let server = server(queue, format!("ublkb{number}"));
        let (ended, told) = watch::channel(false);
        env.spawn(async move {
            server.serve().await;
            // The queue is closed now.
            let _ = ended.send(true);
        });
        control.start(number).await?;
        Ok(told)
    }

    /// The block device: `/dev/ublkbN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that no mounted file system or other device uses the block device exclusively.
    ///
    /// # Errors
    /// `InUse`.
    pub fn check_unused(&self) -> impl Future<Output = Result<(), Error>> + use<> {
        let path = self.path.clone();
        async move {
            let asked = path.clone();
            // Closing it may write back the page cache, which this thread must serve meanwhile.
            match control::on_own_thread(move || is_claimed(&asked)).await {
                Ok(false) => Ok(()),
                Ok(true) => Err(Error::InUse { path }),
                Err(source) => Err(Error::Node { path, source }),
            }
        }
    }

    /// Checks that the size can be changed while the device exists.
    ///
    /// # Errors
    /// `CannotResize`.
    pub fn check_resizable(&self) -> Result<(), Error> {
        if self.control.can_resize() { Ok(()) } else { Err(Error::CannotResize) }
    }

    /// Sets the size of the device, in bytes, which may differ from its [`DiskInfo`](disk::DiskInfo).
    ///
    /// # Errors
    /// `CannotResize`, `Command`: the kernel keeps the former size.
    pub fn resize(&self, size: u64) -> impl Future<Output = Result<(), Error>> + use<> {
        let (can, control, number) = (self.check_resizable(), self.control.clone(), self.number);
        let sizes = self.sizes.clone();
        async move {
            can?;
            let (taken, is_taken) = oneshot::channel();
            // If the task has ended, the device has too: the driver reports it.
            if sizes.send((size, taken)).is_ok() {
                let _ = is_taken.await;
            }
            control.resize(number, size).await
        }
    }

    /// Stops the block device after the page cache was written back and outstanding requests completed; later
    /// I/O of programs that have it open fails. The written data is as durable as the disk's last flush.
    ///
    /// # Errors
    /// `Command` if the driver refused. The device may then remain; [`crate::delete_dead_devices`] deletes it
    /// after this process has ended.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.control.stop(self.number).await?;
        // The sender is gone if the task panicked; serving has ended then too.
        let _ = self.ended.wait_for(|ended| *ended).await;
        self.control.delete(self.number).await
    }
}

/// open(2): O_EXCL without O_CREAT on a block device fails with EBUSY if the system uses it.
fn is_claimed(path: &Path) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(_) => Ok(false),
        Err(Errno::BUSY) => Ok(true),
        // It has been removed already.
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn block_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

async fn open_node(path: &Path, env: &Env) -> Result<File, Error> {
    let mut tries = 0;
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => return Ok(file),
            Err(e) if is_not_created_yet(&e) && tries < NODE_TRIES => {
                tries += 1;
                env.sleep(NODE_PAUSE).await;
            }
            Err(source) => return Err(Error::Node { path: path.to_owned(), source }),
        }
    }
}

fn is_not_created_yet(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
