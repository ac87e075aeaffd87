//! Operations and whole states as bodies. The numbers below are on disks: they are never given to something else.

use super::codec::{Malformed, Reader, Wire, choice, record};
use crate::state::{
    Absence, DiskRecord, EPOCHS_MAX, FaultDomains, GIVEN_UP_MAX, LOST_MAX, LossRecord, MediaClass, Moving,
    Op, Policy, Presence, Provisioning, Resiliency, Row, ScrubRecord, SlabCopy, SlabPlace, SpaceRecord,
    State, StateParts, Usage,
};

record!(FaultDomains { enclosure, node, rack });
record!(DiskRecord { id, name, slabs, usage, presence, domains, media, label_sequence, membership, areas });
record!(SpaceRecord { name, size, resiliency, interleave, columns, provisioning, media });
record!(SlabPlace { disk, slab });
record!(ScrubRecord { began, asked, next, healed, lost, ended, last_healed, last_lost, since });
record!(Moving { index, copy });
record!(Policy { warn_at, repair_after_s });
record!(StateParts {
    pool,
    name,
    slab_bytes,
    epochs,
    voters,
    next_disk,
    next_space,
    next_generation,
    regions_given_up,
    disks,
    spaces,
    rows,
    policy,
    scrubs,
    given_up,
    losses,
    owned,
});

choice!(Usage { 0 => AutoSelect, 1 => ManualSelect, 2 => HotSpare, 3 => Journal, 4 => Retired, 5 => Leaving });
choice!(Presence { 0 => Present, 1 => Absent(reason) });
choice!(Absence {
    0 => NotFound, 1 => Gone, 2 => WriteFailed, 3 => FlushFailed, 4 => Slow, 5 => Asked, 6 => Stale,
});
choice!(Resiliency { 0 => Simple, 1 => Mirror { copies }, 2 => Parity { parity }, 3 => LocalParity { groups, global } });
choice!(Provisioning { 0 => Thin, 1 => Fixed });
choice!(Op {
    1 => RenamePool { name },
    2 => AddDisk { disk, record },
    3 => RemoveDisk { disk },
    4 => DiskAbsent { disk, reason },
    5 => DiskPresent { disk, membership },
    6 => SetUsage { disk, usage },
    7 => SetDomains { disk, domains },
    8 => Labelled { disk, sequence },
    9 => Voters { voters },
    10 => CreateSpace { space, record },
    11 => DestroySpace { space },
    12 => ResizeSpace { space, size },
    13 => RenameSpace { space, name },
    14 => AllocateRow { space, row, slabs },
    15 => FreeRow { space, row },
    16 => Missed { space, row, index, regions },
    17 => NotMissed { space, row, index, regions },
    18 => MoveSlab { space, row, index, to },
    19 => AcceptLoss { space, row, index, regions },
    20 => Opened { epoch, incarnation },
    21 => MissedAll { disk },
    22 => BeginMove { space, row, index, to },
    23 => EndMove { space, row },
    24 => CancelMove { space, row },
    25 => SetPolicy { policy },
    26 => SetDiskMedia { disk, media },
    27 => SetSpaceMedia { space, media },
    28 => GivenUp { after },
    29 => Lost { space, record },
    30 => Scrub { space, record },
    31 => Space { space, op },
});

/// A bit for each medium.
impl Wire for MediaClass {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<MediaClass, Malformed> {
        MediaClass::from_bits(u8::get(r)?).ok_or(Malformed)
    }
}

/// The slabs, then the moving one, if there is one.
impl Wire for Row {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.slabs.len() as u8);
        self.slabs.iter().for_each(|copy| copy.put(out));
        self.moving().put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Row, Malformed> {
        let count = usize::from(u8::get(r)?);
        let mut row = Row::new(r.list::<SlabCopy>(count)?);
        row.set_moving(Wire::get(r)?);
        Ok(row)
    }
}

