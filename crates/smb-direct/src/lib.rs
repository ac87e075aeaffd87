//! SMB Direct (MS-SMBD): messages of any size and RDMA transfers over one queue pair, for both ends.
//!
//! **What it is.** [`SmbDirect`] is a connection, as the server and the client use it. It sends and receives whole
//! messages, reports each RDMA Write or Read with one completion, and exposes buffers to the peer for one I/O.
//! Under it, [`protocol::Protocol`] implements the specification as a sans-IO state machine: negotiation, credits,
//! fragments, keep-alive, timers. [`pdu`] encodes and decodes the messages.
//!
//! **What it is not.** It does not parse SMB2 messages. It does not open connections: the caller passes a queue
//! pair. It does not cache registrations: a buffer is exposed for one I/O (DESIGN decision 2).
//!
//! **Ownership of buffers.** A received message is delivered as slices of receive buffers, which return to the
//! arena when the last slice is dropped. A sent message's buffers are held until the fabric has finished with them.
//! Exposed buffers and the sinks of RDMA Reads belong to the queue pair; an [`Event`] returns them by value.
//!
//! **I/O model.** [`SmbDirect::poll_event`] does all work, from one task; the other calls only queue requests. A
//! connection makes no progress unless it is polled, so an owner that stops polling stops its peer: that is the
//! back-pressure.
//!
//! **Memory.** A connection holds at most:
//! - its posted receive buffers: at most `receive_credit_max`, few until the peer uses them up, fewer while the
//!   arena is under pressure;
//! - one message under reassembly: at most twice its announced size, see `assembly`;
//! - the requests that its owner queued: bounded by the `max_queued_*` options.
//!
//! **Errors.** [`SmbDirectError`] distinguishes errors of the peer, the fabric and the caller. Every error of the
//! peer ends its connection with a [`Violation`].

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
