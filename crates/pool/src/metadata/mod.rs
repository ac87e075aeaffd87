//! The metadata on the voters' disks: a journal and two checkpoints each, one writer.
//!
//! [`Metadata`] is the handle: reads are from memory, commits go to one task, the `writer`, which writes each record to
//! every voter and decides which voters are dropped. `replay` computes the newest state on a disk; `survey` reads it.
//!
//! Invariants:
//! 0. Nothing is written, and no commit acknowledged, without the [`Tenure`](crate::authority::Tenure).
//! 1. (epoch, incarnation, sequence) identifies one record or checkpoint for ever: a sequence number that may have
//!    reached a disk is never reused for other operations. If some voters did not store a record, another record
//!    follows it; none replaces it.
//! 2. A commit is acknowledged when it and all earlier records are durable on every remaining voter. A voter that did
//!    not store it has been dropped by a later record. Of every set of voters in force since the last acknowledged
//!    commit enough voters remain ([`crate::voters`]).
//! 3. [`Metadata::read`] returns acknowledged commits only.
//! 4. A disk is removed from the [`Members`] before its removal is recorded, so that no later I/O uses it.
//! 5. A record changes the set of voters by one, and is written after all remaining voters have the previous record.
//!    Otherwise the voters with it, and those without it, could each suffice to open the pool. (The exception is the
//!    record of an opening that accepts a loss.)

mod damage;
mod encoded;
mod io;
mod members;
mod replay;
mod ring;
mod store;
mod survey;
mod voter;
mod writer;

#[cfg(test)]
pub(crate) use encoded::Encoded;
pub(crate) use io::DiskIo;
pub use members::{Member, Members};
pub(crate) use members::{MembershipToEnd, Removal, absence};
pub(crate) use replay::{History, Point};
pub use store::{CommitError, Suspension};
pub(crate) use store::{Metadata, Opening};
pub(crate) use survey::{DiskMetadata, Survey};
pub(crate) use voter::Voter;
