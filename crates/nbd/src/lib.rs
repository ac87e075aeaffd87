//! A server for the network block device protocol.
//!
//! **What it is.** It exports any [`disk::Disk`] over a Unix socket, to QEMU, nbd-client, libnbd and fio. It
//! implements fixed newstyle negotiation with simple or structured replies, as specified
//! (NetworkBlockDevice/nbd, `doc/proto.md`, cited as *NBD*): READ, WRITE, FLUSH, TRIM, WRITE_ZEROES, FUA, and
//! BLOCK_STATUS with `base:allocation`, which lets copy tools skip holes. With structured replies, a READ of
//! a hole sends no zeros.
//!
//! **What it is not.** It has no TLS, and therefore no TCP: a Unix socket's permissions control access. It
//! has no extended headers; a client that requests them gets an error reply and continues without. It does
//! not round requests: a client must request the block size, or it is refused if the block size is larger
//! than one byte.
//!
//! **I/O model.** [`handshake`] and [`message`] are pure. [`Server::serve`] runs each connection as a task of
//! the calling worker. A connection has at most [`IN_FLIGHT`] outstanding requests, and stops reading from
//! the socket at that limit or while the arena has no memory for the next one. Its requests hold at most an
//! eighth of the arena, and only for the time in [`Limits`]: a stalled client stalls only itself. Payload is
//! read from the socket directly into arena memory, and written from there without a copy.
//!
//! **Errors.** A disk's error is reported to the client by number and logged with the reason. A client that
//! violates the protocol is disconnected, and the reason is logged. No input of a client causes a panic or
//! allocates more than [`OPTION_MAX`] or the limit of one request.

mod connection;
pub mod handshake;
pub mod message;
mod server;
mod target;

pub use server::{Export, Exports, Limits, Server};

/// Maximum outstanding requests of one connection.
pub const IN_FLIGHT: usize = 64;

/// The longest READ or WRITE, in bytes, if memory allows it; the customary limit of NBD.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// The longest data of an option, in bytes: a name of 4,096 bytes and some information requests.
pub const OPTION_MAX: u32 = 16 << 10;
