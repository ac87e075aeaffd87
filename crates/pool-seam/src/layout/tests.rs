use proptest::prelude::*;

use super::*;
use crate::UNIT;

fn layout(slab: u32, columns: u64, interleave: u32) -> Layout {
    Layout { slab_bytes: UNIT << slab, columns, interleave: UNIT << interleave.min(slab), half: 0 }
}

/// Steps through the columns unit by unit, without address arithmetic.
fn naive(l: &Layout, units: u64) -> Vec<ColumnPosition> {
    let mut out = Vec::new();
    for row in 0.. {
        for turn in 0..l.slab_bytes / l.interleave {
            for column in 0..l.columns {
                for unit in 0..l.interleave / UNIT {
                    if out.len() as u64 == units {
                        return out;
                    }
                    let offset = turn * l.interleave + unit * UNIT;
                    out.push(ColumnPosition { row: RowNumber(row), column: column as u8, offset });
                }
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn the_naive_walk_agrees(
        slab in 0_u32..6, columns in 1_u64..6, interleave in 0_u32..6,
        first in 0_u64..300, count in 1_u64..200, boundary in 0_u32..7,
    ) {
        let l = layout(slab, columns, interleave);
        let positions = naive(&l, first + count);
        for (unit, position) in positions.iter().enumerate() {
            let address = unit as u64 * UNIT;
            prop_assert_eq!(l.locate(address), *position);
            prop_assert_eq!(l.address(*position), address);
            let inside = ColumnPosition { offset: position.offset + 7, ..*position };
            prop_assert_eq!(l.locate(address + 7), inside);
        }
        let boundary = UNIT << boundary;
        let runs = l.runs(first * UNIT, count * UNIT, boundary);
        let one = runs.len() == 1 && runs[0].pieces.len() == 1;
        match l.one_piece(first * UNIT, count * UNIT, boundary) {
            Some(at) => prop_assert!(one && at == runs[0].at),
            // Contiguous pieces of two turns of a single column count as two pieces here.
            None => prop_assert!(!one || columns > 1),
        }
        let mut seen = vec![None; count as usize];
        for run in l.runs(first * UNIT, count * UNIT, boundary) {
            prop_assert_eq!(run.length, run.pieces.iter().map(|p| p.length).sum::<u64>());
            prop_assert_eq!(run.at.offset / boundary, (run.at.offset + run.length - 1) / boundary);
            let mut offset = run.at.offset;
            for piece in &run.pieces {
                for unit in 0..piece.length / UNIT {
                    let position = ColumnPosition { offset, ..run.at };
                    prop_assert!(seen[(piece.start / UNIT + unit) as usize].replace(position).is_none());
                    offset += UNIT;
                }
            }
        }
        for (i, position) in seen.iter().enumerate() {
            prop_assert_eq!(*position, Some(positions[first as usize + i]));
        }
    }
}

proptest! {
    /// During a conversion, each address is in one row; runs are cut where the rows of another shape begin.
    #[test]
    fn two_shapes_cover_all_addresses_once(
        columns in (1_u8..4, 1_u8..4), interleaves in (0_u32..4, 0_u32..4), half in 0_u8..2,
        converted in prop::option::of(0_u64..200), first in 0_u64..200, count in 1_u64..100,
    ) {
        let shape = |columns, interleave| RowShape { interleave: 4096_u32 << interleave, columns, ..RowShape::default() };
        let mut record = SpaceRecord { half, converted: converted.map(|unit| unit * UNIT), ..SpaceRecord::default() };
        record.set_shape(shape(columns.0, interleaves.0));
        record.former = shape(columns.1, interleaves.1);
        let map = AddressMap::new(&record, 8 * UNIT);
        for unit in 0..300 {
            let at = map.locate(unit * UNIT);
            let is_former = converted.is_some_and(|converted| unit >= converted);
            prop_assert_eq!(at.row.half(), if is_former { half ^ 1 } else { half });
            prop_assert_eq!(map.address(at), unit * UNIT);
            prop_assert!(map.is_in_use(at));
            let other = map.of_half(at.row.half() ^ 1).locate(unit * UNIT);
            prop_assert!(converted.is_none() || !map.is_in_use(other));
        }
        let runs = map.runs(first * UNIT, count * UNIT, 4 * UNIT);
        let mut seen = vec![0; count as usize];
        for run in &runs {
            let mut offset = run.at.offset;
            for piece in &run.pieces {
                for unit in 0..piece.length / UNIT {
                    let address = (first + piece.start / UNIT + unit) * UNIT;
                    prop_assert_eq!(map.locate(address), ColumnPosition { offset, ..run.at });
                    seen[(piece.start / UNIT + unit) as usize] += 1;
                    offset += UNIT;
                }
            }
        }
        prop_assert!(seen.iter().all(|times| *times == 1));
        if let Some(at) = map.one_piece(first * UNIT, count * UNIT, 4 * UNIT) {
            prop_assert!(runs.len() == 1 && runs[0].at == at);
        }
    }
}

#[test]
fn one_column_is_one_piece() {
    let l = layout(10, 1, 4);
    let runs = l.runs(UNIT, 900 * UNIT, 512 * UNIT);
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|r| r.pieces.len() == 1));
}
