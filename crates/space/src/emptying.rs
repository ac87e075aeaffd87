//! Frees empty space: discards whole groups on the disks, and returns whole rows to the coordinator.
//!
//! Invariants:
//! 1. A group is discarded on the disks after a checkpoint has recorded in its block that it is empty. Its lock is held
//!    until the disks have completed the discard, so no later write is discarded.
//! 2. A row of a space with fixed provisioning is freed only when the space becomes smaller, or the row is converted.
//! 3. A row is freed under the locks of all of its groups, and between two checkpoints: none of its values waits, is in
//!    flight or is being written, and the log's entries of its birth become void (rule 18).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{IoRange, Op};
use futures_util::future::join_all;
use pool_seam::{GROUP, GROUP_UNITS, OwnerOp, Provisioning, RowNumber};

use crate::SpaceError;
use crate::blocks::Units;
use crate::locks::{Mode, RangeLock};
use crate::owner::Inner;
use crate::table::Table;
use crate::view::{GroupKey, route};

const WHOLE: std::ops::Range<usize> = 0..GROUP_UNITS as usize;

impl Inner {
    /// Called after a checkpoint that wrote the blocks of these groups; no other checkpoint runs meanwhile.
    pub(crate) async fn give_back(self: &Arc<Inner>, groups: BTreeSet<GroupKey>) -> Result<(), SpaceError> {
        let mut rows = std::mem::take(&mut *self.in_use.lock());
        for key in groups {
            if self.is_empty(key).await? {
                self.punch(key).await;
                rows.insert(key.row);
            }
        }
        if self.view.get().value.record.provisioning == Provisioning::Fixed {
            return Ok(());
        }
        for row in rows {
            self.free(row).await?;
        }
        Ok(())
    }

    /// Whether a group is empty, also according to its block.
    async fn is_empty(self: &Arc<Inner>, key: GroupKey) -> Result<bool, SpaceError> {
        let Some(cached) = self.loaded(key).await? else { return Ok(false) };
        Ok(self.with_table(&cached, |table| holds_nothing(table)))
    }

    async fn is_void(self: &Arc<Inner>, key: GroupKey) -> Result<bool, SpaceError> {
        let Some(cached) = self.loaded(key).await? else { return Ok(false) };
        Ok(self.with_table(&cached, |table| table.is_void()))
    }

    /// Discards a group on its disks, if it is still empty.
    async fn punch(self: &Arc<Inner>, key: GroupKey) {
        let Some(_lock) = self.locks.try_lock(key, WHOLE, Mode::Exclusive) else { return };
        if !self.is_empty(key).await.is_ok_and(|is_empty| is_empty) {
            return;
        }
        let view = self.view.get().value;
        let members = route(&view, key).map(|at| at.members).unwrap_or_default();
        let ports = members.iter().filter_map(|m| Some((m.data, self.ports.get(m.disk, m.membership?)?)));
        let discards = ports.map(async |(offset, port)| (port.number(), port.discard(offset, GROUP).await));
        for (disk, result) in join_all(discards).await {
            // The discard is only a hint to the disk: an error is harmless.
            if let Err(error) = result {
                let at = IoRange::new(Op::Discard, 0, GROUP);
                tracing::debug!(disk = disk.0, ?at, %error, "a discard failed");
            }
        }
    }

    /// Frees the empty rows from `first` on; returns whether none are left.
    pub(crate) async fn free_from(self: &Arc<Inner>, first: RowNumber) -> Result<bool, SpaceError> {
        let _one = self.checkpoints.lock().await;
        let rows = || {
            let view = self.view.get().value;
            let rows = view.record.rows.keys().copied();
            rows.filter(|row| *row >= first && *row != RowNumber::LOG).collect::<Vec<_>>()
        };
        for row in rows() {
            self.free(row).await?;
            self.free_new(row).await?;
        }
        Ok(rows().is_empty())
    }

    /// Frees a new row, which is empty (rule 18). A call that is about to initialise it finds another row, or none.
    pub(crate) async fn free_new(&self, row: RowNumber) -> Result<(), SpaceError> {
        // Prevents that another call initialises the row meanwhile.
        let _one = self.allocating.lock().await;
        let view = self.view.get().value;
        if let Some(record) = view.record.rows.get(&row).filter(|record| record.is_new) {
            self.commit_if_fits(vec![OwnerOp::Free { row, birth: record.birth }]).await?;
        }
        Ok(())
    }

    /// Frees a row, if all of its groups are empty. Their blocks need not be up to date (those of an absent disk cannot
    /// be), as the log's entries of the row become void.
    pub(crate) async fn free(self: &Arc<Inner>, row: RowNumber) -> Result<(), SpaceError> {
        let view = self.view.get().value;
        let Some(record) = view.record.rows.get(&row).filter(|record| !record.is_new) else {
            return Ok(());
        };
        let (birth, keys) = (record.birth, self.groups(row));
        for key in &keys {
            if !self.is_void(*key).await? {
                return Ok(());
            }
        }
        let mut locks: Vec<RangeLock> = Vec::new();
        for key in &keys {
            let Some(lock) = self.locks.try_lock(*key, WHOLE, Mode::Exclusive) else {
                // A call uses the row, perhaps without changing it: the next checkpoint tries again.
                self.in_use.lock().insert(row);
                self.has_emptied.store(true, Ordering::Relaxed);
                return Ok(());
            };
            locks.push(lock);
            if !self.is_void(*key).await? {
                return Ok(());
            }
        }
        // This includes a slab that is being moved, whose job a crash may have interrupted.
        if !self.commit_if_fits(vec![OwnerOp::Free { row, birth }]).await? {
            return Ok(());
        }
        self.cache.forget(|key| key.row == row);
        self.active.forget(row);
        self.unmarked.lock().retain(|key| key.row != row);
        Ok(())
    }
}

/// Whether a table is empty and its block is up to date.
fn holds_nothing(table: &Table) -> bool {
    !table.is_dirty() && table.written() == Units::NONE
}
