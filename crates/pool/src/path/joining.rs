//! Disks join the service: the marks of their logs are in doubt before any data can be used.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{Either, select};

use super::{DataPath, Owners};
use crate::activity::{Core, Log};
use crate::blocks::activity::BLOCKS;
use crate::book::Life;
use crate::disks::DataDisk;
use crate::pulse::Pulse;
use crate::pulse::watch::{HANGS, goes_on_without};
use crate::space::{Space, SpaceError};
use crate::{Absence, CommitError, DiskNumber, Member, RowNumber, SpaceId};

impl DataPath {
    /// Puts a disk into service, including a returning one. Its marks become unresolved. The metadata counts
    /// it present before or after; until then it is not used. A disk in service is not changed.
    ///
    /// # Errors
    /// As for [`DataPath::open`].
    pub async fn join(self: &Arc<DataPath>, member: &Arc<Member>) -> Result<(), SpaceError> {
        let _one = self.joining.lock().await;
        self.join_alone(member).await
    }

    /// The same; the caller has `joining`.
    pub(crate) async fn join_alone(self: &Arc<DataPath>, member: &Arc<Member>) -> Result<(), SpaceError> {
        if self.disk(member.number).is_some_and(|d| Arc::ptr_eq(&d.member, member)) {
            return Ok(());
        }
        self.join_with(member).await
    }

    pub(super) async fn join_with(self: &Arc<DataPath>, member: &Arc<Member>) -> Result<(), SpaceError> {
        let epoch = self.io.epoch;
        // It has been removed from service, and that is durable: outstanding I/O on its old handle is not
        // awaited, not even by exclusive holders.
        let old = self.last_seen(member.number).filter(|d| !Arc::ptr_eq(&d.member, member));
        old.iter().for_each(|d| d.pulse.abandon());
        let mut read = std::pin::pin!(Log::read(&self.io, member, BLOCKS));
        let places = loop {
            match select(read.as_mut(), Box::pin(self.env.sleep(HANGS))).await {
                Either::Left((places, _)) => break places,
                // It is not supervised yet: if it hangs now, everything that waits for its joining would be
                // blocked.
                Either::Right(_) if self.read(|s| goes_on_without(s, member.number, &BTreeSet::new())) => {
                    match self.book.leave(member.number, Life::Of(Arc::clone(member)), Absence::Slow).await {
                        // By now the pool cannot continue without it, so this waits.
                        Err(CommitError::Needed(_)) => {}
                        left => return Ok(left?),
                    }
                }
                Either::Right(_) => {}
            }
        };
        let core = Core::new(self.pool, member.number, epoch.0, BLOCKS, self.options.log_entries);
        let named = core.named(&places);
        // Of a pool that was exported no log names any.
        let owners = match named.is_empty() {
            true => Owners::new(),
            false => self.owners(member.number, |slab| named.contains(&slab)),
        };
        let mut core = core
            .restore(&places, |slab, generation| owners.get(&(slab, generation)).map(|(space, ..)| *space));
        for (&(slab, generation), &(space, row, index)) in &owners {
            core.yields(
                slab,
                generation,
                self.read(|s| s.rows.get(&(space, row)).and_then(|r| r.copy(index)).map_or(0, |c| c.missed)),
            );
        }
        let pinned: Vec<_> = core.pinned().collect();
        let pulse = Pulse::new(&self.env, &self.watch, &self.tenure);
        let log = Log::new(Arc::clone(member), epoch, core, Arc::clone(&pulse));
        let disk = DataDisk::new(Arc::clone(member), epoch, log, pulse);
        let doubted: Vec<_> = self.open_spaces().iter().filter_map(Space::striped).collect();
        let doubted: Vec<_> = doubted.into_iter().filter(|s| s.doubts(member.number)).collect();
        let mut alone = Vec::new();
        for striped in &doubted {
            alone.push(striped.alone().await);
        }
        // In doubt before anybody can use it.
        let before = self.last_seen(member.number);
        for (slab, generation, regions) in pinned {
            if let Some(&(space, row, index)) = owners.get(&(slab, generation)) {
                self.unresolve(space, row, index, regions);
                let unflushed =
                    before.as_ref().map_or(0, |d| d.log.with(|core| core.in_use(slab, generation)));
                self.doubt_memory(member.number, (space, row, index), regions, unflushed);
            }
        }
        self.change_disks(|disks| drop(disks.insert(member.number, Arc::clone(&disk))));
        // Prepared changes counted before this point.
        doubted.iter().filter(|s| s.doubts(member.number)).for_each(|s| s.forget(member.number));
        drop(alone);
        self.events.joins(member.number);
        for space in self.open_spaces() {
            space.inner.repin(self);
            // The disk's contents are compared when they are read again.
            space.inner.groups.forget_clean();
            if let Some(parity) = &space.inner.parity {
                parity.forget_clean();
            }
        }
        let disks: Vec<_> = self.disks.read().values().cloned().collect();
        for disk in disks {
            if let Err(error) = disk.log.write_due().await {
                self.fail(&disk, &error, Absence::WriteFailed, None).await?;
            }
        }
        Ok(())
    }

    /// A disk with the only copy of regions that were active when it was removed has returned: writes since
    /// its last flush may be lost.
    fn doubt_memory(
        self: &Arc<DataPath>,
        disk: DiskNumber,
        (space, row, index): (SpaceId, RowNumber, usize),
        regions: u64,
        unflushed: u64,
    ) {
        let regions = regions & self.read(|s| s.alone(space, row, index));
        if let (Ok(space), true) = (self.space(space), regions != 0) {
            let column = space.inner.column_of(self, row, index);
            space.inner.groups.hearsay(row, column, space.inner.regions, regions);
            if unflushed & regions != 0 {
                space.owe_flush(SpaceError::Returned { space: space.id(), row, disk });
            }
        }
    }

    fn unresolve(self: &Arc<DataPath>, space: SpaceId, row: RowNumber, index: usize, regions: u64) {
        if let Ok(space) = self.space(space) {
            space.inner.unresolve_slab(row, space.inner.column_of(self, row, index), regions);
        }
    }
}
