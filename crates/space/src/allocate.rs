//! Allocating rows and writing their first blocks: `docs/0004-spaces.md`, rule 18.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{IoBuf, Sg};
use disk::DiskError;
use futures_util::future::join_all;
use pool_seam::{
    Absence, DiskNumber, GROUP, Membership, NotMoved, OwnerOp, Provisioning, Row, RowNumber, SeamError,
    SlabCopy, SpaceView,
};
use smallvec::{SmallVec, smallvec};

use crate::SpaceError;
use crate::blocks::{self, ChecksumBlock, Units};
use crate::owner::{Inner, RETRY, ReportOutcome, Space};
use crate::port::Port;
use crate::view::{GroupKey, Member, Route, block_id, route};
use crate::write::unavailable;

/// Rows that are allocated with one request.
const ROWS_AT_ONCE: u32 = 16;

/// A copy of a new row.
type NewCopy<'a> = (RowNumber, &'a Row, &'a SlabCopy);

/// Disks, each with its membership.
type Disks = Vec<(DiskNumber, Membership)>;

impl Space {
    /// Allocates the slabs of all rows of the space's size, for fixed provisioning. After [`SeamError::NoRoom`] the
    /// rows allocated so far stay allocated.
    pub async fn allocate_all(&self) -> Result<(), SpaceError> {
        let inner = Arc::clone(&self.0);
        self.0.env.run(async move { inner.allocate_all().await }).await
    }
}

impl Inner {
    /// Allocates and initialises a row: rule 18.
    pub(crate) async fn allocate(self: &Arc<Inner>, row: RowNumber) -> Result<(), SpaceError> {
        self.allocate_rows(vec![row]).await
    }

    /// Initialises a row that a crash has left new, for a job. Otherwise returns why the job has to skip the row.
    pub(crate) async fn initialise(
        self: &Arc<Inner>,
        row: RowNumber,
    ) -> Result<Result<(), NotMoved>, SpaceError> {
        match self.allocate(row).await {
            Ok(()) => Ok(Ok(())),
            Err(SpaceError::Seam(SeamError::NoRoom(why))) => Ok(Err(NotMoved::NoPlace(why))),
            Err(SpaceError::Unavailable { .. }) => Ok(Err(NotMoved::Unfinished)),
            Err(error) => Err(error),
        }
    }

    async fn allocate_all(self: &Arc<Inner>) -> Result<(), SpaceError> {
        let mut first = 0;
        loop {
            // The space may have been resized meanwhile.
            let view = self.view.get().value;
            let rows = view.record.row_count(view.slab_bytes) as u32;
            if first >= rows {
                return Ok(());
            }
            let end = rows.min(first + ROWS_AT_ONCE);
            let half = view.record.half;
            self.allocate_rows((first..end).map(|index| RowNumber::new(half, index)).collect()).await?;
            first = end;
        }
    }

    /// Allocates and initialises rows, in two requests if no disk is removed meanwhile.
    pub(crate) async fn allocate_rows(self: &Arc<Inner>, rows: Vec<RowNumber>) -> Result<(), SpaceError> {
        let mut has_waited = false;
        let mut freed = BTreeSet::new();
        // The new rows, by birth, whose first blocks are written, and the disks that have these blocks.
        let mut written: Option<(Vec<(RowNumber, u32)>, Disks)> = None;
        loop {
            // Released before this call waits for a checkpoint: a call that blocks checkpoints may wait for this
            // lock.
            let one = self.allocating.lock().await;
            let view = self.view.get().value;
            let rows = || rows.iter().copied();
            let missing = rows().filter(|row| !view.record.rows.contains_key(row));
            let missing: Vec<OwnerOp> = missing.map(|row| OwnerOp::Allocate { row }).collect();
            if !missing.is_empty() {
                match self.commit(missing).await {
                    Ok(()) => {}
                    // A checkpoint frees emptied groups and rows. One may be doing so now.
                    Err(SpaceError::Seam(SeamError::NoRoom(_)))
                        if self.has_emptied.load(Ordering::Relaxed) || !has_waited =>
                    {
                        drop(one);
                        has_waited = true;
                        drop(self.checkpoints.lock().await);
                        if self.has_emptied.load(Ordering::Relaxed) {
                            Box::pin(self.checkpoint()).await?;
                        }
                    }
                    Err(error) => return Err(error),
                }
                continue;
            }
            let new: Vec<(RowNumber, &Row)> = rows()
                .filter_map(|row| Some((row, view.record.rows.get(&row).filter(|row| row.is_new)?)))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            // Disks may have been removed since the row's slabs were chosen; other disks may have room. A fixed space
            // keeps its slabs.
            let lacks =
                |(row, record): &(RowNumber, &Row)| Some((*row, record.birth, lacks_disks(&view, *row)?));
            if let Some((row, birth, members)) = new.iter().find_map(lacks) {
                if view.record.provisioning == Provisioning::Fixed || !freed.insert(row) {
                    return Err(unavailable(row, &members));
                }
                self.commit_if_fits(vec![OwnerOp::Free { row, birth }]).await?;
                continue;
            }
            let births: Vec<(RowNumber, u32)> =
                new.iter().map(|(row, record)| (*row, record.birth)).collect();
            if let Some((_, disks)) = written.take().filter(|(of, _)| *of == births) {
                let ready = |(row, birth)| OwnerOp::Ready { row, birth, written: disks.clone() };
                self.commit_if_fits(births.into_iter().map(ready).collect()).await?;
                continue;
            }
            written = self.write_empty_blocks(&view, &new).await?.map(|disks| (births, disks));
            drop(one);
            // The marks must be durable in the log before a row is ready.
            self.log().durable().await?;
        }
    }

