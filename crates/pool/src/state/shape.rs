//! The valid shapes of a space.

use crate::{InvalidOp, Resiliency, RowNumber, SpaceRecord, State, UNIT};

/// The most slabs that a row has.
const ROW_SLABS_MAX: usize = 64;

impl State {
    /// Checks the shape of a space. Errors: [`InvalidOp::BadShape`], which states the valid ones.
    pub fn check_shape(&self, s: &SpaceRecord) -> Result<(), InvalidOp> {
        let interleave = u64::from(s.interleave);
        let bad = |why| Err(InvalidOp::BadShape(why));
        if s.columns == 0 || s.slabs_in_row() > ROW_SLABS_MAX {
            return bad("a row must have 1 to 64 slabs");
        }
        match s.resiliency {
            Resiliency::Mirror { copies } if !(2..=3).contains(&copies) => {
                return bad("a mirror must have 2 or 3 copies");
            }
            Resiliency::Parity { parity } if !(1..=2).contains(&parity) => {
                return bad("parity must have 1 or 2 parity columns");
            }
            Resiliency::Parity { .. } if !(2..=16).contains(&s.columns) => {
                return bad("parity must have 2 to 16 data columns");
            }
            Resiliency::LocalParity { groups, global } => {
                if (groups, global) != (2, 1) {
                    return bad("local reconstruction must have 2 groups and 1 global parity column");
                }
                if !(4..=14).contains(&s.columns) || !s.columns.is_multiple_of(2) {
                    return bad("local reconstruction must have an even number of data columns, 4 to 14");
                }
            }
            _ => {}
        }
        if !interleave.is_power_of_two() || interleave < UNIT || interleave > self.slab_bytes {
            return bad("the interleave must be a power of two from 4 KiB to the slab size");
        }
        if !s.size.is_multiple_of(UNIT) {
            return bad("the size must be a multiple of 4 KiB");
        }
        if s.row_count(self.slab_bytes) >= u64::from(RowNumber::IN_HALF) {
            return bad(
                "the virtual disk is too large for the pool's slab size: choose a smaller size, or make a pool with larger slabs",
            );
        }
        Ok(())
    }
}
