//! The metadata on the voters' disks: a journal and two checkpoints each, one writer.
//!
//! [`Metadata`] is the handle: reads are from memory, commits go to one task, the `writer`, which puts each
//! record on every voter and decides which voters are dropped. `replay` computes the newest state that a disk
//! has; `survey` reads it.
//!
//! Invariants:
//! 0. Nothing is written, and no commit acknowledged, without the [`Tenure`](crate::authority::Tenure).
//! 1. (epoch, incarnation, sequence) names one record or checkpoint for ever: a sequence number that may have
//!    reached a disk is never given to other operations. A record that some voters did not take is followed,
//!    not replaced.
//! 2. A commit is acknowledged when every remaining voter has it durably, and everything before it; a voter
//!    that did not accept it has been dropped by a record that follows it, and of every set of voters in
//!    force since the last acknowledged commit enough remain ([`crate::voters`]).
//! 3. [`Metadata::read`] shows acknowledged commits only.
//! 4. A disk leaves the [`Members`] before its removal is recorded, so an I/O that starts later does not find it.
//! 5. A record changes the voters by one, and follows when all voters that are left have the one before: else
//!    those that have it and those that have not could each be enough to open. (But for the record of an
//!    opening that accepts a loss.)

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
pub(crate) use members::{Life, absence};
pub use members::{Member, Members};
pub(crate) use replay::{History, Point};
pub use store::{CommitError, Suspension};
pub(crate) use store::{Metadata, Opening};
pub(crate) use survey::{Seen, Survey};
pub(crate) use voter::Voter;
