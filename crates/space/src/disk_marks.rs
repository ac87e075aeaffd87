//! The marks of a space's disks, by which one that was set back is seen: `docs/0004-spaces.md`, rule 9.
//!
//! A checkpoint puts a mark on every disk after all that it says is durable there, and the log keeps the newest mark of
//! each disk. A disk whose mark is older than that was set back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::{Class, IoBuf, Sg};
use disk::{DiskError, sized};
use futures_util::future::join_all;
use parking_lot::Mutex;
use pool_seam::{Absence, DiskNumber, OwnerOp, SpaceView};

use crate::SpaceError;
use crate::log::BLOCK;
use crate::log::entry::{Change, Entry};
use crate::marks::{self, Mark, MarkId};
use crate::owner::Inner;
use crate::port::Port;

/// The newest durable mark of each disk, as far as the log knows.
#[derive(Default)]
pub(crate) struct DiskMarks(Mutex<BTreeMap<DiskNumber, Known>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    mark: u64,
    count: u64,
    membership: u64,
}

impl DiskMarks {
    /// Takes the marks of a log, by its entries in their order.
    pub(crate) fn restore<'a>(&self, changes: impl Iterator<Item = &'a Change>) {
        let mut all = self.0.lock();
        for change in changes {
            match *change {
                Change::SnapshotBegins { .. } => all.clear(),
                Change::DiskMark { disk, mark, count, membership } => {
                    all.insert(disk, Known { mark, count, membership });
                }
                _ => {}
            }
        }
    }

    /// The entries of a snapshot.
    pub(crate) fn snapshot(&self) -> Vec<Entry> {
        let all = self.0.lock();
        let entry = |(disk, known): (&DiskNumber, &Known)| {
            let Known { mark, count, membership } = *known;
            Change::DiskMark { disk: *disk, mark, count, membership }.into()
        };
        all.iter().map(entry).collect()
    }

    /// Whether a disk with this mark, or none, was set back.
    pub(crate) fn is_set_back(&self, disk: DiskNumber, found: Option<Mark>) -> bool {
        let known = self.0.lock().get(&disk).copied();
        known.is_some_and(|known| found.is_none_or(|found| found.count < known.count))
    }

    /// A mark that was found on a disk, and the log may not have.
    fn found(&self, disk: DiskNumber, membership: u64, found: Mark) {
        let mut all = self.0.lock();
        let known = all.entry(disk).or_insert(Known { mark: 0, count: 0, membership });
        if found.count > known.count {
            *known = Known { mark: found.mark, count: found.count, membership };
        }
    }

    fn next_count(&self, disk: DiskNumber) -> u64 {
        self.0.lock().get(&disk).map_or(0, |known| known.count) + 1
    }
}

impl Inner {
    fn mark_id(view: &SpaceView, disk: DiskNumber) -> MarkId {
        MarkId { pool: view.pool, disk, space: view.space }
    }

    /// The mark of a disk; `None` if it has none that is valid.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn read_mark(
        &self,
        view: &SpaceView,
        port: &Arc<Port>,
    ) -> Result<Option<Mark>, DiskError> {
        let Some(at) = view.disks.get(&port.number()) else { return Ok(None) };
        let mut places = [None, None];
        for (number, place) in places.iter_mut().enumerate() {
            let buffers = sized(self.arena.alloc_sg(BLOCK, Class::Control).await, BLOCK);
            let offset = marks::position(at.areas.marks.offset, view.record.slot, number);
            match port.read(offset, buffers).await {
                (Ok(()), block) => {
                    *place = Mark::decode(&block[0], &Self::mark_id(view, port.number()), number).ok();
                }
                (Err(DiskError::Medium { .. }), _) => {}
                (Err(error), _) => return Err(error),
            }
        }
        Ok(Mark::newest(places))
    }

    /// Puts the mark `through` on all disks that are present: everything up to this sequence is durable there.
    pub(crate) async fn write_marks(&self, through: u64) -> Result<(), SpaceError> {
        let view = self.view.get().value;
        let ports = self.ports.all();
        let write = |port: Arc<Port>| {
            let mark = Mark {
                epoch: self.owner.epoch.0,
                count: self.marks.next_count(port.number()),
                mark: through,
            };
            let areas = view.disks[&port.number()].areas;
            let offset = marks::position(areas.marks.offset, view.record.slot, marks::place(mark.count));
            let block = IoBuf::from(mark.encode(&Self::mark_id(&view, port.number())));
            async move { (mark, port.write(offset, Sg::from_iter([block]), true).await) }
        };
        let writes: Vec<_> = ports.iter().cloned().map(write).collect();
        for (port, (mark, result)) in ports.iter().zip(join_all(writes).await) {
            match result {
                Ok(()) => self.marks.found(port.number(), port.membership().0, mark),
                Err(error) => {
                    let (disk, of) = (port.number(), port.membership());
                    self.leave_out(disk, of, Absence::WriteFailed, error).await?;
                }
            }
        }
        Ok(())
    }

    /// After an opening has read the log: the disks that were set back miss all that others have, before anything is read
    /// from them. `lacking`: their replicas of the log lack what was durable there.
    pub(crate) fn set_back(
        &self,
        view: &SpaceView,
        found: &[(DiskNumber, Option<Mark>)],
        lacking: &[DiskNumber],
    ) -> Vec<OwnerOp> {
        let mut ops = Vec::new();
        for (disk, mark) in found {
            let Some(of) = view.membership(*disk) else { continue };
            if lacking.contains(disk) || self.marks.is_set_back(*disk, *mark) {
                tracing::warn!(
                    space = self.space().0,
                    disk = disk.0,
                    "a disk was set back: it is not read before it is synchronised"
                );
                ops.push(OwnerOp::Stale { disk: *disk, of });
            } else if let Some(mark) = mark {
                self.marks.found(*disk, of.0, *mark);
            }
        }
        ops
    }
}
