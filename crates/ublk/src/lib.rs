//! A disk as a block device of the Linux kernel: `/dev/ublkbN`.
//!
//! **What it is.** A server for the kernel's ublk driver, according to its UAPI header
//! (`include/uapi/linux/ublk_cmd.h`, cited as *ublk_cmd.h*) and its documentation
//! (`Documentation/block/ublk.rst`, cited as *ublk.rst*). Any [`disk::Disk`] becomes a block device for file
//! systems, LVM and other software: READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES, FUA.
//!
//! **What it is not.** No zoned devices and no zero-copy: the driver's user copy moves each byte of payload
//! once between the request's pages and arena memory, which the disk uses directly. No user recovery either:
//! see *Lifecycle*. It needs Linux 6.5, the first version whose driver reports its features and has user
//! copy; older ones are refused with the action that helps.
//!
//! **Lifecycle.** [`Device::start`] adds a device, sets its parameters, fetches its first requests and starts
//! it. Requests are served until [`Device::stop`] stops it, after the page cache was written back, and
//! deletes it. If the server dies instead, the kernel fails outstanding requests and removes the block device
//! at once, so that no program waits for a server that may never return. [`delete_dead_devices`] removes the
//! remaining dead number. A device that is dropped without a stop ends the same way, with its runtime.
//!
//! **I/O model.** One queue of [`QUEUE_DEPTH`] requests, served by one task of the runtime that started it.
//! The runtime polls the queue's io_uring for the task. Commands to the driver block a separate thread,
//! because starting a device reads from it.
//!
//! **Errors.** [`Error`], by cause, with the action that helps. A disk's error is reported to the kernel by
//! number and logged with the reason. A request that the kernel should never send (beyond the end, not whole
//! blocks, longer than negotiated) fails; it causes no panic and allocates no more than [`TRANSFER_MAX`].
//!
//! **Unsafe.** The rings and the mapped request descriptors: `ring.rs` has all unsafe code, with its
//! invariants.

mod abi;
mod control;
mod dead_devices;
mod device;
mod error;
mod request;
mod ring;
mod serve;
mod shape;

pub use dead_devices::delete_dead_devices;
pub use device::Device;
pub use error::Error;
pub use shape::Options;

/// Maximum outstanding requests of one device; the kernel queues more.
pub const QUEUE_DEPTH: u16 = 128;

/// The longest READ or WRITE, in bytes, if memory allows it; the kernel splits longer ones.
pub const TRANSFER_MAX: u32 = 1 << 20;
