//! Disks, spaces and rows for tests, without an owner: builds the operations that an owner would request.

use crate::format::Areas;
use crate::{
    DiskId, DiskRecord, FaultDomains, InvalidOp, Membership, Op, Presence, Resiliency, RowNumber, SlabCopy,
    SlabPlace, SpaceId, SpaceOp, SpaceRecord, State, Usage,
};

/// A disk in service, with 8 slabs for new rows.
pub fn disk(n: u16) -> DiskRecord {
    DiskRecord {
        id: DiskId([n as u8; 16]),
        name: format!("disk{n}"),
        slabs: 8,
        usage: Usage::AutoSelect,
        presence: Presence::Present,
        domains: FaultDomains::default(),
        media: 0,
        label_sequence: 1,
        membership: Membership(1),
        areas: Areas::plan(16 << 20, 2 << 20).expect("room"),
    }
}

/// A two-way mirror of 32 MiB.
pub fn mirror(name: &str) -> SpaceRecord {
    SpaceRecord {
        name: name.into(),
        size: 32 << 20,
        resiliency: Resiliency::Mirror { copies: 2 },
        interleave: 64 << 10,
        columns: 1,
        ..SpaceRecord::default()
    }
}

/// A new space; its number is the next one.
pub fn create(s: &State, record: SpaceRecord) -> Op {
    let record = s.new_space(record).expect("few spaces");
    Op::Space { space: SpaceId(s.next_space), op: SpaceOp::Create { record: Box::new(record) } }
}

/// The operations that allocate a row, with its blocks written.
pub fn allocate(
    s: &State,
    space: SpaceId,
    row: RowNumber,
    slabs: impl IntoIterator<Item = SlabPlace>,
) -> [Op; 2] {
    let first = s.next_generation;
    let slabs = slabs.into_iter().collect();
    let ready = SpaceOp::Ready { row, birth: first, stale_copies: Vec::new() };
    let ops = [SpaceOp::Allocate { row, first, slabs }, ready];
    ops.map(|op| Op::Space { space, op })
}

/// A copy of a row.
pub fn copy(s: &State, space: SpaceId, row: RowNumber, index: usize) -> SlabCopy {
    *s.spaces[&space].rows[&row].copy(index).expect("the row has it")
}

/// The operation that marks regions of a copy stale.
pub fn mark_stale(s: &State, space: SpaceId, row: RowNumber, index: u8, regions: u64) -> Op {
    let generation = copy(s, space, row, index.into()).generation;
    Op::Space { space, op: SpaceOp::MarkStale { row, index, generation, regions } }
}

/// The operation that marks regions of a copy current.
pub fn mark_current(s: &State, space: SpaceId, row: RowNumber, index: u8, regions: u64) -> Op {
    let generation = copy(s, space, row, index.into()).generation;
    Op::Space { space, op: SpaceOp::MarkCurrent { row, index, generation, regions } }
}

impl State {
    /// Applies [`create`].
    pub fn make(&mut self, record: SpaceRecord) -> SpaceId {
        let space = SpaceId(self.next_space);
        self.apply(&create(self, record)).expect("a space");
        space
    }

    /// Applies [`allocate`].
    pub fn fill(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        slabs: impl IntoIterator<Item = SlabPlace>,
    ) -> Result<(), InvalidOp> {
        self.apply_all(&allocate(self, space, row, slabs))
    }

    /// Applies [`mark_stale`].
    pub fn apply_stale(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        index: u8,
        regions: u64,
    ) -> Result<(), InvalidOp> {
        self.apply(&mark_stale(self, space, row, index, regions))
    }

    /// Applies [`mark_current`].
    pub fn apply_current(
        &mut self,
        space: SpaceId,
        row: RowNumber,
        index: u8,
        regions: u64,
    ) -> Result<(), InvalidOp> {
        self.apply(&mark_current(self, space, row, index, regions))
    }

    /// The stale regions of the copies of a row.
    pub fn stale_regions_of(&self, space: SpaceId, row: RowNumber) -> Vec<u64> {
        let record = &self.spaces[&space];
        record.rows[&row].slabs.iter().map(|copy| record.stale_regions(copy)).collect()
    }
}