/// The addresses are more than a list may have: a 32-bit number, and each, in order.
impl Wire for LossRecord {
    fn put(&self, out: &mut Vec<u8>) {
        self.units.put(out);
        (self.at.len() as u32).put(out);
        self.at.iter().for_each(|a| a.put(out));
    }
    fn get(r: &mut Reader<'_>) -> Result<LossRecord, Malformed> {
        let (units, count) = (u64::get(r)?, u32::get(r)? as usize);
        let at = r.list::<u64>(count.min(LOST_MAX + 1))?;
        if at.len() > LOST_MAX || !at.is_sorted_by(|a, b| a < b) {
            return Err(Malformed);
        }
        Ok(LossRecord { units, at: at.into_iter().collect() })
    }
}

/// Most slabs have missed nothing, and a new one everything: a byte says so, and only others have their eight.
impl Wire for SlabCopy {
    fn put(&self, out: &mut Vec<u8>) {
        self.place.put(out);
        self.generation.put(out);
        match self.missed {
            0 => out.push(0),
            u64::MAX => out.push(1),
            missed => {
                out.push(2);
                missed.put(out);
            }
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<SlabCopy, Malformed> {
        let (place, generation) = (SlabPlace::get(r)?, u32::get(r)?);
        let missed = match u8::get(r)? {
            0 => 0,
            1 => u64::MAX,
            2 => Some(u64::get(r)?).filter(|m| !matches!(*m, 0 | u64::MAX)).ok_or(Malformed)?,
            _ => return Err(Malformed),
        };
        Ok(SlabCopy { place, generation, missed })
    }
}

/// The body of a journal record: a 32-bit number of operations, and these.
pub fn encode_record(ops: &[Op]) -> Vec<u8> {
    let mut out = Vec::new();
    (ops.len() as u32).put(&mut out);
    ops.iter().for_each(|op| op.put(&mut out));
    out
}

/// The operations of a journal record.
///
/// # Errors
/// [`Malformed`].
pub fn decode_record(body: &[u8]) -> Result<Vec<Op>, Malformed> {
    let mut r = Reader(body);
    let count = u32::get(&mut r)?;
    let ops = r.list(count as usize)?;
    r.end()?;
    Ok(ops)
}

/// The body of a checkpoint.
pub fn encode_state(state: &State) -> Vec<u8> {
    let mut out = Vec::with_capacity(state_size_bound(state));
    state.parts().put(&mut out);
    out
}

/// The state of a checkpoint.
///
/// # Errors
/// [`Malformed`], also for a state that breaks its invariants.
pub fn decode_state(body: &[u8]) -> Result<State, Malformed> {
    let mut r = Reader(body);
    let parts = StateParts::get(&mut r)?;
    r.end()?;
    State::from_parts(parts).map_err(|_| Malformed)
}

/// Bytes of the epochs that a state remembers, at most.
pub const EPOCHS_BYTES: usize = EPOCHS_MAX * 16;

/// Bytes that [`encode_state`] gives at most: cheap enough to ask at every commit. Epochs count as if there
/// were all of them: each opening has one more, and must not fail because others have filled the room.
pub fn state_size_bound(state: &State) -> usize {
    const SLAB: usize = 6 + 4 + 9;
    const ROW: usize = 8 + 1 + 2;
    const DISK: usize = 2 + 16 + 4 * 256 + 40 + 176;
    const SPACE: usize = 4 + 256 + 32;
    const SCRUB: usize = 4 + 61;
    const GIVEN_UP: usize = 8 + 8;
    let losses: usize = state.losses.values().map(|r| 4 + 8 + 4 + 8 * r.at.len()).sum();
    let slabs = state.slabs_allocated();
    let owned: usize = state.owned.values().map(|record| owned_size_bound(record)).sum();
    let fixed =
        512 + 4 + losses + state.scrubs.len() * SCRUB + 255 * 2 + EPOCHS_BYTES + GIVEN_UP_MAX * GIVEN_UP;
    fixed
        + owned
        + slabs * SLAB
        + state.rows.len() * ROW
        + state.disks.len() * DISK
        + state.spaces.len() * SPACE
}

/// The same of a space that an owner drives, slabs not counted.
fn owned_size_bound(record: &pool_seam::SpaceRecord) -> usize {
    const ROW: usize = 4 + 4 + 1 + 1 + 1 + 2;
    let lists = 10 * record.unaccounted.len() + 258 * record.attachments.len() + 8 * record.loss.at.len();
    512 + lists + record.rows.len() * ROW
}
