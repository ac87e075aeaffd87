//! The marks of a space's disks, which detect a disk with a rolled-back state: `docs/0004-spaces.md`, rule 9.
//!
//! A checkpoint writes a mark to every disk after the data that the mark covers is durable there; a resync, and the
//! allocation of a row, write it again with a higher count. The log keeps the newest mark of each disk. A disk with an older
//! mark than the log was rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arena::{Class, IoBuf, Sg};
use disk::{DiskError, sized};
use futures_util::future::join_all;
use parking_lot::Mutex;
use pool_seam::{Absence, DiskNumber, OwnerOp, SpaceView};
use tokio::sync::OwnedMutexGuard;

use crate::SpaceError;
use crate::log::BLOCK;
use crate::log::commit::{RecordCapacity, Size};
use crate::log::entry::{Change, Entry};
use crate::marks::{self, Mark, MarkId};
use crate::owner::Inner;
use crate::port::Port;

/// The newest durable mark of each disk, according to the log.
#[derive(Default)]
pub(crate) struct DiskMarks {
    marks: Mutex<Marks>,
    /// Held while the mark of a disk is written: otherwise two marks could have the same count, and so the same
    /// place.
    writing: Mutex<BTreeMap<DiskNumber, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Default)]
struct Marks {
    known: BTreeMap<DiskNumber, NewestMark>,
    /// Disks whose marks wait for a record.
    waiting: BTreeSet<DiskNumber>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NewestMark {
    mark: u64,
    count: u64,
    membership: u64,
}

impl DiskMarks {
    /// Restores the marks from a log's entries, in their order.
    pub(crate) fn restore<'a>(&self, changes: impl Iterator<Item = &'a Change>) {
        let mut all = self.marks.lock();
        for change in changes {
            match *change {
                Change::SnapshotBegins { .. } => all.known.clear(),
                Change::DiskMark { disk, mark, count, membership } => {
                    all.known.insert(disk, NewestMark { mark, count, membership });
                }
                _ => {}
            }
        }
    }

    /// The entries of a snapshot.
    pub(crate) fn snapshot(&self) -> Vec<Entry> {
        let all = self.marks.lock();
        all.known.iter().map(|(disk, known)| known.entry(*disk)).collect()
    }

    /// Takes waiting entries, as many as fit; returns whether others still wait.
    pub(crate) fn take(&self, capacity: &mut RecordCapacity) -> (Vec<Entry>, bool) {
        let (mut all, mut entries) = (self.marks.lock(), Vec::new());
        while let Some(disk) = all.waiting.first().copied() {
            let entry = all.known[&disk].entry(disk);
            if !capacity.add(Size { body: entry.bytes(), units: 0 }) {
                return (entries, true);
            }
            entries.push(entry);
            all.waiting.remove(&disk);
        }
        (entries, false)
    }

    /// Whether a disk with this mark, or without one, was rolled back.
    pub(crate) fn is_rolled_back(&self, disk: DiskNumber, found: Option<Mark>) -> bool {
        let known = self.marks.lock().known.get(&disk).copied();
        known.is_some_and(|known| found.is_none_or(|found| found.count < known.count))
    }

    /// Records a mark found on a disk, which the log may not have.
    pub(crate) fn found(&self, disk: DiskNumber, membership: u64, found: Mark) {
        let mut all = self.marks.lock();
        let known = all.known.entry(disk).or_insert(NewestMark { mark: 0, count: 0, membership });
        if found.count > known.count {
            *known = NewestMark { mark: found.mark, count: found.count, membership };
        }
    }

    /// The next mark of a disk, with a higher count.
    fn next(&self, disk: DiskNumber, epoch: u64) -> Mark {
        let known = self.marks.lock().known.get(&disk).copied();
        let (mark, count) = known.map_or((0, 0), |known| (known.mark, known.count));
        Mark { epoch, count: count + 1, mark }
    }

    /// The right to write the mark of a disk.
    async fn turn(&self, disk: DiskNumber) -> OwnedMutexGuard<()> {
        let one = Arc::clone(self.writing.lock().entry(disk).or_default());
        one.lock_owned().await
    }

    /// Queues the mark of a disk for the next record.
    fn wait(&self, disk: DiskNumber) {
        self.marks.lock().waiting.insert(disk);
    }
}

impl NewestMark {
    fn entry(&self, disk: DiskNumber) -> Entry {
        let NewestMark { mark, count, membership } = *self;
        Change::DiskMark { disk, mark, count, membership }.into()
    }
}

impl Inner {
    fn mark_id(view: &SpaceView, disk: DiskNumber) -> MarkId {
        MarkId { pool: view.pool, disk, space: view.space }
    }

    /// The mark of a disk; `None` if it has none that is valid.
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

    /// Writes the mark `through` to all present disks: all data up to this sequence is durable there. The next
    /// snapshot has the marks.
    pub(crate) async fn write_marks(&self, through: u64) -> Result<(), SpaceError> {
        let ports = self.ports.all();
        let writes: Vec<_> = ports.iter().map(|port| self.write_mark(port, Some(through))).collect();
        for (port, result) in ports.iter().zip(join_all(writes).await) {
            if let Err(error) = result {
                let (disk, of) = (port.number(), port.membership());
                self.remove_from_service(disk, of, Absence::WriteFailed, error).await?;
            }
        }
        Ok(())
    }

    /// Writes the mark of a disk with a higher count, after a resync or for a new row: the next record of the log has
    /// it, so that an older image of the disk is detected.
    pub(crate) async fn mark_again(&self, port: &Arc<Port>) -> Result<(), DiskError> {
        self.write_mark(port, None).await?;
        self.marks.wait(port.number());
        Ok(())
    }

    /// Writes the next mark of a disk; `through`: all data up to this sequence is durable there.
    async fn write_mark(&self, port: &Arc<Port>, through: Option<u64>) -> Result<(), DiskError> {
        let _turn = self.marks.turn(port.number()).await;
        let next = self.marks.next(port.number(), self.owner.epoch.0);
        let mark = Mark { mark: through.unwrap_or(next.mark), ..next };
        let view = self.view.get().value;
        // A disk without slabs of this space is not in its view.
        let Some(at) = view.disks.get(&port.number()) else { return Ok(()) };
        let offset = marks::position(at.areas.marks.offset, view.record.slot, marks::place(mark.count));
        let block = IoBuf::from(mark.encode(&Self::mark_id(&view, port.number())));
        port.write(offset, Sg::from_iter([block]), true).await?;
        self.marks.found(port.number(), port.membership().0, mark);
        Ok(())
    }

    pub(crate) fn was_rolled_back(&self, disk: DiskNumber) {
        tracing::warn!(
            space = self.space().0,
            disk = disk.0,
            "a disk has an older state than recorded: it is not read before its resync"
        );
    }

    /// Called after an opening has read the log, before any data is read: returns operations that mark the whole
    /// content of disks with older marks stale.
    pub(crate) fn stale_disk_ops(
        &self,
        view: &SpaceView,
        found: &[(DiskNumber, Option<Mark>)],
    ) -> Vec<OwnerOp> {
        let mut ops = Vec::new();
        for (disk, mark) in found {
            let Some(of) = view.membership(*disk) else { continue };
            if self.marks.is_rolled_back(*disk, *mark) {
                self.was_rolled_back(*disk);
                ops.push(OwnerOp::MarkDiskStale { disk: *disk, membership: of });
            } else if let Some(mark) = mark {
                self.marks.found(*disk, of.0, *mark);
            }
        }
        ops
    }
}
