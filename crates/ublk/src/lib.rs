//! A disk as a block device of the Linux kernel: `/dev/ublkbN`.
//!
//! **What it is.** A server for the kernel's ublk driver, as its UAPI header
//! (`include/uapi/linux/ublk_cmd.h`, cited as *ublk_cmd.h*) and its document (`Documentation/block/ublk.rst`,
//! cited as *ublk.rst*) have it. Anything that is a [`disk::Disk`] becomes a block device, for file systems,
//! LVM and whatever else knows nothing of us: READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES, FUA.
//!
//! **What it is not.** No zoned devices, no zero copy: the driver's user copy moves each byte of payload once
//! between the request's pages and memory of the arena, which the disk uses directly. No user recovery
//! either: see *Lifecycle*. It needs Linux 6.5, the first version whose driver reports its features and has
//! user copy; older ones are detected and refused with the action that helps.
//!
//! **Lifecycle.** [`Device::start`] adds a device, describes it, fetches its first requests and starts it →
//! requests, until [`Device::stop`] stops it, after the page cache has been written back, and deletes it. If
//! the server dies instead, the kernel fails outstanding requests and removes the block device at once, so
//! that no program waits for a server that may never return. [`delete_leftovers`] removes the remaining dead
//! number. A device that is dropped without a stop ends the same way, with its runtime.
//!
//! **I/O model.** One queue of [`QUEUE_DEPTH`] requests, served by one task of the runtime that started it;
//! the task waits for the queue's io_uring by the runtime's own poll. Commands to the driver wait on a thread
//! of their own, because starting a device reads from it.
//!
//! **Errors.** [`Error`], by blame, with the action that helps. A disk's error is reported to the kernel by
//! number, and logged with the reason. A request that the kernel should never send (beyond the end, not whole
//! blocks, longer than negotiated) fails; it causes no panic and allocates no more than [`TRANSFER_MAX`].
//!
//! **Unsafe.** The rings and the map of the requests: one module, `ring.rs`, has all of it, with its invariants.

mod abi;
mod control;
mod device;
mod error;
mod leftovers;
mod request;
mod ring;
mod serve;
mod shape;

pub use device::Device;
pub use error::Error;
pub use leftovers::delete_leftovers;
pub use shape::Options;

/// Outstanding requests of one device; the kernel queues more.
pub const QUEUE_DEPTH: u16 = 128;

/// The longest READ or WRITE, in bytes, where the memory allows it; the kernel splits longer ones.
pub const TRANSFER_MAX: u32 = 1 << 20;
