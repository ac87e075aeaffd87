//! `--verify`: every written sector contains its position and generation, which are checked when it is read.
//!
//! A sector of 512 bytes, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `CWBENCH1` |
//! | 8..16 | its offset in the target: detects misdirected I/O |
//! | 16..20 | its generation, incremented by each write: detects lost writes |
//! | 20..24 | the seed of the run |
//! | 24..504 | bytes derived from these three |
//! | 504..512 | CRC-64/NVME of bytes 0..504 |
//!
//! The [`Ledger`] stores the generation of each sector. Invariants: at most one write of a sector is
//! outstanding, so the last completed one must be on the medium. If no write of a sector was outstanding from
//! before a read was submitted until after it completed, the sector must have exactly the ledger's
//! generation. Otherwise any generation is valid, and a torn sector is not reported.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crc_fast::{CrcAlgorithm, checksum};
use serde::Serialize;

use super::random::mix;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// The largest target, in bytes: the ledger uses four bytes per sector.
pub const VERIFY_MAX: u64 = 32 << 30;

const MAGIC: [u8; 8] = *b"CWBENCH1";
/// Never written by this run, or undefined since a write failed: any correct stamp is valid.
const UNKNOWN: u32 = 0;
/// A write is outstanding; the generation is in the higher bits.
const IN_FLIGHT: u32 = 1;

/// The expected contents of each sector of a target. Shared by all threads.
pub struct Ledger {
    path: String,
    seed: u32,
    sectors: Vec<AtomicU32>,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Correct sectors.
    pub sectors: u64,
    /// Sectors without a stamp that this run has not written.
    pub unstamped: u64,
    /// Sectors that were being written at the same time, which could not be checked.
    pub raced: u64,
    /// Incorrect sectors.
    pub mismatches: u64,
    /// Writes that were changed to reads because another write of the same sectors was outstanding.
    pub deferred: u64,
    /// The first incorrect sector.
    pub first: Option<Mismatch>,
}

/// An incorrect sector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The target.
    pub path: String,
    /// Its offset in bytes.
    pub offset: u64,
    /// The generation last written; `None`: any is valid.
    pub expected_generation: Option<u32>,
    /// The seed with which it was written.
    pub expected_seed: u32,
    /// The kind of mismatch.
    pub what: MismatchKind,
    /// Its first 32 bytes, in hexadecimal.
    pub begins: String,
}

/// The kinds of mismatches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MismatchKind {
    /// The stamp is missing.
    NoStamp,
    /// The checksum does not match.
    Checksum,
    /// The sector belongs to another offset.
    Offset {
        /// The offset in the stamp.
        found: u64,
    },
    /// The generation differs: a lost write if it is older.
    Generation {
        /// The generation in the stamp.
        found: u32,
    },
    /// The sector is from another run.
    Seed {
        /// The seed in the stamp.
        found: u32,
    },
}

impl Verified {
    /// Adds all of `other`; the first mismatch stays the first.
    pub fn merge(&mut self, other: &Verified) {
        self.sectors += other.sectors;
        self.unstamped += other.unstamped;
        self.raced += other.raced;
        self.mismatches += other.mismatches;
        self.deferred += other.deferred;
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, sector at {}: ", self.path, self.offset)?;
        match self.what {
            MismatchKind::NoStamp => f.write_str("no stamp where one was written")?,
            MismatchKind::Checksum => f.write_str("the checksum does not match the data")?,
            MismatchKind::Offset { found } => write!(f, "its data belongs at {found}")?,
            MismatchKind::Generation { found } => write!(f, "generation {found}")?,
            MismatchKind::Seed { found } => write!(f, "written by seed {found}")?,
        }
        if let Some(expected) = self.expected_generation {
            write!(f, "; expected generation {expected} of seed {}", self.expected_seed)?;
        }
        write!(f, "; it begins with {}", self.begins)
    }
}

impl Ledger {
    /// The ledger of a target of `size` bytes. `stamped`: [`Ledger::stamp_new`] was applied to all of it.
    pub fn new(path: &str, size: u64, seed: u32, stamped: bool) -> Ledger {
        let state = if stamped { 1 << 1 } else { UNKNOWN };
        let count = usize::try_from(size.min(VERIFY_MAX) / SECTOR).unwrap_or(0);
        Ledger { path: path.to_owned(), seed, sectors: (0..count).map(|_| AtomicU32::new(state)).collect() }
    }

    fn span(&self, offset: u64, length: usize) -> &[AtomicU32] {
        let first = usize::try_from(offset / SECTOR).unwrap_or(usize::MAX);
        let count = length / SECTOR as usize;
        self.sectors.get(first..first.saturating_add(count)).unwrap_or_default()
    }

