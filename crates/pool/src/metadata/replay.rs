//! Computes the newest state in a disk's checkpoints and journal. Pure.

use crc_fast::{CrcAlgorithm, Digest};

use crate::format::{BLOCK, Frame, FrameError, Header, Kind, decode_record, decode_state, peek_age};
use crate::{DiskNumber, PoolId, State};

/// The newest state on a disk, and its age.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) state: State,
    pub(crate) point: Point,
}

/// The end of a disk's history, where its writer continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryEnd {
    pub(crate) point: Point,
    /// The slot of the disk's newest checkpoint: the next one is written to the other slot.
    pub(crate) slot: usize,
}

/// The contents of a disk.
pub(crate) struct Replayed {
    /// The state; `None` if it equals the known one.
    pub(crate) state: Option<State>,
    pub(crate) end: HistoryEnd,
}

/// A place in the sequence of records. Two points with equal epoch, sequence and incarnation are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) incarnation: u64,
    /// A chained checksum of all records since the epoch's first checkpoint: a record that continues another history
    /// does not match.
    pub(crate) chain: u32,
}

/// Why a disk's metadata cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// The disk never had metadata.
    #[error("it has no metadata")]
    None,
    /// The disk had metadata, but neither checkpoint can be used.
    #[error("both of its checkpoints are damaged")]
    Checkpoints,
    /// A record is damaged and later ones exist, or newer records exist but only an old checkpoint.
    #[error("its journal has a gap after record {0}")]
    Gap(u64),
    /// A record with a valid checksum cannot be applied.
    #[error("record {0} of its journal is invalid")]
    Record(u64),
}

impl Point {
    /// The point after a record.
    pub(crate) fn after(&self, body: &[u8]) -> Point {
        let sequence = self.sequence + 1;
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.chain.to_le_bytes());
        digest.update(&self.epoch.to_le_bytes());
        digest.update(&self.incarnation.to_le_bytes());
        digest.update(&sequence.to_le_bytes());
        digest.update(body);
        Point { sequence, chain: digest.finalize() as u32, ..*self }
    }
}

/// Computes the newest state from `slots` and `ring`. The checkpoint with the newer header is decoded first, and the
/// other one only if the first is damaged, so that only one state is in memory. A `known` state is not computed
/// again. Errors: the disk is not used to determine the newest state.
pub(crate) fn replay(
    pool: PoolId,
    disk: DiskNumber,
    slots: [&[u8]; 2],
    ring: &[u8],
    known: Option<&Point>,
) -> Result<Replayed, Unusable> {
    let first = newer_slot(slots);
    let mut why = Unusable::None;
    for slot in [first, first ^ 1] {
        let (bytes, begins, at) = match checkpoint(pool, disk, slots[slot]) {
            Ok(whole) => whole,
            Err(FrameError::Blank | FrameError::Foreign) => continue,
            Err(FrameError::Damaged) => {
                why = Unusable::Checkpoints;
                continue;
            }
        };
        let (records, point) = records_after(pool, disk, ring, at, begins);
        let mut state = None;
        if known != Some(&point) {
            let Some(made) = decode_state(bytes).ok().filter(|s| s.pool == pool) else {
                why = Unusable::Checkpoints;
                continue;
            };
            state = Some(apply_records(made, &records)?);
        }
        if newer_records(pool, disk, ring, &point) {
            return Err(Unusable::Gap(point.sequence));
        }
        return Ok(Replayed { state, end: HistoryEnd { point, slot } });
    }
    Err(why)
}

/// The slot of the newer one of two checkpoints, according to their headers, if both are intact.
pub(crate) fn newer_slot(slots: [&[u8]; 2]) -> usize {
    let [a, b] = slots.map(|bytes| peek_age(bytes, Kind::Checkpoint).ok());
    usize::from(a <= b)
}

/// A checkpoint's encoded state, its point, and the position of the next record in the ring.
fn checkpoint(pool: PoolId, disk: DiskNumber, bytes: &[u8]) -> Result<(&[u8], Point, usize), FrameError> {
    let frame = Frame::parse(bytes, Kind::Checkpoint)?;
    let h = frame.header;
    if h.pool != pool || h.disk != disk {
        return Err(FrameError::Foreign);
    }
    let (at, state) = frame.body.split_at_checked(8).ok_or(FrameError::Damaged)?;
    let at = u64::from_le_bytes(at.try_into().map_err(|_| FrameError::Damaged)?);
    let at = usize::try_from(at).map_err(|_| FrameError::Damaged)?;
    let point = Point { epoch: h.epoch, sequence: h.sequence, incarnation: h.incarnation, chain: h.chain };
    Ok((state, point, at))
}

/// The records that follow, as long as each continues the one before, and the point after them.
fn records_after(
    pool: PoolId,
    disk: DiskNumber,
    ring: &[u8],
    mut at: usize,
    mut point: Point,
) -> (Vec<Frame<'_>>, Point) {
    let mut records = Vec::new();
    while let Some((frame, position)) = record_after(pool, disk, ring, at, &point) {
        point = point.after(frame.body);
        at = position + frame.size();
        records.push(frame);
    }
    (records, point)
}

fn apply_records(mut state: State, records: &[Frame<'_>]) -> Result<State, Unusable> {
    for frame in records {
        let senseless = Unusable::Record(frame.header.sequence);
        for op in &decode_record(frame.body).map_err(|_| senseless)? {
            state.apply(op).map_err(|_| senseless)?;
        }
    }
    Ok(state)
}

/// The record that continues `point`: at `at`, or at the beginning of the ring if it did not fit there.
fn record_after<'a>(
    pool: PoolId,
    disk: DiskNumber,
    ring: &'a [u8],
    at: usize,
    point: &Point,
) -> Option<(Frame<'a>, usize)> {
    [at, 0].into_iter().find_map(|at| {
        let frame = Frame::parse(ring.get(at..)?, Kind::Record).ok()?;
        (is_ours(&frame.header, pool, disk, point)
            && frame.header.sequence == point.sequence.checked_add(1)?
            && frame.header.chain == point.chain)
            .then_some((frame, at))
    })
}

/// Whether a later valid record exists. Records are written one after the other, each when the previous one is
/// durable, so a later record proves that the records between existed and are lost.
fn newer_records(pool: PoolId, disk: DiskNumber, ring: &[u8], point: &Point) -> bool {
    (0..ring.len()).step_by(BLOCK).any(|at| {
        Frame::parse(&ring[at..], Kind::Record)
            .is_ok_and(|f| is_ours(&f.header, pool, disk, point) && f.header.sequence > point.sequence)
    })
}

fn is_ours(h: &Header, pool: PoolId, disk: DiskNumber, point: &Point) -> bool {
    h.pool == pool && h.disk == disk && h.epoch == point.epoch && h.incarnation == point.incarnation
}
