//! The disks where slabs of a space, or of its log, may be placed. For a log, also the preferred ones: disks for
//! logs, otherwise the fastest disks.

use disk::Media;

use crate::{DiskNumber, DiskRecord, MediaClass, State, Usage};

/// The rank of a disk that is not in the pool.
const LAST: u8 = 6;

/// How well a disk suits a log: lower is better.
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

/// See the module.
pub(super) struct Eligible<'a> {
    state: &'a State,
    is_log: bool,
    media: MediaClass,
}

impl<'a> Eligible<'a> {
    /// For data on media of this class.
    pub(super) fn for_data(state: &'a State, media: MediaClass) -> Eligible<'a> {
        Eligible { state, is_log: false, media }
    }

    /// For the log of a space of this class: its media may be faster.
    pub(super) fn for_log(state: &'a State, media: MediaClass) -> Eligible<'a> {
        Eligible { state, is_log: true, media: media.or_faster() }
    }

    /// Whether new slabs are placed on a disk of this kind.
    pub(super) fn takes(&self, disk: &DiskRecord) -> bool {
        let usage = disk.usage == Usage::AutoSelect || self.is_log && disk.usage == Usage::Journal;
        usage && self.suits(disk)
    }

    /// Whether slabs may be on a disk of this medium. A disk for logs is allowed for logs with any medium.
    pub(super) fn suits(&self, disk: &DiskRecord) -> bool {
        self.media.takes(disk.media()) || self.is_log && disk.usage == Usage::Journal
    }

    /// Whether a slab on the disk is outside its class.
    pub(super) fn is_outside(&self, disk: DiskNumber) -> bool {
        !self.media.is_any() && self.state.disks.get(&disk).is_some_and(|of| !self.suits(of))
    }

    /// The rank of a disk for a log: lower is better.
    pub(super) fn rank(&self, disk: DiskNumber) -> u8 {
        if !self.is_log {
            return 0;
        }
        self.state.disks.get(&disk).map_or(LAST, rank)
    }

    /// The media.
    pub(super) fn media(&self) -> MediaClass {
        self.media
    }
}
