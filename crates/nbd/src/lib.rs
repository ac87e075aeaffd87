//! A server for the network block device protocol.
//!
//! **What it is.** It exports anything that is a [`disk::Disk`] over a Unix socket, to QEMU, nbd-client, libnbd and fio: fixed
//! newstyle negotiation with simple replies, as the protocol's specification has it (NetworkBlockDevice/nbd, `doc/proto.md`, cited
//! as *NBD*): READ, WRITE, FLUSH, TRIM, WRITE_ZEROES, FUA.
//!
//! **What it is not.** It does no TLS, and so no TCP: a Unix socket's permissions say who may. No structured replies, no block
//! status; a client that asks for them is told, and goes on without. It never rounds: a client must know the block size, and one
//! that does not ask for it is refused when it is larger than one byte.
//!
//! **I/O model.** [`handshake`] and [`message`] are pure. [`Server::serve`] runs each connection as a task of the worker it is called on; a
//! connection has at most [`IN_FLIGHT`] requests under way and takes no more from the socket meanwhile, or while the arena has no
//! memory for the next one. What they hold of it is an eighth at most, and only for the time that [`Limits`] name: a client that stalls stalls itself. Payload is read from the socket into arena memory and written from it: no copy in between.
//!
//! **Errors.** What a disk cannot do is told the client by number, and logged with the reason; a client that breaks the protocol
//! loses its connection, and the log says why. No byte of a client panics, and none allocates more than [`OPTION_MAX`] or one
//! request's bound.

mod connection;
pub mod handshake;
pub mod message;
mod server;

pub use server::{Export, Limits, Server};

/// Requests under way on one connection.
pub const IN_FLIGHT: usize = 64;

/// The longest READ or WRITE, in bytes, where the memory allows it; NBD's own customary bound.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// The longest data of an option, in bytes: a name of 4,096 and a few requests.
pub const OPTION_MAX: u32 = 16 << 10;
