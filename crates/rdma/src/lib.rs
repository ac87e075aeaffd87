//! RDMA in the model of verbs, with several providers.
//!
//! **What it is.** [`QueuePair`] is one reliable connection: the caller posts work requests and polls completions,
//! and buffers are passed by value with both. Providers: `iwarp` (MPA, DDP and RDMAP in user space over TCP,
//! wire-compatible with iWARP cards and Linux's siw) and `sim` (in one process, seeded, with faults). `verbs`
//! (rdma-core) will follow with the same trait.
//!
//! **What it is not.** No SMB, no message framing above RDMA Send, no credits: a Send that finds no posted receive
//! at the peer ends the connection, as it does on a card. No registration cache: a buffer is exposed to the peer
//! for one I/O and invalidated before that I/O completes.
//!
//! **Ownership of buffers.** A posted or exposed buffer belongs to the queue pair until its completion returns it.
//! When the connection ends, every outstanding request completes with [`WcError::Flushed`]; its buffer returns to
//! the arena once the peer can no longer access it.
//!
//! **I/O model.** [`QueuePair::poll`] does all work: a user-space provider reads and writes its socket there. One
//! task calls it; there is no background task.
//!
//! **Errors.** A call returns [`RdmaError`] for misuse by the caller. [`Down`] tells why the connection ended and
//! which party caused it. Completions contain [`WcError`].

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
