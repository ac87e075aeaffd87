//! The steps around every change of a unit: marks before, evaluation of the results after.

use std::time::Duration;

use disk::DiskError;
use futures_util::future::join_all;
use smallvec::SmallVec;

use super::copies::{Copies, Copy, blame, current};
use super::routes::Route;
use super::{Space, SpaceError};
use crate::activity::{Begun, Mark, NotMarked};
use crate::disks::DataDisk;
use crate::groups::GroupKey;
use crate::{Absence, DiskNumber, Op, RowNumber};

/// The result of an attempt to change something.
pub(super) enum Attempt {
    Done,
    /// Something changed meanwhile, or was repaired: look again.
    Again,
    /// A disk's activity log is full: make room first.
    NoMark(DiskNumber),
}

/// The copies to change.
#[derive(Clone)]
pub(super) struct Targets {
    /// All copies of the column.
    route: Route,
    /// Those of them that are changed, when not all are.
    some: Option<Box<Copies>>,
}

impl Targets {
    pub(super) fn copies(&self) -> &[Copy] {
        self.some.as_deref().unwrap_or(&self.route)
    }
}

/// Of each copy that is changed.
pub(super) type Marks = SmallVec<[Mark; 2]>;

/// Marks that were set, and what keeps others from it.
#[derive(Default)]
struct Marking {
    marks: Marks,
    /// Those that are not durable yet, by number among the targets.
    waits: SmallVec<[(usize, Begun); 2]>,
    full: Option<DiskNumber>,
    again: bool,
}

/// Interval between checks of a full log.
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// Checks, while nothing changes, until the waiter gets a reason.
const ROOM_TRIES: usize = 16;

impl Space {
    /// Preparation of a change of units, under their lock: chooses the copies to change and marks them active
    /// durably; the others have missed the regions, durably too. `skip` has the copies whose disks could not
    /// mark them; they are not changed. If such a disk has returned since, it counts as another copy: it
    /// could have been brought up to date meanwhile, and must not miss the regions because of the earlier
    /// failure.
    pub(super) async fn begin_change(
        &self,
        key: GroupKey,
        regions: u64,
        skip: &mut Vec<Copy>,
    ) -> Result<Result<(Targets, Marks), Attempt>, SpaceError> {
        let (row, column) = (key.row, key.column);
        let Some(route) = self.inner.route(&self.path, row, column) else { return Ok(Err(Attempt::Again)) };
        self.inner.unavailable(row, &route, regions)?;
        let is_one = |c: &&Copy| c.disk.is_some() && !skip.iter().any(|s| s.is_as(c));
        let some = (!route.iter().all(|c| is_one(&c)))
            .then(|| Box::new(route.iter().filter(is_one).cloned().collect::<Copies>()));
        let targets = Targets { route, some };
        let mut marking = self.mark(targets.copies(), regions);
        if !marking.waits.is_empty() {
            // Rarely: the box keeps it out of every write's task.
            Box::pin(self.marked(row, targets.copies(), regions, &mut marking, skip)).await?;
        }
        if marking.again {
            return Ok(Err(Attempt::Again));
        }
        if let Some(disk) = marking.full {
            return Ok(Err(Attempt::NoMark(disk)));
        }
        let route = &targets.route;
        if targets.some.is_some() {
            // One that joined meanwhile may have been brought up to date, and would be behind again.
            if self.is_changed(row, column, route) {
                return Ok(Err(Attempt::Again));
            }
            Box::pin(self.miss(row, route, targets.copies(), regions)).await?;
        }
        if !route.is_current(&self.path) && self.is_changed(row, column, route) {
            return Ok(Err(Attempt::Again));
        }
        Ok(Ok((targets, marking.marks)))
    }

    /// The same without waiting: only if all copies are present and the regions are marked on their disks
    /// already. Otherwise nothing changes.
    pub(super) fn begin_change_at_once(&self, key: GroupKey, regions: u64) -> Option<(Targets, Marks)> {
        let route = self.inner.route(&self.path, key.row, key.column)?;
        if !route.iter().all(|c| c.disk.is_some()) || regions & !current(route.iter()) != 0 {
            return None;
        }
        let Marking { marks, waits, full, again } = self.mark(&route, regions);
        let may = waits.is_empty() && full.is_none() && !again && route.is_current(&self.path);
        may.then(|| (Targets { route, some: None }, marks))
    }

    /// Marks regions as active on the disks of these copies; returns the waits until the marks count.
    fn mark(&self, targets: &[Copy], regions: u64) -> Marking {
        let mut marking = Marking::default();
        for (number, copy) in targets.iter().enumerate() {
            let Some(disk) = &copy.disk else { continue };
            match disk.log.begin(self.inner.id, copy.slab, copy.generation, regions) {
                Ok((mark, begun)) => {
                    marking.marks.push(mark);
                    marking.waits.extend(begun.map(|begun| (number, begun)));
                }
                Err(NotMarked::Full) => marking.full = Some(copy.number),
                Err(NotMarked::Closed) => marking.again = true,
            }
        }
        marking
    }

    /// Waits until marks are durable. `skip` gets the copies whose disks could not mark them, and which do
    /// not count there now.
    async fn marked(
        &self,
        row: RowNumber,
        targets: &[Copy],
        regions: u64,
        marking: &mut Marking,
        skip: &mut Vec<Copy>,
    ) -> Result<(), SpaceError> {
        let of = |(number, begun): &(usize, Begun)| Some((targets.get(*number)?, *begun));
        let waits: Vec<(&Copy, Begun)> = marking.waits.iter().filter_map(of).collect();
        let durable = waits.iter().filter_map(|(c, begun)| Some(c.disk.as_ref()?.log.wait_durable(*begun)));
        for ((copy, _), result) in waits.iter().zip(join_all(durable).await) {
            if let Err(error) = result {
                marking.again = true;
                Box::pin(self.fail_copy(row, copy, regions, &error)).await?;
                skip.push((*copy).clone());
            }
        }
        Ok(())
    }

