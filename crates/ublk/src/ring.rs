//! The rings: one for a control command, one for a device's queue; and the map of its requests.
//!
//! **Unsafe.** The only module of the crate with it. Invariants:
//! 1. the entries of a [`Queue`] carry all they say inside themselves: the driver is given no address of ours there;
//! 2. a control command's buffer lives until its completion was taken; when that cannot be waited for, buffer
//!    and ring are leaked;
//! 3. the map is the driver's own pages, mapped for reading from [`Queue::new`] until it is dropped; its
//!    contents are only read as bytes, after the completion that reports them as written and before the
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

/// Sends a command to the driver and waits, which may take as long as a device's users let it. Returns the
/// buffer as the driver left it.
///
/// # Errors
/// The driver's, or the ring's.
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
                // Whether the driver has it is not known.
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

/// A notification of the driver for a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// There is a request.
    Request(u16, Descriptor),
    /// There will be none any more; the driver's number.
    Over(u16, i32),
}

impl Queue {
    /// A queue for a device that was added and not started.
    ///
    /// # Errors
    /// The system's.
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

    /// The device's file, where payload is copied.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The descriptor to wait on for events: one of the ring's own, registered with the runtime.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn waiter(&self) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: the ring, and with it its descriptor, is open during this call.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }.try_clone_to_owned()?;
        // SAFETY: it owns its descriptor, which is not replaced or closed meanwhile.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
    }

    /// Asks for the first request of every tag, from the thread that must serve it (ublk.rst, `UBLK_IO_FETCH_REQ`).
    ///
    /// # Errors
    /// The ring's, and the driver's when it refuses at once.
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

    /// Answers a request, and asks for the tag's next: bytes done, or an error's number, negative. It goes
    /// with the next [`Queue::submit`].
    ///
    /// # Errors
    /// The ring's.
    pub(crate) fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(COMMIT_AND_FETCH, tag, result)
    }

    /// Gives the kernel what there is for it.
    ///
    /// # Errors
    /// The ring's.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether the kernel had no room for everything, and must be asked again.
    pub(crate) fn has_more(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// The driver's notifications since.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let Queue { ring, map, depth, .. } = self;
        let event = |c: cqueue::Entry| {
            // The number is the one that was pushed; only a kernel that is broken says another.
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
        // SAFETY: the entry names no memory of ours (invariant 1), and the file is open.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }
}

/// The descriptors of a queue's requests, one for each tag (ublk_cmd.h: `UBLKSRV_CMD_BUF_OFFSET` is 0, and so
/// is the queue's number).
struct Map {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory of the process, which any thread may read.
unsafe impl Send for Map {}

impl Map {
    fn new(file: &File, bytes: usize) -> io::Result<Map> {
        let bytes = bytes.next_multiple_of(PAGE);
        // SAFETY: the kernel chooses the place, so nothing of ours is replaced.
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
        // SAFETY: it lies inside of the map, which is as long as the queue, and the driver does not write it now (invariant 3).
        let bytes: [u8; DESCRIPTOR_BYTES] = unsafe { ptr::read_volatile(self.at.as_ptr().add(start).cast()) };
        Descriptor::decode(&bytes)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped with these arguments, and no reference into it exists.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
