//! RDMA in the model of verbs, and its providers.
//!
//! **What it is.** [`QueuePair`] is one reliable connection: work requests are posted, completions are polled, and
//! buffers travel by value with both. Providers: `iwarp` (MPA, DDP and RDMAP in user space over TCP, wire-compatible
//! with iWARP cards and Linux's siw) and `sim` (in one process, seeded, with faults). `verbs` (rdma-core) comes later
//! behind the same trait.
//!
//! **What it is not.** No SMB, no message framing above RDMA Send, no credits: a Send that finds no posted receive at
//! the peer ends the connection, as it does on a card. No registration cache: a buffer is exposed to the peer for one
//! I/O and invalidated before that I/O completes.
//!
//! **Ownership of buffers.** A buffer posted or exposed belongs to the queue pair until its completion returns it. When
//! the connection ends every outstanding request completes with [`WcError::Flushed`], and its buffer returns to the
//! arena after the peer can no longer reach it.
//!
//! **I/O model.** [`QueuePair::poll`] drives everything: a user-space provider reads and writes its socket there. It
//! is called from one task; nothing else runs.
//!
//! **Errors.** [`RdmaError`] for the caller's misuse, at the call; [`Down`] for the end of the connection, with the
//! party that caused it; [`WcError`] in completions.

mod activity;
#[cfg(test)]
mod conformance;
mod error;
pub mod iwarp;
mod queue_pair;
mod requests;
pub mod sim;
mod stags;
pub mod violation;

pub use error::{Down, RdmaError, TerminateCode, WcError};
pub use queue_pair::{
    Completion, Done, Exposed, Exposure, QueuePair, QueuePairCaps, Remote, Rights, Stag, Wr, WrId,
};
