//! A server for the network block device protocol.
//!
//! **What it is.** It exports anything that is a [`disk::Disk`] over a Unix socket, to QEMU, nbd-client, libnbd and fio: fixed
//! newstyle negotiation with simple or structured replies, as the protocol's specification has it (NetworkBlockDevice/nbd,
//! `doc/proto.md`, cited as *NBD*): READ, WRITE, FLUSH, TRIM, WRITE_ZEROES, FUA, and BLOCK_STATUS with `base:allocation`, by
//! which copies skip what is empty. A READ of what is empty sends no zeros to a client with structured replies.
//!
//! **What it is not.** It has no TLS, and therefore no TCP: a Unix socket's permissions control access. No
//! extended headers; a client that requests them gets an error reply and continues without. It never rounds: a client must know the block size, and one that does not request it is refused
//! if it is larger than one byte.
//!
//! **I/O model.** [`handshake`] and [`message`] are pure. [`Server::serve`] runs each connection as a task of
//! the worker it is called on; a connection has at most [`IN_FLIGHT`] outstanding requests, and stops reading
//! from the socket at that limit or while the arena has no memory for the next one. Their memory is at most
//! an eighth of the arena, and only for the time in [`Limits`]: a stalled client stalls only itself. Payload
//! is read from the socket into arena memory and written from it: no copy in between.
//!
//! **Errors.** A disk's error is reported to the client by number, and logged with the reason; a client that
//! violates the protocol loses its connection, and the log says why. No byte of a client panics, and none
//! allocates more than [`OPTION_MAX`] or one request's bound.

mod connection;
pub mod handshake;
pub mod message;
mod server;
mod target;

pub use server::{Export, Exports, Limits, Server};

/// Outstanding requests of one connection.
pub const IN_FLIGHT: usize = 64;

/// The longest READ or WRITE, in bytes, where the memory allows it; NBD's own customary bound.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// The longest data of an option, in bytes: a name of 4,096 and a few requests.
pub const OPTION_MAX: u32 = 16 << 10;
