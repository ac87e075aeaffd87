//! SMB Direct (MS-SMBD): messages of any size and RDMA transfers over one queue pair, for both ends.
//!
//! **What it is.** [`SmbDirect`] is a connection as the server and the client use it: whole messages in and out,
//! RDMA Writes and Reads that complete once, buffers exposed to the peer for one I/O. Under it, [`protocol::Protocol`] is the
//! specification as a sans-IO state machine: negotiation, credits, fragments, keep-alive, timers. [`pdu`] holds the
//! bytes.
//!
//! **What it is not.** It does not parse SMB2 messages. It opens no connection: the caller passes a queue pair. It
//! keeps no registrations: a buffer is exposed for one I/O (DESIGN decision 2).
//!
//! **Ownership of buffers.** A received message is delivered as slices of receive buffers, which return to the arena
//! when the last slice is dropped. A sent message's buffers are held until the fabric has finished with them. Exposed
//! buffers and the sinks of RDMA Reads belong to the queue pair and are returned by value in an [`Event`].
//!
//! **I/O model.** [`SmbDirect::poll_event`] does all work, from one task; the other calls only queue. A connection
//! makes no progress unless it is polled, so an owner that stops polling stops its peer: that is the back-pressure.
//!
//! **Memory.** A connection holds at most: its posted receive buffers (at most `receive_credit_max`, few until the
//! peer shows that it uses them, fewer while the arena is under pressure), one message under reassembly (at most twice
//! its announced size, see `assembly`), and what its owner queued (bounded by the `max_queued_*` options).
//!
//! **Errors.** [`SmbDirectError`] distinguishes errors of the peer, the fabric and the caller. Every error of the peer
//! ends that connection with a [`Violation`].

mod assembly;
mod connection;
mod drive;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod options;
pub mod pdu;
mod progress;
pub mod protocol;
mod transfers;

pub use connection::{Event, SmbDirect};
pub use error::{SmbDirectError, Timer, Violation};
pub use options::{Counters, Limits, SmbDirectOptions, WorkRequests};
pub use pdu::BufferDescriptorV1;
pub use progress::Progress;
pub use transfers::{sinks, try_sinks};
