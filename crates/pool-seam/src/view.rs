//! An owner's view of the metadata: `docs/0004-spaces.md`, section B; `docs/on-disk-format.md`, records
//! "space", "ownership", "log state" and "attachment".

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::code::Code;
use crate::{
    Areas, DiskNumber, LossRecord, MediaClass, Membership, NodeId, PoolId, Provisioning, Resiliency, Row,
    RowNumber, ScrubRecord, Shape, SlabCopy, SpaceEpoch, SpaceId, Tree, ViewVersion,
};

/// An owner's complete view of its space. Immutable; clones share the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceView {
    /// The version: a view with a lower one is ignored.
    pub version: ViewVersion,
    /// The pool.
    pub pool: PoolId,
    /// The space.
    pub space: SpaceId,
    /// Bytes of data in a slab.
    pub slab_bytes: u64,
    /// The metadata of the space, rows and owner included.
    pub record: Arc<SpaceRecord>,
    /// The disks that have slabs of the space, absent ones too.
    pub disks: Arc<BTreeMap<DiskNumber, DiskView>>,
}

/// A disk as an owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskView {
    /// The current membership; `None` if the disk is absent.
    pub membership: Option<Membership>,
    /// Whether it is to leave the pool for good: nothing waits for its return.
    pub is_leaving: bool,
    /// The positions of its areas.
    pub areas: Areas,
}

/// A space (virtual disk) in the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Its name, unique in the pool.
    pub name: String,
    /// Bytes that its user sees: a multiple of [`crate::UNIT`].
    pub size: u64,
    /// The current redundancy.
    pub resiliency: Resiliency,
    /// Bytes in one column before the data continues in the next: a power of two, from [`crate::UNIT`] to a
    /// slab.
    pub interleave: u32,
    /// Data columns of a row.
    pub columns: u8,
    /// The shape of rows not yet changed to the current one; the same if all are changed.
    pub former: RowShape,
    /// The half of the row numbers that rows of the current columns and interleave have: see [`RowNumber::half`].
    pub half: u8,
    /// During a conversion, the addresses below this one are in rows of the current half, all others in rows
    /// of the other half, which have the former shape.
    pub converted: Option<u64>,
    /// When slabs are allocated.
    pub provisioning: Provisioning,
    /// The disks on which its slabs may be placed.
    pub media: MediaClass,
    /// Its owner.
    pub ownership: Ownership,
    /// The slot of its marks, the same on every disk of the pool.
    pub slot: u16,
    /// The minimum content of its log.
    pub log: LogState,
    /// Disks whose copies are ignored until an owner has read the log and accounted for them; each with the
    /// membership that ended.
    pub unaccounted: BTreeMap<DiskNumber, Membership>,
    /// The scrub progress (reading all copies).
    pub scrub: ScrubRecord,
    /// Known lost units.
    pub loss: LossRecord,
    /// Where it is attached when the pool opens; the key is the place.
    pub attachments: BTreeMap<String, Attachment>,
    /// Its allocated rows, including the log's ([`RowNumber::LOG`]).
    pub rows: Tree<RowNumber, Row>,
}

/// The shape of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in SpaceRecord")]
pub struct RowShape {
    pub resiliency: Resiliency,
    pub interleave: u32,
    pub columns: u8,
}

/// The owner of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The machine.
    pub node: NodeId,
    /// Its epoch.
    pub epoch: SpaceEpoch,
    /// The number of the last request of that epoch that was applied; 0: none.
    pub request: u64,
}

/// What a log must contain (reading a log, step 5; rule 20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// The epoch of an owner.
    pub epoch: SpaceEpoch,
    /// The sequence of a record of that owner, or before its first record that of the preceding one. For a
    /// closed log, the sequence of the last record.
    pub sequence: u64,
    /// Whether the owner has closed the log, so that there is nothing to replay.
    pub is_closed: bool,
}

/// Where a space is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The protocol.
    pub kind: AttachmentKind,
    /// Whether the attachment is read-only.
    pub is_read_only: bool,
}

/// A protocol by which users access a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentKind {
    /// A network block device.
    Nbd,
    /// A block device of this machine.
    Ublk,
    /// A file of an SMB share.
    Share,
}

impl SpaceView {
    /// The current membership of a disk. Returns `None` if it is absent or has no slabs of the space.
    pub fn membership(&self, disk: DiskNumber) -> Option<Membership> {
        self.disks.get(&disk)?.membership
    }

    /// The disks in service.
    pub fn members(&self) -> Vec<(DiskNumber, Membership)> {
        self.disks.iter().filter_map(|(disk, at)| Some((*disk, at.membership?))).collect()
    }

    /// The row of the log. Returns `None` before the coordinator has allocated it.
    pub fn log_row(&self) -> Option<&Row> {
        self.record.rows.get(&RowNumber::LOG)
    }
}

impl RowShape {
    /// The number of slabs of a row.
    pub fn slabs(&self) -> usize {
        usize::from(self.columns) * self.resiliency.copies() + self.resiliency.parity_columns()
    }

    /// The number of slabs that form a redundancy set: the copies of a column, or all slabs of a row with
    /// parity.
    pub fn slabs_in_set(&self) -> usize {
        if self.resiliency.is_parity() { self.slabs() } else { self.resiliency.copies() }
    }

