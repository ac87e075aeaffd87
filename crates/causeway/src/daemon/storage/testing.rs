//! Spaces and rows in metadata for tests, without an owner.

use pool::{Op, RowNumber, SlabPlace, SpaceId, SpaceOp, SpaceRecord, State};

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
