//! The records of spaces, and the operations on them: the numbers and the order of
//! `docs/on-disk-format.md`.

use std::sync::Arc;

use pool_seam::{
    Attachment, AttachmentKind, LogState, Membership, NodeId, Ownership, Row, RowShape, Shape, SlabCopy,
    SpaceEpoch, SpaceRecord,
};

use super::codec::{Malformed, Reader, Wire, choice, record, wrapped};
use crate::state::{NewSlab, SpaceOp};

wrapped!(Membership, NodeId, SpaceEpoch);
record!(Ownership { node, epoch, request });
record!(LogState { epoch, sequence, is_closed });
record!(Attachment { kind, is_read_only });
record!(RowShape { resiliency, interleave, columns });
record!(SpaceRecord {
    name,
    size,
    resiliency,
    interleave,
    columns,
    former,
    half,
    converted,
    provisioning,
    media,
    ownership,
    slot,
    log,
    unaccounted,
    scrub,
    loss,
    attachments,
    rows,
});
choice!(AttachmentKind { 0 => Nbd, 1 => Ublk, 2 => Share });
choice!(Shape { 0 => Current, 1 => Former });
choice!(NewSlab { 0 => Kept { index }, 1 => Free { place } });
choice!(SpaceOp {
    1 => Create { record },
    2 => Destroy,
    3 => SetSize { size },
    4 => Rename { name },
    5 => SetMedia { media },
    6 => Allocate { row, first, slabs },
    7 => Ready { row, birth, stale_copies },
    8 => Free { row, birth },
    9 => MarkStale { row, index, generation, regions },
    10 => MarkCurrent { row, index, generation, regions },
    11 => MarkDiskStale { disk, membership },
    12 => Accounted { disk, membership },
    13 => Unaccounted { disk, membership },
    14 => BeginMove { row, index, to },
    15 => EndMove { row },
    16 => CancelMove { row },
    17 => Replace { row, index, to },
    18 => Own { ownership },
    19 => Done { epoch, number },
    20 => Log { state },
    21 => Scrub { record },
    22 => Lost { record },
    23 => SetShape { shape },
    24 => Reshape { row, slabs },
    25 => Converted { to },
});

impl Wire for Row {
    fn put(&self, out: &mut Vec<u8>) {
        self.birth.put(out);
        self.shape.put(out);
        self.is_new.put(out);
        out.push(self.slabs.len() as u8);
        self.slabs.iter().for_each(|copy| copy.put(out));
        self.moving().put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Row, Malformed> {
        let (birth, shape, is_new) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
        let count = usize::from(u8::get(r)?);
        let mut row = Row::new(birth, r.list::<SlabCopy>(count)?);
        (row.shape, row.is_new) = (shape, is_new);
        row.set_moving(Wire::get(r)?);
        Ok(row)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Box<T>, Malformed> {
        T::get(r).map(Box::new)
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Arc<T>, Malformed> {
        T::get(r).map(Arc::new)
    }
}
