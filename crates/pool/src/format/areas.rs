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
