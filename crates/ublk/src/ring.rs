//! The rings, one for each control command and one for a device's queue; and the mapped request descriptors.
//!
//! **Unsafe.** This is the crate's only module with unsafe code. Invariants:
//! 1. entries of a [`Queue`] are self-contained: they give the driver no address in our memory;
//! 2. a control command's buffer lives until its completion was taken; if waiting for it fails, buffer and
//!    ring are leaked;
//! 3. the map consists of the driver's own pages, mapped read-only from [`Queue::new`] until it is dropped.
//!    Its contents are read only as bytes, after the completion that reports them as written and before the
//!    answer that permits the driver to write again.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::mm::{MapFlags, ProtFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::abi::{self, COMMIT_AND_FETCH, ControlCommand, DESCRIPTOR_BYTES, Descriptor, FETCH};

const PAGE: usize = 4096;

/// Sends a command to the driver and blocks until it completes, which may take as long as users of the device
/// keep it open. Returns the buffer as written by the driver.
///
/// # Errors
/// The driver's or the ring's error.
pub(crate) fn control<const N: usize>(
    file: &File,
    number: u32,
    device: u32,
    value: u64,
    buffer: [u8; N],
) -> io::Result<[u8; N]> {
    let mut ring: IoUring<squeue::Entry128, cqueue::Entry> = IoUring::builder().build(2)?;
    let mut buffer = Box::new(buffer);
    let address = if N == 0 { 0 } else { buffer.as_mut_ptr().expose_provenance() as u64 };
    let command = ControlCommand { device, length: N as u16, address, value };
    let entry = opcode::UringCmd80::new(Fd(file.as_raw_fd()), number).cmd(command.encode()).build();
    // SAFETY: the buffer and the file live until the completion (invariant 2).
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    let result = loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => {
                // The driver may or may not have the command.
                mem::forget((buffer, ring, file.try_clone()));
                return Err(e);
            }
        }
        if let Some(done) = ring.completion().next() {
            break done.result();
        }
    };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(*buffer) }
}

/// A device's only queue.
pub(crate) struct Queue {
    ring: IoUring,
    map: Map,
    file: Arc<File>,
    depth: u16,
}

/// An event of the driver for a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A request has arrived.
    Request(u16, Descriptor),
    /// No more requests will arrive for this tag; with the driver's error number.
    Over(u16, i32),
}

impl Queue {
    /// A queue for a device that was added but not started.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn new(file: Arc<File>, depth: u16) -> io::Result<Queue> {
        let entries = u32::from(depth).next_power_of_two();
        let cooperative = IoUring::builder().setup_coop_taskrun().build(entries);
        let ring = match cooperative {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            other => other?,
        };
        let map = Map::new(&file, usize::from(depth) * DESCRIPTOR_BYTES)?;
        Ok(Queue { ring, map, file, depth })
    }

    /// The device's file, for copying payload.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The descriptor that signals events: a duplicate of the ring's, registered with the runtime.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn waiter(&self) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: the ring, and with it its descriptor, is open during this call.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }.try_clone_to_owned()?;
        // SAFETY: the value owns its descriptor, which is not replaced or closed meanwhile.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
    }

    /// Fetches the first request of every tag, from the thread that must serve it (ublk.rst,
    /// `UBLK_IO_FETCH_REQ`).
    ///
    /// # Errors
    /// The ring's error, or the driver's if it refuses immediately.
    pub(crate) fn fetch_all(&mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.push(FETCH, tag, 0)?;
        }
        self.submit()?;
        match self.ring.completion().next() {
            Some(refused) if refused.result() < 0 => Err(io::Error::from_raw_os_error(-refused.result())),
            // No request can arrive before the device is started.
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(()),
        }
    }

    /// Answers a request with the number of bytes done or a negative error number, and fetches the tag's next
    /// one. The next [`Queue::submit`] sends it.
    ///
    /// # Errors
    /// The ring's.
    pub(crate) fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(COMMIT_AND_FETCH, tag, result)
    }

    /// Submits queued entries to the kernel.
    ///
    /// # Errors
    /// The ring's.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether the kernel had no room for some entries, so that they must be submitted again.
    pub(crate) fn has_more(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// The driver's events since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let Queue { ring, map, depth, .. } = self;
        let event = |c: cqueue::Entry| {
            // The tag that was submitted; only a broken kernel returns another number.
            let tag = u16::try_from(c.user_data()).ok().filter(|t| *t < *depth)?;
            Some(match c.result() {
                0 => Event::Request(tag, map.descriptor(tag)),
                other => Event::Over(tag, other),
            })
        };
        ring.completion().filter_map(event).collect()
    }

    fn push(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), number)
            .cmd(abi::io_command(tag, result))
            .build()
            .user_data(u64::from(tag));
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: the entry contains no address of our memory (invariant 1), and the file is open.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }
}

/// The descriptors of a queue's requests, one for each tag (ublk_cmd.h: `UBLKSRV_CMD_BUF_OFFSET` is 0, and so
/// is the queue's number).
struct Map {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, and any thread may read it.
unsafe impl Send for Map {}

impl Map {
    fn new(file: &File, bytes: usize) -> io::Result<Map> {
        let bytes = bytes.next_multiple_of(PAGE);
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let at = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                0,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { at, bytes })
    }

    fn descriptor(&self, tag: u16) -> Descriptor {
        let start = usize::from(tag) * DESCRIPTOR_BYTES;
        assert!(start + DESCRIPTOR_BYTES <= self.bytes, "a tag is below the queue's depth");
        // SAFETY: the address is inside the map, as just checked, and the driver does not write there now
        // (invariant 3).
        let bytes: [u8; DESCRIPTOR_BYTES] = unsafe { ptr::read_volatile(self.at.as_ptr().add(start).cast()) };
        Descriptor::decode(&bytes)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped with these arguments, and no reference to it exists.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
