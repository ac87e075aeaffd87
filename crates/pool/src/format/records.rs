//! Operations and whole states as bodies. The numbers below are on disks: they are never reassigned.

use super::codec::{Malformed, Reader, Wire, choice, record};
use crate::state::{
    Absence, DiskRecord, EPOCHS_MAX, FaultDomains, GIVEN_UP_MAX, LOST_MAX, LossRecord, MediaClass, Moving,
    Op, Policy, Presence, Provisioning, Resiliency, ScrubRecord, SlabCopy, SlabPlace, SpaceRecord, State,
    Usage,
};

record!(FaultDomains { enclosure, node, rack });
record!(DiskRecord { id, name, slabs, usage, presence, domains, media, label_sequence, membership, areas });
record!(SlabPlace { disk, slab });
record!(ScrubRecord { began, by_command, next, healed, lost, ended, last_healed, last_lost, since });
record!(Moving { index, copy });
record!(Policy { warn_at, repair_after_s });

choice!(Usage { 0 => AutoSelect, 1 => ManualSelect, 2 => HotSpare, 3 => Journal, 4 => Retired, 5 => Leaving });
choice!(Presence { 0 => Present, 1 => Absent(reason) });
choice!(Absence {
    0 => NotFound, 1 => Gone, 2 => WriteFailed, 3 => FlushFailed, 4 => Slow, 5 => ByCommand, 6 => Stale,
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
    8 => SetDiskMedia { disk, media },
    9 => Labelled { disk, sequence },
    10 => Voters { voters },
    11 => Opened { epoch, incarnation },
    12 => GivenUp { after },
    13 => MarkDiskStale { disk },
    14 => SetPolicy { policy },
    15 => Space { space, op },
});

/// One bit for each medium.
impl Wire for MediaClass {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<MediaClass, Malformed> {
        MediaClass::from_bits(u8::get(r)?).ok_or(Malformed)
    }
}

/// A long list, because there may be many addresses: a 32-bit number, and the addresses in order.
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

/// One byte states the stale regions of most slabs: none, or all of a new slab. Other slabs have eight bytes of stale
/// bits.
impl Wire for SlabCopy {
    fn put(&self, out: &mut Vec<u8>) {
        self.place.put(out);
        self.generation.put(out);
        match self.stale_regions {
            0 => out.push(0),
            u64::MAX => out.push(1),
            stale_regions => {
                out.push(2);
                stale_regions.put(out);
            }
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<SlabCopy, Malformed> {
        let (place, generation) = (SlabPlace::get(r)?, u32::get(r)?);
        let stale_regions = match u8::get(r)? {
            0 => 0,
            1 => u64::MAX,
            2 => Some(u64::get(r)?).filter(|m| !matches!(*m, 0 | u64::MAX)).ok_or(Malformed)?,
            _ => return Err(Malformed),
        };
        Ok(SlabCopy { place, generation, stale_regions })
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
pub fn decode_record(body: &[u8]) -> Result<Vec<Op>, Malformed> {
    let mut r = Reader(body);
    let count = u32::get(&mut r)?;
    let ops = r.list(count as usize)?;
    r.end()?;
    Ok(ops)
}

/// Encodes the body of a checkpoint.
pub fn encode_state(state: &State) -> Vec<u8> {
    let mut out = Vec::with_capacity(state_size_bound(state));
    state.put(&mut out);
    out
}

/// Decodes the state of a checkpoint. Errors: [`Malformed`], also for a state that breaks its invariants.
pub fn decode_state(body: &[u8]) -> Result<State, Malformed> {
    let mut r = Reader(body);
    let state = State::get(&mut r)?;
    r.end()?;
    state.checked().map_err(|_| Malformed)
}

/// The most bytes that the recorded epochs of a state take.
pub const EPOCHS_BYTES: usize = EPOCHS_MAX * 16;

/// An upper bound of the bytes of [`encode_state`], cheap enough for every commit. Epochs count with their maximum:
/// each opening adds one, and must not fail because other records have filled the space.
pub fn state_size_bound(state: &State) -> usize {
    const SLAB: usize = 6 + 4 + 9;
    const DISK: usize = 2 + 16 + 4 * 256 + 40 + 176;
    const GIVEN_UP: usize = 8 + 8;
    let spaces: usize = state.spaces.values().map(|record| space_size_bound(record)).sum();
    let fixed = 512 + 255 * 2 + EPOCHS_BYTES + GIVEN_UP_MAX * GIVEN_UP;
    fixed + spaces + state.slabs_allocated() * SLAB + state.disks.len() * DISK
}

/// [`state_size_bound`] for a space, without its slabs.
fn space_size_bound(record: &SpaceRecord) -> usize {
    const ROW: usize = 4 + 4 + 1 + 1 + 1 + 2;
    let lists = 10 * record.unaccounted.len() + 258 * record.attachments.len() + 8 * record.loss.at.len();
    512 + lists + record.rows.len() * ROW
}