    /// Stamps a new file's bytes at `offset` with the first generation.
    pub fn stamp_new(seed: u32, offset: u64, bytes: &mut [u8]) {
        for (at, sector) in (offset..).step_by(SECTOR as usize).zip(bytes.chunks_exact_mut(SECTOR as usize)) {
            stamp(sector, at, 1, seed);
        }
    }

    /// Begins a write: stamps `bytes`. Returns false if another write of the same sectors is outstanding.
    #[must_use]
    pub fn begin_write(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let sectors = self.span(offset, bytes.len());
        for (n, sector) in sectors.iter().enumerate() {
            let taken = sector.fetch_update(Ordering::AcqRel, Ordering::Acquire, |s| {
                (s & IN_FLIGHT == 0).then(|| next(s) | IN_FLIGHT)
            });
            if taken.is_err() {
                // Nothing was written: restores the generations of the sectors already marked.
                sectors[..n]
                    .iter()
                    .for_each(|s| s.store(previous(s.load(Ordering::Acquire)), Ordering::Release));
                return false;
            }
        }
        let parts = bytes.chunks_exact_mut(SECTOR as usize);
        for ((at, part), sector) in (offset..).step_by(SECTOR as usize).zip(parts).zip(sectors) {
            stamp(part, at, sector.load(Ordering::Acquire) >> 1, self.seed);
        }
        true
    }

    /// Ends a write. After a failed write the contents are undefined.
    pub fn end_write(&self, offset: u64, length: usize, done: bool) {
        for sector in self.span(offset, length) {
            let state = if done { sector.load(Ordering::Acquire) & !IN_FLIGHT } else { UNKNOWN };
            sector.store(state, Ordering::Release);
        }
    }

    /// Begins a read: stores the expected states in `snapshot`.
    pub fn begin_read(&self, offset: u64, length: usize, snapshot: &mut Vec<u32>) {
        snapshot.clear();
        snapshot.extend(self.span(offset, length).iter().map(|s| s.load(Ordering::Acquire)));
    }

    /// Ends a read: checks `bytes` and adds the result to `into`.
    pub fn end_read(&self, offset: u64, bytes: &[u8], snapshot: &[u32], into: &mut Verified) {
        let sectors = self.span(offset, bytes.len());
        let parts = bytes.chunks_exact(SECTOR as usize).zip(sectors).zip(snapshot);
        for (at, ((bytes, sector), before)) in (offset..).step_by(SECTOR as usize).zip(parts) {
            let raced = before & IN_FLIGHT != 0 || sector.load(Ordering::Acquire) != *before;
            let expected = (*before != UNKNOWN && !raced).then_some(before >> 1);
            match judge(bytes, at, expected, self.seed) {
                Ok(()) => into.sectors += 1,
                Err(MismatchKind::NoStamp | MismatchKind::Checksum) if raced => into.raced += 1,
                Err(MismatchKind::NoStamp) if expected.is_none() => into.unstamped += 1,
                Err(what) => {
                    into.mismatches += 1;
                    into.first.get_or_insert_with(|| Mismatch {
                        path: self.path.clone(),
                        offset: at,
                        expected_generation: expected,
                        expected_seed: self.seed,
                        what,
                        begins: bytes[..32].iter().map(|b| format!("{b:02x}")).collect(),
                    });
                }
            }
        }
    }
}

/// The state of a sector during its next write: generations start at 1 and never become [`UNKNOWN`].
fn next(state: u32) -> u32 {
    match (state >> 1).wrapping_add(1) & (u32::MAX >> 1) {
        0 => 1 << 1,
        generation => generation << 1,
    }
}

fn previous(state: u32) -> u32 {
    ((state >> 1) - 1) << 1
}

fn stamp(sector: &mut [u8], offset: u64, generation: u32, seed: u32) {
    sector[0..8].copy_from_slice(&MAGIC);
    sector[8..16].copy_from_slice(&offset.to_le_bytes());
    sector[16..20].copy_from_slice(&generation.to_le_bytes());
    sector[20..24].copy_from_slice(&seed.to_le_bytes());
    let mut x = mix(offset ^ mix(u64::from(generation) << 32 | u64::from(seed)));
    for word in sector[24..504].chunks_exact_mut(8) {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        word.copy_from_slice(&x.to_le_bytes());
    }
    let crc = checksum(CrcAlgorithm::Crc64Nvme, &sector[..504]);
    sector[504..512].copy_from_slice(&crc.to_le_bytes());
}

