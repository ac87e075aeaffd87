//! Handling of found damage: reports it to the coordinator, records lost units in the metadata, and rewrites wrong
//! checksum blocks. All of this runs in the background: the caller that found the damage does not wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use arena::Class;
use disk::sized;
use parking_lot::Mutex;
use pool_seam::{DamageKind, DiskNumber, Finding, GROUP_UNITS, LOST_MAX, OwnerOp, ScrubRecord, UNIT};

use crate::SpaceError;
use crate::blocks::Units;
use crate::locks::Mode;
use crate::owner::{Inner, Space};
use crate::table::{Table, Value};
use crate::view::{GroupKey, Member};
use crate::write::Target;

/// The damage found since the space was opened.
#[derive(Default)]
pub(crate) struct Findings {
    /// Addresses of lost units, at most [`LOST_MAX`], until a scrub finds them valid.
    lost: Mutex<BTreeSet<u64>>,
    /// Wrong blocks, until a checkpoint has rewritten them.
    blocks: Mutex<BTreeSet<(GroupKey, DiskNumber)>>,
    /// Groups whose blocks the next checkpoint must write.
    to_write: Mutex<BTreeSet<GroupKey>>,
    /// Held while groups of `to_write` are prepared for the checkpoint. A caller that takes the lock and finds
    /// `to_write` empty knows that the next checkpoint writes them.
    mending: tokio::sync::Mutex<()>,
    /// Held while lost units are recorded.
    recording: tokio::sync::Mutex<()>,
}

impl Findings {
    /// The number of wrong blocks of a group that are not rewritten yet.
    pub(crate) fn blocks_of(&self, key: GroupKey) -> u64 {
        self.blocks.lock().iter().filter(|(other, _)| *other == key).count() as u64
    }

    /// The blocks of these groups were durably written.
    pub(crate) fn blocks_written(&self, groups: &BTreeSet<GroupKey>) {
        self.blocks.lock().retain(|(key, _)| !groups.contains(key));
    }
}

impl Inner {
    /// Reports damage of a unit. Units beyond the end of the space, in its last row, are ignored.
    pub(crate) fn report_damage(&self, found: DamageKind, disk: DiskNumber, target: &Target, unit: usize) {
        let view = self.view.get().value;
        let address = target.address(&view, unit);
        if address >= view.record.size {
            return;
        }
        if found == DamageKind::Lost {
            let mut lost = self.findings.lost.lock();
            if lost.len() < LOST_MAX && lost.insert(address) {
                self.to_keep.notify_one();
            }
        }
        self.report_finding(Finding { kind: found, disk, space: self.space(), address });
    }

    /// Reports units that no copy has.
    pub(crate) fn report_lost_units(&self, members: &[Member], target: &Target, units: &Units) {
        let lowest = members.iter().filter(|member| member.counts).map(|member| member.disk).min();
        for (disk, unit) in units.iter().filter_map(|unit| Some((lowest?, unit))) {
            self.report_damage(DamageKind::Lost, disk, target, unit);
        }
    }

    /// Reports that the block of a group on this copy is wrong, and queues the block to be rewritten.
    pub(crate) fn report_bad_block(&self, key: GroupKey, member: &Member, is_coded: bool) {
        if self.findings.blocks.lock().insert((key, member.disk)) {
            let column = if is_coded { member.content } else { key.set };
            self.report_damage(DamageKind::BadTable, member.disk, &Target { key, column, units: 0..1 }, 0);
            self.findings.to_write.lock().insert(key);
            self.to_keep.notify_one();
        }
    }

    /// Records lost units that the metadata does not have.
    pub(crate) async fn record_losses(&self) -> Result<(), SpaceError> {
        let _one = self.findings.recording.lock().await;
        let view = self.view.get().value;
        let loss = view.record.loss.with(&self.findings.lost.lock());
        if loss == view.record.loss { Ok(()) } else { self.commit(vec![OwnerOp::Lost(loss)]).await }
    }

    /// Called at the end of a scrub with its counts: lost units that can be read again are removed from the list.
    pub(crate) async fn settle_losses(self: &Arc<Inner>, scrub: ScrubRecord) -> Result<(), SpaceError> {
        let gone = self.not_lost_any_more().await;
        self.remove_losses(gone, Some(scrub)).await
    }

