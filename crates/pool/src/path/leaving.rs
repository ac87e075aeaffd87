//! Failed and absent disks: whether they are removed from service, and the data that only they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::DiskError;

use super::DataPath;
use crate::book::Life;
use crate::disks::DataDisk;
use crate::space::{Parity, SpaceError};
use crate::{Absence, CommitError, DiskNumber, Op, RowNumber, SpaceId, State};

impl DataPath {
    /// Closes the devices of disks that are absent or removed from the pool, so that they can be opened
    /// again; not those with outstanding writes.
    pub fn release_absent(self: &Arc<DataPath>) {
        let members = self.book.members();
        let present = self.read(|s| s.disks.keys().copied().filter(|d| s.is_present(*d)).collect::<Vec<_>>());
        let stays = |d: &DiskNumber, disk: &Arc<DataDisk>| {
            members.get(*d).is_some() || present.contains(d) || disk.pulse.is_writing()
        };
        let gone: Vec<_> = {
            let disks = self.disks.read();
            disks.iter().filter(|(d, disk)| !stays(d, disk)).map(|(_, disk)| Arc::clone(disk)).collect()
        };
        gone.iter().for_each(|disk| self.owe_unflushed(disk));
        self.change_disks(|disks| disks.retain(|_, disk| !gone.iter().any(|g| Arc::ptr_eq(g, disk))));
        // Nothing else can end the wait for I/O that these disks do not answer.
        gone.iter().for_each(|d| d.pulse.abandon());
    }

    /// Unflushed data of which the disk has the only copy may be lost, and no record of that remains when its
    /// log is dropped: the next flush reports it.
    fn owe_unflushed(self: &Arc<DataPath>, disk: &DataDisk) {
        let number = disk.number;
        let in_use = |(slab, generation)| disk.log.with(|core| core.in_use(slab, generation));
        for (slab, (space, row, index)) in self.owners(number, |slab| in_use(slab) != 0) {
            let here = |s: &State, d| d == number || s.is_present(d);
            if in_use(slab) & self.read(|s| s.alone_among(space, row, index, |d| here(s, d))) != 0
                && let Ok(space) = self.space(space)
            {
                space.owe_flush(SpaceError::Returned { space: space.id(), row, disk: number });
            }
        }
    }

    /// Handles a failed disk, unless it has joined again since the failed I/O started: it is removed from
    /// service, unless it has the only current copy of some data. Then its other active regions, of which
    /// there are other copies, become missed, and so does `also`: space, row, index and regions of the failed
    /// I/O.
    ///
    /// # Errors
    /// When the metadata cannot be changed. The caller must check afterwards whether a copy still
    /// counts.
    pub(crate) async fn fail(
        &self,
        disk: &Arc<DataDisk>,
        error: &DiskError,
        reason: Absence,
        also: Option<(SpaceId, RowNumber, usize, u64)>,
    ) -> Result<(), SpaceError> {
        if matches!(error, DiskError::Fenced { .. }) {
            // The disk is healthy: this process has lost the ownership of the pool.
            return Ok(());
        }
        let _one = self.failing.lock().await;
        let (d, disk) = (disk, disk.number);
        match self.book.members().get(disk) {
            // It is on its way out: that is durable when this returns.
            None => return self.leaves(d, reason).await,
            // It was removed and has returned: the earlier failure says nothing about its present state.
            Some(member) if !Arc::ptr_eq(member, &d.member) => return Ok(()),
            Some(_) => {}
        }
        if let Some((space, row, index, regions)) = also {
            d.resync_spoiled((space, row, index), regions);
        }
        if reason == Absence::FlushFailed {
            d.resync_spoiled_all();
        }
        let striped: BTreeMap<SpaceId, Arc<Parity>> = {
            let spaces = self.spaces.lock();
            spaces.iter().filter_map(|(id, i)| Some((*id, Arc::clone(i.parity.as_ref()?)))).collect()
        };
        loop {
            let Some(ops) = self.misses_and_stays(d, also, &striped) else {
                tracing::warn!(disk = disk.0, %error, "a disk failed and is removed from service");
                match self.leaves(d, reason).await {
                    // By now it has the only copy of some data: another disk was removed.
                    Err(SpaceError::Metadata(CommitError::Needed(_))) if self.read(|s| s.needs(disk)) => {
                        continue;
                    }
                    left => return left,
                }
            };
            self.events.fails(disk, error);
            if !ops.is_empty() {
                tracing::warn!(disk = disk.0, %error, "a disk failed, but stays in service: it has the only current copy of some data");
                self.book.commit(ops).await?;
            }
            return Ok(());
        }
    }

    /// The regions that a failed disk has missed and others have, if it has the only copy of others and stays
    /// for those.
    fn misses_and_stays(
        &self,
        d: &DataDisk,
        also: Option<(SpaceId, RowNumber, usize, u64)>,
        striped: &BTreeMap<SpaceId, Arc<Parity>>,
    ) -> Option<Vec<Op>> {
        let disk = d.number;
        self.read(|state| {
            if !state.needs(disk) {
                return None;
            }
            let mut ops = Vec::new();
            for (&(space, row), r) in &state.rows {
                for (index, copy) in r.copies().filter(|(_, c)| c.place.disk == disk) {
                    let mut regions = d.log.active(copy.place.slab, copy.generation);
                    regions |= striped.get(&space).map_or(0, |p| p.active(row));
                    if let Some((.., more)) = also.filter(|a| (a.0, a.1, a.2) == (space, row, index)) {
                        regions |= more;
                    }
                    let regions = regions & !copy.missed & !state.alone(space, row, index);
                    if regions != 0 {
                        ops.push(Op::Missed { space, row, index: index as u8, regions });
                    }
                }
            }
            Some(ops)
        })
    }

    /// Removes a failed disk from service: when that is durable, its outstanding I/O is no longer awaited.
    async fn leaves(&self, disk: &DataDisk, reason: Absence) -> Result<(), SpaceError> {
        self.book.leave(disk.number, Life::Of(Arc::clone(&disk.member)), reason).await?;
        if !self.read(|s| s.is_present(disk.number)) {
            disk.pulse.abandon();
        }
        Ok(())
    }
}
