//! Journals of parity spaces: on disks that are there for them, else on the fastest, and over several,
//! because what is overwritten goes through one.

use disk::Media;

use super::widest;
use crate::{DiskNumber, DiskRecord, MediaClass, SpaceId, State, Usage};

/// The most columns of a journal: each takes slabs of its own.
const COLUMNS_MAX: usize = 4;

/// Ranks of disks: those for journals, storage-class memory, NVMe, SSD, unknown, with heads.
const RANKS: u8 = 6;

/// How little a disk is wanted for a journal.
fn rank(disk: &DiskRecord) -> u8 {
    match (disk.usage, disk.media()) {
        (Usage::Journal, _) => 0,
        (_, Media::Scm) => 1,
        (_, Media::Nvme) => 2,
        (_, Media::Ssd) => 3,
        (_, Media::Unspecified) => 4,
        (_, Media::Hdd) => 5,
    }
}

/// The disks for a space's slabs by default, and their order.
pub(super) struct Taste<'a> {
    state: &'a State,
    journal: bool,
    media: MediaClass,
}

impl<'a> Taste<'a> {
    pub(super) fn of(state: &'a State, space: SpaceId) -> Taste<'a> {
        let media = state.spaces.get(&space).map_or(MediaClass::ANY, |r| r.media);
        Taste { state, journal: state.owner_of(space).is_some(), media }
    }

    pub(super) fn new(state: &'a State, journal: bool, media: MediaClass) -> Taste<'a> {
        Taste { state, journal, media }
    }

    /// Whether new slabs go to a disk of this kind.
    pub(super) fn takes(&self, disk: &DiskRecord) -> bool {
        let usage = disk.usage == Usage::AutoSelect || self.journal && disk.usage == Usage::Journal;
        usage && self.suits(disk)
    }

    /// Whether slabs may lie on a disk of this medium. A disk reserved for journals is allowed, whatever its
    /// medium.
    pub(super) fn suits(&self, disk: &DiskRecord) -> bool {
        self.media.takes(disk.media()) || self.journal && disk.usage == Usage::Journal
    }

    /// Whether it is a journal's.
    pub(super) fn is_journal(&self) -> bool {
        self.journal
    }

    /// The media.
    pub(super) fn media(&self) -> MediaClass {
        self.media
    }

    /// Lower is better.
    pub(super) fn rank(&self, disk: DiskNumber) -> u8 {
        if !self.journal {
            return 0;
        }
        self.state.disks.get(&disk).map_or(RANKS, rank)
    }
}

/// How many columns the journal on these media has of a space whose rows have `slabs`: as many as fit on the
/// fastest disks, with the `copies` of each as far apart as any disks could have them. Together they take no
/// more disks than a row of the space.
pub(crate) fn journal_columns(state: &State, media: MediaClass, copies: usize, slabs: usize) -> u8 {
    let most = (slabs / copies.max(1)).clamp(1, COLUMNS_MAX);
    let taste = Taste { state, journal: true, media };
    let apart = |last: u8, columns: usize| {
        let fast =
            state.disks.iter().filter(|(d, r)| taste.takes(r) && state.is_present(**d) && rank(r) <= last);
        let fast: Vec<DiskNumber> = fast.map(|(d, _)| *d).collect();
        widest(state, fast.iter().copied(), columns, copies, 1).map(|(level, _)| level)
    };
    let best = apart(RANKS, 1);
    let fastest = (0..RANKS).find(|last| best.is_some() && apart(*last, 1) == best);
    let columns = fastest.and_then(|last| (1..=most).rev().find(|n| apart(last, *n) == best));
    columns.unwrap_or(1) as u8
}
