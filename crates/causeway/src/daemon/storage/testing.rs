//! Disks, spaces and rows in metadata for tests, without an owner.

use pool::format::Areas;
use pool::{
    DiskId, DiskRecord, FaultDomains, Membership, Op, Presence, RowNumber, SlabPlace, SpaceId, SpaceOp,
    SpaceRecord, State, Usage,
};

/// A disk of 8 slabs for new rows, in service.
pub(super) fn disk(n: u16) -> DiskRecord {
    DiskRecord {
        id: DiskId([n as u8; 16]),
        name: format!("serial:{n}"),
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

/// A new space; its number.
pub(super) fn make(s: &mut State, record: SpaceRecord) -> SpaceId {
    let space = SpaceId(s.next_space);
    let record = SpaceRecord { former: record.resiliency, slot: space.0 as u16, ..record };
    s.apply(&Op::Space { space, op: SpaceOp::Create { record: Box::new(record) } }).expect("a space");
    space
}

/// Slabs for a row, whose blocks are written.
pub(super) fn fill(s: &mut State, space: SpaceId, row: u32, slabs: [SlabPlace; 2]) {
    let (row, first) = (RowNumber(row), s.next_generation);
    let slabs = slabs.map(|place| (place, false)).to_vec();
    for op in [SpaceOp::Allocate { row, first, slabs }, SpaceOp::Ready { row, birth: first }] {
        s.apply(&Op::Space { space, op }).expect("free slabs");
    }
}
