//! The owner's view of its space, and where the groups of the space are: `docs/0004-spaces.md`, sections B and E.

mod current;

use std::sync::Arc;

use pool_seam::code::Code;
use pool_seam::layout::{Layout, Spot};
use pool_seam::{DiskNumber, GROUP, Membership, Regions, RowNumber, SpaceView, UNIT};
use smallvec::SmallVec;

pub use current::{Current, Seen};

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

/// Where a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The generation with which the row was allocated.
    pub birth: u32,
    /// The row holds nothing yet, whatever its slabs have (rule 18).
    pub is_new: bool,
    /// Data columns of the set: 1 of a simple or mirrored row.
    pub data: usize,
    /// How the contents of the set complete each other; `None`: each member has the only one.
    pub code: Option<Code>,
    /// The slabs of the set in the order of the row, then the one that a slab of the set moves to.
    pub members: SmallVec<[Member; 3]>,
}

/// A slab of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The index of the copy in the row, as operations of the metadata name it.
    pub index: u8,
    /// The slab of the row that it is, or will be.
    pub slab: u8,
    /// Which of the set's contents it has.
    pub content: u8,
    /// The disk.
    pub disk: DiskNumber,
    /// The disk's present membership; `None`: it is absent.
    pub membership: Option<Membership>,
    /// The allocation of the slab.
    pub generation: u32,
    /// Whether it has the group's newest writes, as far as the metadata says, present or absent. Of a disk that is not
    /// accounted for the owner has yet to say what it lacks.
    pub counts: bool,
    /// The byte of the disk at which the group's checksum block begins.
    pub block: u64,
    /// The byte of the disk at which the group's first unit begins.
    pub data: u64,
}

impl Route {
    /// Slabs of the set, without one that is moving: that is the last member, and has the index of another.
    pub fn slabs(&self) -> usize {
        let (last, others) = self.members.split_last().expect("a set has slabs");
        others.len() + usize::from(others.iter().all(|other| other.slab != last.slab))
    }

    /// Contents of the set.
    pub fn contents(&self) -> usize {
        self.code.map_or(1, Code::columns)
    }

    /// Whether all contents can be made from these, by bit.
    pub fn decodes(&self, have: u32) -> bool {
        self.code.map_or(have != 0, |code| code.decodes(have))
    }

    /// The number of a column's content in the table of its set.
    pub fn content(&self, column: u8) -> usize {
        if self.code.is_some() { column.into() } else { 0 }
    }

    /// Members that count.
    pub fn counting(&self) -> usize {
        self.members.iter().filter(|member| member.counts).count()
    }
}

/// What the checksum block of a group says of its place, on a slab of this allocation.
pub fn block_id(view: &SpaceView, row: RowNumber, group: u32, allocation: u32) -> BlockId {
    BlockId { pool: view.pool, space: view.space, row, group, allocation }
}

/// The view of an owner.
pub type View = Current<SpaceView>;

impl View {
    /// Takes a new view, unless it is not newer; returns whether.
    pub fn update(&self, view: Arc<SpaceView>) -> bool {
        self.replace(view, |present, new| present.version < new.version)
    }
}

/// Where the addresses of the space are.
pub fn layout(view: &SpaceView) -> Layout {
    Layout::new(view.record.columns, view.record.interleave, view.slab_bytes)
}

/// The group of a byte of the space, and its unit in the group.
pub fn group_of(view: &SpaceView, at: Spot) -> (GroupKey, usize) {
    let row = view.record.rows.get(&at.row);
    let resiliency = row.map_or(view.record.resiliency, |row| view.record.resiliency_of(row));
    let set = if resiliency.is_parity() { 0 } else { at.column };
    let key = GroupKey { row: at.row, set, group: (at.offset / GROUP) as u32 };
    (key, (at.offset % GROUP / UNIT) as usize)
}

/// Where a group is; `None` if its row has no slabs, or a disk of them is not in the view.
pub fn route(view: &SpaceView, key: GroupKey) -> Option<Route> {
    let row = view.record.rows.get(&key.row)?;
    let resiliency = view.record.resiliency_of(row);
    let code = resiliency.code(view.record.columns.into());
    let (set, data) = if resiliency.is_parity() {
        (0..row.slabs.len(), usize::from(view.record.columns))
    } else {
        let copies = resiliency.copies();
        (usize::from(key.set) * copies..(usize::from(key.set) + 1) * copies, 1)
    };
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
            counts: copy.missed & region == 0,
            block: disk.areas.checksums(copy.place.slab).offset + u64::from(key.group) * UNIT,
            data: disk.areas.data(copy.place.slab).offset + u64::from(key.group) * GROUP,
        });
    }
    Some(Route { birth: row.birth, is_new: row.is_new, data, code, members })
}

#[cfg(test)]
pub(crate) mod tests;
