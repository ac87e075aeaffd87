//! The records of spaces that owners drive, and the operations on them: the numbers and the order of
//! `docs/0004-format.md`.

use std::sync::Arc;

use pool_seam::{
    Attachment, AttachmentKind, LogState, Membership, NodeId, Ownership, Row, Shape, SlabCopy, SpaceEpoch,
    SpaceRecord,
};

use super::codec::{Malformed, Reader, Wire, choice, record, wrapped};
use crate::state::SpaceOp;

wrapped!(Membership, NodeId, SpaceEpoch);
record!(Ownership { node, epoch, request });
record!(LogState { epoch, sequence, is_closed });
record!(Attachment { kind, is_read_only });
record!(SpaceRecord {
    name,
    size,
    resiliency,
    former,
    interleave,
    columns,
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
choice!(Shape { 0 => Present, 1 => Former });
choice!(SpaceOp {
    13 => Create { record },
    15 => SetSize { size },
    16 => Allocate { row, first, slabs },
    17 => Free { row, birth },
    18 => Missed { row, index, generation, regions },
    19 => NotMissed { row, index, generation, regions },
    20 => Stale { disk, of },
    21 => Accounted { disk, of },
    22 => Unaccounted { disk, of },
    23 => BeginMove { row, index, to },
    24 => EndMove { row },
    25 => CancelMove { row },
    26 => Replace { row, index, to },
    28 => Own { ownership },
    29 => Done { epoch, number },
    30 => Log { state },
    31 => Scrub { record },
    32 => Lost { record },
    36 => Destroy,
    37 => Ready { row, birth },
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