    /// How many replicas the log of a space has if the pool has enough disks.
    pub fn log_replicas(&self) -> usize {
        (self.resiliency.failures() + 1).max(2)
    }

    /// The number of sets of a row.
    pub fn sets(&self) -> u8 {
        if self.resiliency.is_parity() { 1 } else { self.columns }
    }

    /// The data columns of a set.
    pub fn columns_in_set(&self) -> usize {
        if self.resiliency.is_parity() { self.columns.into() } else { 1 }
    }

    /// The code of the parity columns. Returns `None` if there are none.
    pub fn code(&self) -> Option<Code> {
        self.resiliency.code(self.columns.into())
    }

    /// Whether rows of this shape become rows of the other one by getting more or fewer copies. Otherwise their
    /// data must be copied: a conversion.
    pub fn differs_in_copies_only(&self, other: &RowShape) -> bool {
        let is_any_parity = self.resiliency.is_parity() || other.resiliency.is_parity();
        let has_same_columns = (self.columns, self.interleave) == (other.columns, other.interleave);
        self == other || has_same_columns && !is_any_parity
    }

    /// Bytes of user data in a row.
    pub fn row_bytes(&self, slab_bytes: u64) -> u64 {
        u64::from(self.columns) * slab_bytes
    }
}

impl SpaceRecord {
    /// The current shape, which new rows have.
    pub fn shape(&self) -> RowShape {
        let SpaceRecord { resiliency, interleave, columns, .. } = *self;
        RowShape { resiliency, interleave, columns }
    }

    /// Sets the current shape.
    pub fn set_shape(&mut self, to: RowShape) {
        (self.resiliency, self.interleave, self.columns) = (to.resiliency, to.interleave, to.columns);
    }

    /// The shape of a row.
    pub fn shape_of(&self, row: &Row) -> RowShape {
        match row.shape {
            Shape::Current => self.shape(),
            Shape::Former => self.former,
        }
    }

    /// The shape that a row with this number has, or would have if it were allocated now.
    pub fn shape_at(&self, number: RowNumber) -> RowShape {
        match self.rows.get(&number) {
            Some(row) => self.shape_of(row),
            None if number.half() == self.half => self.shape(),
            None => self.former,
        }
    }

    /// The resiliency of a row.
    pub fn resiliency_of(&self, row: &Row) -> Resiliency {
        self.shape_of(row).resiliency
    }

    /// The number of slabs of a new row.
    pub fn slabs_in_row(&self) -> usize {
        self.shape().slabs()
    }

    /// The code of the parity columns of a row. Returns `None` if it has none.
    pub fn code_of(&self, row: &Row) -> Option<Code> {
        self.shape_of(row).code()
    }

    /// How many disks of any row may fail, according to the rows' resiliency.
    pub fn promised(&self) -> usize {
        self.resiliency.failures().min(self.former.resiliency.failures())
    }

    /// How many replicas its log has if the pool has enough disks.
    pub fn log_replicas(&self) -> usize {
        self.shape().log_replicas()
    }

    /// Whether some rows still have the former shape.
    pub fn is_changing(&self) -> bool {
        self.former != self.shape()
    }

    /// Whether data is being copied to rows of the current shape.
    pub fn is_converting(&self) -> bool {
        self.converted.is_some()
    }

    /// The end of the addresses that are in rows of the current half.
    pub fn converted_end(&self) -> u64 {
        self.converted.unwrap_or(u64::MAX)
    }

    /// Bytes of user data in a new row.
    pub fn row_bytes(&self, slab_bytes: u64) -> u64 {
        self.shape().row_bytes(slab_bytes)
    }

    /// The number of rows of the current shape in the space's address range.
    pub fn row_count(&self, slab_bytes: u64) -> u64 {
        self.size.div_ceil(self.row_bytes(slab_bytes))
    }

    /// Whether a row with this number may exist: its half is in use, and it begins inside of the space.
    pub fn has_place_for(&self, number: RowNumber, slab_bytes: u64) -> bool {
        let is_in_use = number.half() == self.half || number.half() < 2 && self.is_converting();
        let start = u64::from(number.index()) * self.shape_at(number).row_bytes(slab_bytes);
        is_in_use && start < self.size
    }

    /// Bytes of user data in all allocated rows. Addresses that are being converted may count twice.
    pub fn allocated_bytes(&self, slab_bytes: u64) -> u64 {
        self.data_rows().map(|(_, row)| self.shape_of(row).row_bytes(slab_bytes)).sum()
    }

    /// Its rows except the log, in order.
    pub fn data_rows(&self) -> impl Iterator<Item = (RowNumber, &Row)> {
        self.rows.iter().filter(|(number, _)| **number != RowNumber::LOG).map(|(number, row)| (*number, row))
    }

    /// The data rows that hold data; a new row does not (rule 18).
    pub fn ready_rows(&self) -> impl Iterator<Item = (RowNumber, &Row)> {
        self.data_rows().filter(|(_, row)| !row.is_new)
    }

    /// The stale regions of a copy: all, while its disk is not accounted for.
    pub fn stale_regions(&self, copy: &SlabCopy) -> u64 {
        if self.unaccounted.contains_key(&copy.place.disk) { u64::MAX } else { copy.stale_regions }
    }
}
