//! The owner's view of its space, and the location of groups: `docs/0004-spaces.md`, sections B and E.

mod current;

use std::sync::Arc;

use pool_seam::code::Code;
use pool_seam::layout::{AddressMap, ColumnPosition};
use pool_seam::{DiskNumber, GROUP, Membership, Regions, RowNumber, SpaceView, UNIT};
use smallvec::SmallVec;

pub use current::{Current, Snapshot};

use crate::blocks::BlockId;

/// A group of 512 units of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct GroupKey {
    pub row: RowNumber,
    /// The set: the column of a simple or mirrored row, 0 of a coded one.
    pub set: u8,
    pub group: u32,
}

/// The location of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The generation with which the row was allocated.
    pub birth: u32,
    /// The row is empty, regardless of the content of its slabs (rule 18).
    pub is_new: bool,
    /// Data columns of the set: 1 of a simple or mirrored row.
    pub data: usize,
    /// The erasure code of the set; `None`: every member has the only content.
    pub code: Option<Code>,
    /// The slabs of the set in the order of the row, then the target of a slab that is being moved.
    pub members: SmallVec<[Member; 3]>,
}

/// A slab of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The index of the copy in the row, as in operations of the metadata.
    pub index: u8,
    /// The index of the slab in the row; for the target of a move, the index that it gets.
    pub slab: u8,
    /// The content that the slab has.
    pub content: u8,
    /// The disk.
    pub disk: DiskNumber,
    /// The disk's current membership; `None` if the disk is absent.
    pub membership: Option<Membership>,
    /// The allocation of the slab.
    pub generation: u32,
    /// Whether the slab is complete for this group according to the metadata, even if its disk is absent. On an
    /// unaccounted disk regions may be stale nevertheless: the owner has not stated them yet.
    pub counts: bool,
    /// The byte offset on the disk of the group's checksum block.
    pub block: u64,
    /// The byte offset on the disk of the group's first unit.
    pub data: u64,
}

impl Route {
    /// Slabs of the set, without the target of a move, which is the last member and has the index of another.
    pub fn slabs(&self) -> usize {
        let (last, others) = self.members.split_last().expect("a set has slabs");
        others.len() + usize::from(others.iter().all(|other| other.slab != last.slab))
    }

    /// Contents of the set.
    pub fn contents(&self) -> usize {
        self.code.map_or(1, Code::columns)
    }

    /// Whether all contents can be recovered from these contents (bits).
    pub fn decodes(&self, have: u32) -> bool {
        self.code.map_or(have != 0, |code| code.decodes(have))
    }

    /// The index of a column's content in the table of its set.
    pub fn content(&self, column: u8) -> usize {
        if self.code.is_some() { column.into() } else { 0 }
    }

    /// The number of complete members.
    pub fn counting(&self) -> usize {
        self.members.iter().filter(|member| member.counts).count()
    }
}

/// The identity of a group's checksum block on a slab of this allocation.
pub fn block_id(view: &SpaceView, row: RowNumber, group: u32, allocation: u32) -> BlockId {
    BlockId { pool: view.pool, space: view.space, row, group, allocation }
}

/// The view of an owner.
pub type View = Current<SpaceView>;

impl View {
    /// Switches to a view if it is newer; returns whether it is.
    pub fn update(&self, view: Arc<SpaceView>) -> bool {
        self.replace(view, |present, new| present.version < new.version)
    }
}

/// The layout of the space's addresses.
pub fn layout(view: &SpaceView) -> AddressMap<'_> {
    AddressMap::new(&view.record, view.slab_bytes)
}

/// The group of a byte of the space, and its unit in the group.
pub fn group_of(view: &SpaceView, at: ColumnPosition) -> (GroupKey, usize) {
    let set = if view.record.shape_at(at.row).resiliency.is_parity() { 0 } else { at.column };
    let key = GroupKey { row: at.row, set, group: (at.offset / GROUP) as u32 };
    (key, (at.offset % GROUP / UNIT) as usize)
}

/// The location of a group; `None` if its row has no slabs, or one of their disks is not in the view.
pub fn route(view: &SpaceView, key: GroupKey) -> Option<Route> {
    let row = view.record.rows.get(&key.row)?;
    let shape = view.record.shape_of(row);
    let (code, slabs, data) = (shape.code(), shape.slabs_in_set(), shape.columns_in_set());
    let set = usize::from(key.set) * slabs..(usize::from(key.set) + 1) * slabs;
    let region = Regions::new(view.slab_bytes).of_group(key.group);
    let moving = row.moving().filter(|moving| set.contains(&moving.index.into()));
    let mut members = SmallVec::new();
    for index in set.chain(moving.map(|_| row.slabs.len())) {
        let (slab, copy) = (row.slab_of(index), row.copy(index)?);
        let disk = view.disks.get(&copy.place.disk)?;
        members.push(Member {
            index: index as u8,
            slab: slab as u8,
            content: if code.is_some() { slab as u8 } else { 0 },
            disk: copy.place.disk,
            membership: disk.membership,
            generation: copy.generation,
            counts: copy.stale_regions & region == 0,
            block: disk.areas.checksums(copy.place.slab).offset + u64::from(key.group) * UNIT,
            data: disk.areas.data(copy.place.slab).offset + u64::from(key.group) * GROUP,
        });
    }
    Some(Route { birth: row.birth, is_new: row.is_new, data, code, members })
}

#[cfg(test)]
pub(crate) mod tests;