    /// Writes the blocks of new rows durably, and then the marks of their disks, so that an older image of a disk is
    /// detected. Returns the disks; `None` if one was removed meanwhile.
    async fn write_empty_blocks(
        &self,
        view: &SpaceView,
        rows: &[(RowNumber, &Row)],
    ) -> Result<Option<Disks>, SpaceError> {
        let mut on_disks: BTreeMap<(DiskNumber, Membership), Vec<NewCopy<'_>>> = BTreeMap::new();
        for (row, record) in rows {
            for (_, copy) in record.copies() {
                if let Some(of) = view.membership(copy.place.disk) {
                    on_disks.entry((copy.place.disk, of)).or_default().push((*row, record, copy));
                }
            }
        }
        let disks: Disks = on_disks.keys().copied().collect();
        let written = on_disks.into_iter().map(|((disk, of), copies)| async move {
            let Some(port) = self.port_of(disk, of).await? else { return Ok(false) };
            let result = match write_durably(&port, view, &copies).await {
                Ok(()) => self.mark_again(&port).await,
                failed => failed,
            };
            let Err(error) = result else { return Ok(true) };
            if self.report(disk, of, Absence::WriteFailed, error).await? == ReportOutcome::Needed {
                if !matches!(error, DiskError::Timeout { .. }) {
                    return Err(SpaceError::Disk { disk, error });
                }
                // The disk's removal was refused, or the disk hangs: the only choice is to retry.
                self.env.sleep(RETRY).await;
            }
            Ok(false)
        });
        let written: Vec<bool> = join_all(written).await.into_iter().collect::<Result<_, SpaceError>>()?;
        Ok(written.into_iter().all(|is_written| is_written).then_some(disks))
    }
}

/// Returns the members of a set whose blocks cannot be written, because too few of its disks are present.
fn lacks_disks(view: &SpaceView, row: RowNumber) -> Option<SmallVec<[Member; 3]>> {
    let record = view.record.rows.get(&row)?;
    let shape = view.record.shape_of(record);
    let mut sets = (0..shape.sets()).filter_map(|set| route(view, GroupKey { row, set, group: 0 }));
    let absent = |route: &Route| route.members.iter().filter(|member| member.membership.is_none()).count();
    sets.find(|route| absent(route) > shape.resiliency.failures()).map(|route| route.members)
}

/// Writes the first blocks of slabs of one disk.
async fn write_durably(port: &Arc<Port>, view: &SpaceView, copies: &[NewCopy<'_>]) -> Result<(), DiskError> {
    for (row, record, copy) in copies {
        let Some(at) = view.disks.get(&copy.place.disk) else { continue };
        let shape = view.record.shape_of(record);
        let block = ChecksumBlock {
            version: 0,
            writing: 0,
            lost: Units::NONE,
            written: smallvec![Units::NONE; shape.columns_in_set()],
            versions: smallvec![0; shape.slabs_in_set()],
            sums: [0; pool_seam::GROUP_UNITS as usize],
        };
        let id = |group| block_id(view, *row, group, copy.generation);
        let groups = 0..(view.slab_bytes / GROUP) as u32;
        let bytes: Vec<u8> = groups.flat_map(|group| block.encode(&id(group))).collect();
        let offset = blocks::position(at.areas.checksums(copy.place.slab).offset, 0);
        port.write(offset, Sg::from_iter([IoBuf::from(bytes)]), false).await?;
    }
    port.flush().await
}