    /// Called at the end of a resync: removes the lost units that the disk has restored from the list.
    pub(crate) async fn settle_restored(self: &Arc<Inner>) -> Result<(), SpaceError> {
        let gone = self.not_lost_any_more().await;
        if gone.is_empty() { Ok(()) } else { self.remove_losses(gone, None).await }
    }

    /// Addresses on the list of lost units that can be read.
    async fn not_lost_any_more(self: &Arc<Inner>) -> BTreeSet<u64> {
        let known = {
            let found = self.findings.lost.lock();
            found.union(&self.view.get().value.record.loss.at).copied().collect::<BTreeSet<u64>>()
        };
        let mut gone = BTreeSet::new();
        for address in known {
            // The unit was written, discarded or truncated, or a disk that has it is present again.
            let is_beyond = address >= self.view.get().value.record.size;
            let dst = sized(self.arena.alloc_sg(UNIT as usize, Class::Control).await, UNIT as usize);
            if is_beyond || Space(Arc::clone(self)).read(address, dst).wait().await.0.is_ok() {
                gone.insert(address);
            }
        }
        gone
    }

    /// Removes addresses from the list of lost units, and records the end of a scrub.
    async fn remove_losses(&self, gone: BTreeSet<u64>, scrub: Option<ScrubRecord>) -> Result<(), SpaceError> {
        let _one = self.findings.recording.lock().await;
        let view = self.view.get().value;
        let loss = &view.record.loss;
        let left = loss.units.saturating_sub(gone.len() as u64);
        let counted = scrub.as_ref().map_or(left, |scrub| scrub.lost);
        let settled = loss.settled(&self.findings.lost.lock(), &gone, counted);
        let ops = (settled != *loss).then_some(OwnerOp::Lost(settled));
        let ops: Vec<_> = ops.into_iter().chain(scrub.map(OwnerOp::Scrub)).collect();
        if !ops.is_empty() {
            self.commit(ops).await?;
        }
        self.findings.lost.lock().retain(|address| !gone.contains(address));
        Ok(())
    }

    /// Prepares wrong blocks to be rewritten by the next checkpoint; returns `false` if some have to wait for room in
    /// the log.
    pub(crate) async fn repair_blocks(self: &Arc<Inner>) -> Result<bool, SpaceError> {
        let _one = self.findings.mending.lock().await;
        let groups = std::mem::take(&mut *self.findings.to_write.lock());
        for key in groups {
            self.write_blocks_anew(key).await?;
        }
        Ok(self.findings.to_write.lock().is_empty())
    }

    /// Prepares the blocks of one group to be written, by an entry that repeats a value (rule 6).
    pub(crate) async fn write_blocks_anew(self: &Arc<Inner>, key: GroupKey) -> Result<(), SpaceError> {
        let Some(cached) = self.loaded(key).await? else { return Ok(()) };
        if !self.learn_units(key, &cached).await? {
            self.findings.to_write.lock().insert(key);
            return Ok(());
        }
        let fits = |table: &Table, unit: usize| {
            let is_unknown = |value: &Value| matches!(value, Value::Unknown { .. });
            table.is_known(unit) && !table.is_open(unit) && !table.values(unit).iter().any(is_unknown)
        };
        // If there is no such unit, all units are changing, or checksums of a lost block cannot be computed.
        let unit =
            self.with_table(&cached, |table| (0..GROUP_UNITS as usize).find(|unit| fits(table, *unit)));
        let Some(unit) = unit else { return Ok(()) };
        let _lock = tokio::select! {
            biased;
            lock = self.locks.lock(key, unit..unit + 1, Mode::Exclusive) => lock,
            () = self.log().full() => {
                // The holder of the lock may wait for room in the log, and the checkpoint that makes room for this
                // call.
                self.findings.to_write.lock().insert(key);
                return Ok(());
            }
        };
        let is_repeated = self.with_table(&cached, |table| {
            let fits = fits(table, unit);
            if fits {
                table.set(unit, table.values(unit));
            }
            fits
        });
        if is_repeated {
            self.waiting_groups.add(&cached);
        }
        Ok(())
    }
}
