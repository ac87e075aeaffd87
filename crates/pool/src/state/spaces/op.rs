//! The operations on a space. Numbers and fields on the disk: `docs/on-disk-format.md`.

use pool_seam::{
    LogState, LossRecord, MediaClass, Membership, Ownership, Resiliency, ScrubRecord, SlabPlace, SpaceEpoch,
    SpaceRecord,
};

use crate::{DiskNumber, RowNumber};

/// A change of one space. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum SpaceOp {
    /// A new space without rows; its number is the next one.
    Create { record: Box<SpaceRecord> },
    /// The space is gone, and its slabs are free.
    Destroy,
    /// Another size, in bytes; no rows are beyond it.
    SetSize { size: u64 },
    /// Another name.
    Rename { name: String },
    /// Which disks its slabs may lie on from now on; those that there are stay where they are until they are moved.
    SetMedia { media: MediaClass },
    /// Slabs for a row, in its order, with generations from `first` on, and whether each has missed everything, because
    /// its disk is absent. The row is new.
    Allocate { row: RowNumber, first: u32, slabs: Vec<(SlabPlace, bool)> },
    /// The row's blocks are written.
    Ready { row: RowNumber, birth: u32 },
    /// The row's slabs are free; it reads as zeros.
    Free { row: RowNumber, birth: u32 },
    /// A copy does not have the newest writes of these regions.
    Missed { row: RowNumber, index: u8, generation: u32, regions: u64 },
    /// A copy has these regions again, durably.
    NotMissed { row: RowNumber, index: u8, generation: u32, regions: u64 },
    /// The disk was set back: its copies have missed all that others have.
    Stale { disk: DiskNumber, of: Membership },
    /// The disk's copies count again.
    Accounted { disk: DiskNumber, of: Membership },
    /// The disk's copies count for nothing until an owner has accounted for them.
    Unaccounted { disk: DiskNumber, of: Membership },
    /// A slab begins to move to a free one, which has missed everything.
    BeginMove { row: RowNumber, index: u8, to: SlabPlace },
    /// The new slab has all that the old one has, and takes its place.
    EndMove { row: RowNumber },
    /// The slab stays where it is.
    CancelMove { row: RowNumber },
    /// Another slab is this one of the row from now on; it has missed everything.
    Replace { row: RowNumber, index: u8, to: SlabPlace },
    /// Another resiliency for new rows; those that have another one are of the former shape.
    SetResiliency { resiliency: Resiliency },
    /// A row gets the space's resiliency, with these slabs.
    Reshape { row: RowNumber, slabs: Vec<NewSlab> },
    /// Another owner.
    Own { ownership: Ownership },
    /// The owner's request of this number is carried out, or refused.
    Done { epoch: SpaceEpoch, number: u64 },
    /// What the log has at least.
    Log { state: LogState },
    /// How far the reading of all copies is.
    Scrub { record: ScrubRecord },
    /// Known lost units.
    Lost { record: LossRecord },
}

/// A slab of a row that is reshaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are what their types say
pub enum NewSlab {
    /// The one that has this index now.
    Kept { index: u8 },
    /// A free one, which has missed everything.
    Free { place: SlabPlace },
}
