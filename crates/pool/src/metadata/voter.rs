//! One voter's disk, for the writer.

use std::sync::Arc;

use arena::IoBuf;
use disk::DiskError;

use super::damage;
use super::encoded::Encoded;
use super::io::DiskIo;
use super::members::Member;
use super::replay::Point;
use super::ring::Ring;
use crate::PoolId;
use crate::format::{Header, Kind, framed};

/// A voter, with the positions of its next checkpoint and its next record.
pub(crate) struct Voter {
    pub(crate) member: Arc<Member>,
    ring: Ring,
    slot: usize,
}

/// Blocks to write to a voter.
pub(crate) enum VoterWrite {
    Record {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The first block of the checkpoint, and the following ones.
    Checkpoint {
        offset: u64,
        parts: [IoBuf; 2],
    },
}

impl Voter {
    /// A voter whose journal restarts with a checkpoint in `slot`.
    pub(crate) fn new(member: Arc<Member>, slot: usize) -> Voter {
        let ring = Ring::new(member.areas.journal.length, 0);
        Voter { member, ring, slot }
    }

    /// The blocks of a record that follows `before`. Returns `None` if they do not fit: a checkpoint must be written
    /// instead.
    pub(crate) fn record(&mut self, pool: PoolId, before: &Point, body: &[u8]) -> Option<VoterWrite> {
        let size = framed(body.len()) as u64;
        // A record that takes much of the ring would soon require a checkpoint, so a checkpoint is written instead.
        if size > self.member.areas.journal.length / 4 {
            return None;
        }
        let at = self.ring.take(size)?;
        let header = Header { sequence: before.sequence + 1, ..self.header(Kind::Record, pool, before) };
        Some(VoterWrite::Record { offset: self.member.areas.journal.offset + at, bytes: header.frame(body) })
    }

    /// The blocks of a checkpoint; the caller has made sure that they fit ([`Voter::room`]).
    pub(crate) fn checkpoint(&mut self, pool: PoolId, point: &Point, state: &Encoded) -> VoterWrite {
        let parts = state.checkpoint(&self.header(Kind::Checkpoint, pool, point), self.ring.at());
        let area = self.member.areas.checkpoints()[self.slot];
        self.slot ^= 1;
        self.ring.clear();
        VoterWrite::Checkpoint { offset: area.offset, parts }
    }

    /// Whether a checkpoint should be written.
    pub(crate) fn is_filling(&self) -> bool {
        self.ring.is_filling()
    }

    /// The most bytes of state that fit the voter's checkpoints.
    pub(crate) fn room(member: &Member) -> u64 {
        let [a, b] = member.areas.checkpoints();
        a.length.min(b.length) - crate::format::BLOCK as u64
    }

    /// The number of damaged places on its disk: checkpoints, the journal.
    pub(crate) async fn damaged(&self, io: &DiskIo, pool: PoolId, point: &Point) -> Result<u64, DiskError> {
        damage::count(io, &self.member, pool, point, self.slot ^ 1).await
    }

    fn header(&self, kind: Kind, pool: PoolId, point: &Point) -> Header {
        Header {
            kind,
            pool,
            disk: self.member.number,
            epoch: point.epoch,
            incarnation: point.incarnation,
            sequence: point.sequence,
            chain: point.chain,
        }
    }
}

impl VoterWrite {
    /// Writes the blocks durably.
    pub(crate) async fn write(self, io: &DiskIo, member: &Member) -> Result<(), DiskError> {
        match self {
            VoterWrite::Record { offset, bytes } => io.write_durably(&member.disk, offset, bytes).await,
            VoterWrite::Checkpoint { offset, parts } => io.write_and_flush(&member.disk, offset, parts).await,
        }
    }
}