fn judge(sector: &[u8], offset: u64, generation: Option<u32>, seed: u32) -> Result<(), MismatchKind> {
    let word = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().expect("four bytes"));
    if sector[..8] != MAGIC {
        return Err(MismatchKind::NoStamp);
    }
    if checksum(CrcAlgorithm::Crc64Nvme, &sector[..504]) != word(504) {
        return Err(MismatchKind::Checksum);
    }
    if word(8) != offset {
        return Err(MismatchKind::Offset { found: word(8) });
    }
    if let Some(generation) = generation {
        if half(20) != seed {
            return Err(MismatchKind::Seed { found: half(20) });
        }
        if half(16) != generation {
            return Err(MismatchKind::Generation { found: half(16) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    /// A disk in memory with its ledger.
    struct Disk {
        ledger: Ledger,
        bytes: Vec<u8>,
    }

    impl Disk {
        fn new(stamped: bool) -> Disk {
            let mut bytes = vec![0; 64 * BLOCK];
            if stamped {
                Ledger::stamp_new(9, 0, &mut bytes);
            }
            Disk { ledger: Ledger::new("disk", bytes.len() as u64, 9, stamped), bytes }
        }

        fn write(&mut self, at: usize) {
            let mut block = vec![0; BLOCK];
            assert!(self.ledger.begin_write(at as u64, &mut block));
            self.bytes[at..at + BLOCK].copy_from_slice(&block);
            self.ledger.end_write(at as u64, BLOCK, true);
        }

        fn read(&self, at: usize) -> Verified {
            let (mut snapshot, mut found) = (Vec::new(), Verified::default());
            self.ledger.begin_read(at as u64, BLOCK, &mut snapshot);
            self.ledger.end_read(at as u64, &self.bytes[at..at + BLOCK], &snapshot, &mut found);
            found
        }

        fn wrong(&self, at: usize) -> MismatchKind {
            self.read(at).first.expect("a mismatch").what
        }
    }

    #[test]
    fn written_sectors_match() {
        let mut disk = Disk::new(true);
        disk.write(BLOCK);
        disk.write(BLOCK + 512); // overlaps
        for at in [0, BLOCK, BLOCK + 512, 3 * BLOCK] {
            assert_eq!(disk.read(at), Verified { sectors: 8, ..Verified::default() });
        }
    }

    #[test]
    fn a_bit_a_place_a_lost_write_a_foreign_run() {
        let mut disk = Disk::new(true);
        disk.bytes[BLOCK + 700] ^= 1;
        assert_eq!(disk.wrong(BLOCK), MismatchKind::Checksum);
        assert_eq!(disk.read(BLOCK).first.map(|m| m.offset), Some(BLOCK as u64 + 512));
        disk.bytes.copy_within(0..BLOCK, 2 * BLOCK);
        assert_eq!(disk.wrong(2 * BLOCK), MismatchKind::Offset { found: 0 });
        let before = disk.bytes.clone();
        disk.write(3 * BLOCK);
        disk.bytes = before;
        assert_eq!(disk.wrong(3 * BLOCK), MismatchKind::Generation { found: 1 });
        disk.bytes[4 * BLOCK..5 * BLOCK].fill(0);
        assert_eq!(disk.wrong(4 * BLOCK), MismatchKind::NoStamp);
        stamp(&mut disk.bytes[5 * BLOCK..5 * BLOCK + 512], 5 * BLOCK as u64, 1, 8);
        assert_eq!(disk.wrong(5 * BLOCK), MismatchKind::Seed { found: 8 });
    }

    #[test]
    fn unwritten_sectors_are_no_mismatch() {
        let mut disk = Disk::new(false);
        assert_eq!(disk.read(0).unstamped, 8);
        disk.write(0);
        assert_eq!(disk.read(0).sectors, 8);
        disk.ledger.end_write(0, BLOCK, false);
        disk.bytes[..BLOCK].fill(0);
        assert_eq!(disk.read(0).unstamped, 8);
    }

    #[test]
    fn one_write_at_a_time_and_races_are_not_judged() {
        let mut disk = Disk::new(true);
        let mut block = vec![0; BLOCK];
        assert!(disk.ledger.begin_write(BLOCK as u64, &mut block));
        let mut other = vec![0; BLOCK];
        assert!(!disk.ledger.begin_write(BLOCK as u64 - 512, &mut other), "overlaps a write in flight");
        assert_eq!(disk.read(0).sectors, 8, "what the refused write had taken is free again");
        disk.bytes[BLOCK] = 0; // torn
        assert_eq!((disk.read(BLOCK).raced, disk.read(BLOCK).mismatches), (1, 0));
        disk.ledger.end_write(BLOCK as u64, BLOCK, true);
        assert_eq!(disk.wrong(BLOCK), MismatchKind::NoStamp);
    }
}