    /// Makes durable that the copies that are no targets miss these regions.
    pub(super) async fn miss(
        &self,
        row: RowNumber,
        copies: &[Copy],
        targets: &[Copy],
        regions: u64,
    ) -> Result<(), SpaceError> {
        let left_out = copies.iter().filter(|c| !targets.iter().any(|t| t.index == c.index));
        let ops: Vec<Op> = left_out
            .filter(|c| !c.missed & regions != 0)
            .map(|c| Op::Missed {
                space: self.inner.id,
                row,
                index: c.index as u8,
                regions: regions & !c.missed,
            })
            .collect();
        if !ops.is_empty() {
            self.path.book.commit(ops).await?;
        }
        Ok(())
    }

    /// Whether the copies are on other slabs than a moment ago, or their disks have come or gone.
    pub(super) fn is_changed(&self, row: RowNumber, column: u8, before: &[Copy]) -> bool {
        let now = self.inner.copies(&self.path, row, column);
        now.is_none_or(|now| now.iter().zip(before).any(|(a, b)| !a.is_as(b)))
    }

    /// Whether all went well with a change of all targets, and nothing is another than before it: nothing is
    /// left to judge.
    pub(super) fn is_well(&self, targets: &Targets, regions: u64, results: &[Result<(), DiskError>]) -> bool {
        results.iter().all(|r| r.is_ok())
            && regions & !current(targets.copies()) == 0
            && targets.route.is_current(&self.path)
    }

    /// Whether a change with these results on the copies has succeeded: every current copy has it, and there
    /// is one. Handles the failed copies.
    pub(super) async fn judge(
        &self,
        row: RowNumber,
        column: u8,
        regions: u64,
        results: &[(&Copy, Result<(), DiskError>)],
    ) -> Result<(), SpaceError> {
        let mut first = None;
        for (copy, result) in results {
            if let Err(error) = result {
                first.get_or_insert(blame(copy.number, *error));
                Box::pin(self.fail_copy(row, copy, regions, error)).await?;
            }
        }
        let now = self.inner.copies(&self.path, row, column).unwrap_or_default();
        let well = |index| results.iter().any(|(c, r)| c.index == index && r.is_ok());
        let have = current(now.iter().filter(|c| well(c.index)));
        if regions & !have != 0 {
            self.inner.unavailable(row, &now, regions)?;
            let away = SpaceError::Unavailable {
                space: self.inner.id,
                row,
                disks: results.iter().map(|(c, _)| c.number).collect(),
            };
            return Err(first.unwrap_or(away));
        }
        Ok(())
    }

    /// Handles a copy whose disk failed a change: on success the copy does not count in these regions, and
    /// that is durable. (Its disk may be back by then: the writes before its removal, which it may have lost,
    /// count as missed.)
    pub(crate) async fn fail_copy(
        &self,
        row: RowNumber,
        copy: &Copy,
        regions: u64,
        error: &DiskError,
    ) -> Result<(), SpaceError> {
        let also = Some((self.inner.id, row, copy.index, regions));
        let Some(disk) = &copy.disk else { return Ok(()) };
        self.path.fail(disk, error, Absence::WriteFailed, also).await?;
        let column = (copy.slab_of / self.inner.copies) as u8;
        let now = self.inner.copies(&self.path, row, column).unwrap_or_default();
        match now.iter().find(|c| c.index == copy.index) {
            Some(c) if c.is_as(copy) && c.current() & regions != 0 => Err(blame(copy.number, *error)),
            _ => Ok(()),
        }
    }

    /// Flushes and resolves what holds the entries of a disk's activity log. The caller has no lock.
    ///
    /// # Errors
    /// What all of them wait for, if that does not end.
    pub(super) async fn make_room(&self, disk: DiskNumber) -> Result<(), SpaceError> {
        let mut settled = Ok(());
        for _ in 0..ROOM_TRIES {
            let Some(disk) = self.path.disk(disk) else { return Ok(()) };
            let before = disk.log.with(|core| core.taken());
            settled = self.settle_entries(&disk).await;
            self.path.env.sleep(ROOM_WAIT).await;
            // Others may have taken what there was.
            if disk.log.with(|core| core.has_room() || core.taken() != before) {
                return Ok(());
            }
        }
        settled
    }

    /// One attempt; returns the error of the groups that could not be resolved or flushed.
    async fn settle_entries(&self, disk: &DataDisk) -> Result<(), SpaceError> {
        let mut result = Ok(());
        let owners = disk.log.with(|core| core.owners_in_use());
        // Those with parity have no entries; and this may be one's journal.
        for space in self.path.open_spaces().into_iter().filter(|s| s.striped().is_none()) {
            if owners.contains(&space.inner.id) {
                // The owner of the space gets the error at its next flush; this caller only needs the room.
                result = result.and(space.flush_all().await);
            }
            // Regions in doubt after a crash hold entries too; one group for each try, because others' disks
            // may be absent.
            for key in space.groups_in_doubt() {
                match space.settle_doubts(key).await {
                    Ok(()) if space.inner.in_doubt(key) == 0 => break,
                    settled => result = result.and(settled),
                }
            }
        }
        result
    }
}
