//! The operations on a space. Numbers and fields on the disk: `docs/on-disk-format.md`.

use pool_seam::{
    LogState, LossRecord, MediaClass, Membership, Ownership, RowShape, ScrubRecord, SlabPlace, SpaceEpoch,
    SpaceRecord,
};

use crate::{DiskNumber, RowNumber};

/// A change of one space. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum SpaceOp {
    /// Creates a space without rows; its number is the next one.
    Create { record: Box<SpaceRecord> },
    /// Removes the space, and frees its slabs.
    Destroy,
    /// Changes the size, in bytes; there must be no rows beyond it.
    SetSize { size: u64 },
    /// Renames the space.
    Rename { name: String },
    /// Changes the media for its slabs; existing slabs stay until they are moved.
    SetMedia { media: MediaClass },
    /// Allocates slabs for a new row, in its order, with generations from `first` on.
    Allocate { row: RowNumber, first: u32, slabs: Vec<SlabPlace> },
    /// The row's first blocks are written, except those of the copies in `stale_copies`, which are wholly stale.
    Ready { row: RowNumber, birth: u32, stale_copies: Vec<u8> },
    /// Frees the row's slabs; the row reads as zeros.
    Free { row: RowNumber, birth: u32 },
    /// These regions of a copy become stale.
    MarkStale { row: RowNumber, index: u8, generation: u32, regions: u64 },
    /// These regions of a copy are current again, durably.
    MarkCurrent { row: RowNumber, index: u8, generation: u32, regions: u64 },
    /// The disk was rolled back: marks all regions of its copies stale that other disks have.
    MarkDiskStale { disk: DiskNumber, membership: Membership },
    /// The disk is accounted for: its copies are usable again.
    Accounted { disk: DiskNumber, membership: Membership },
    /// The disk is unaccounted: its copies are not usable until an owner has stated their stale regions.
    Unaccounted { disk: DiskNumber, membership: Membership },
    /// Begins to move a slab to a free one, which is wholly stale.
    BeginMove { row: RowNumber, index: u8, to: SlabPlace },
    /// The new slab has all regions of the old one, and replaces it.
    EndMove { row: RowNumber },
    /// Cancels the move.
    CancelMove { row: RowNumber },
    /// Replaces a slab of the row by another one, which is wholly stale.
    Replace { row: RowNumber, index: u8, to: SlabPlace },
    /// Changes the shape of new rows; existing rows with another one are of the former shape. If only the number of
    /// copies differs, they are reshaped; otherwise this begins a conversion.
    SetShape { shape: RowShape },
    /// Changes a row to the space's number of copies, with these slabs.
    Reshape { row: RowNumber, slabs: Vec<NewSlab> },
    /// The data of all addresses below this one is in rows of the current half.
    Converted { to: u64 },
    /// Changes the owner.
    Own { ownership: Ownership },
    /// The owner's request with this number was carried out, or refused.
    Done { epoch: SpaceEpoch, number: u64 },
    /// The minimum state of the log: a log without it was rolled back.
    Log { state: LogState },
    /// The progress of a scrub.
    Scrub { record: ScrubRecord },
    /// The known lost units.
    Lost { record: LossRecord },
}

/// A slab of a row that is reshaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum NewSlab {
    /// The row keeps the slab that has this index now.
    Kept { index: u8 },
    /// A free slab, which is wholly stale.
    Free { place: SlabPlace },
}
