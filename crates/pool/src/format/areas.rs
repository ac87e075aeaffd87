//! The areas of a disk as bytes.

pub use pool_seam::{Areas, Extent};

use super::codec::record;

record!(Extent { offset, length });
record!(Areas {
    size,
    label_a,
    label_b,
    claim,
    fences,
    marks,
    checkpoint_0,
    checkpoint_1,
    journal,
    slabs,
    slab_bytes,
});

/// The activity blocks of the data path in this crate: 16 of two places, at the beginning of the marks. A pool has spaces
/// of one data path only, so nothing else uses them.
pub(crate) fn activity(areas: &Areas) -> Extent {
    Extent::new(areas.marks.offset, 16 * 2 * crate::UNIT)
}
