//! Reads all copies and checksum blocks, and rewrites damaged ones.
//!
//! The position is recorded in the metadata after some rows, with the damage found: repairs in a record are already
//! flushed. A row that was not read to its end is read again.

use std::sync::Arc;

use arena::IoBuf;
use pool_seam::{DamageKind, GROUP, GROUP_UNITS, OwnerOp, RowNumber, ScrubRecord};

use super::{CHUNK, Job};
use crate::SpaceError;
use crate::blocks::{ContentId, Units};
use crate::cache::Cached;
use crate::heal::ReadCopy;
use crate::load::ReadBlock;
use crate::locks::Mode;
use crate::log::commit::FlushSet;
use crate::owner::Inner;
use crate::table::Value;
use crate::view::{GroupKey, Member, Route, route};
use crate::write::Target;

/// The number of checkpoints at the end of a scrub. Each one writes blocks that were damaged, or that were not read
/// because their group had changes.
const TRIES: usize = 4;

/// Rows after which the position is recorded.
const RECORD_EVERY: u32 = 64;

/// Counts of found and repaired damage.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    healed: u64,
    lost: u64,
}

impl Job {
    /// Reads the copies of all rows, from one on.
    pub(super) async fn scrub(&mut self, from: RowNumber) -> Result<(), SpaceError> {
        let view = self.inner.view.get().value;
        // A new row is empty, and may have no blocks (rule 18): its former owner may have ended before it wrote them.
        let rows = view.record.rows.iter().filter(|(_, record)| !record.is_new).map(|(row, _)| *row);
        let rows: Vec<RowNumber> = rows.filter(|row| *row != RowNumber::LOG).collect();
        let groups: Vec<GroupKey> = rows.into_iter().flat_map(|row| self.inner.groups(row)).collect();
        let bytes = |key: &GroupKey| view.record.shape_at(key.row).columns_in_set() as u64 * GROUP;
        let (before, mut left) = groups.split_at(groups.partition_point(|key| key.row < from));
        let (of, skipped): (u64, u64) = (groups.iter().map(bytes).sum(), before.iter().map(bytes).sum());
        self.done.total = of - skipped;
        let (mut recorded, mut rows, mut row) = (Counts::default(), 0, None);
        // Groups whose blocks a checkpoint has to write first.
        let mut unread = Vec::new();
        // Counts of the rows before the current one.
        let mut whole = Counts::default();
        while let Some(next) = left.first().map(|key| key.row) {
            if rows >= RECORD_EVERY {
                let counts = if row == Some(next) { whole } else { self.counts() };
                self.record_scrub(next, counts, &mut recorded).await?;
                rows = 0;
            }
            let turn = self.turn().await?;
            if turn == 0 {
                let counts = if row == Some(next) { whole } else { self.counts() };
                self.record_scrub(next, counts, &mut recorded).await?;
                self.note_unfinished(left.iter().map(|key| (key.row, 0)));
                return Ok(());
            }
            let (now, rest) = left.split_at(turn.min(left.len()));
            for key in now {
                if row != Some(key.row) {
                    (row, rows, whole) = (Some(key.row), rows + 1, self.counts());
                }
                match self.inner.scrub_group(*key).await {
                    Ok((counts, has_read_blocks)) => {
                        self.done.healed += counts.healed;
                        self.done.lost += counts.lost;
                        unread.extend((!has_read_blocks).then_some(*key));
                    }
                    // The row's newest data is on absent disks.
                    Err(SpaceError::Unavailable { .. } | SpaceError::Disk { .. }) => {
                        self.note_unfinished([(key.row, 0)]);
                    }
                    Err(error) => return Err(error),
                }
                self.done.bytes += bytes(key);
            }
            left = rest;
        }
        // When the scrub ends, its repairs must be durable, and all blocks right.
        for tries in 1..=TRIES {
            let (healed, is_mended) = (self.done.healed, self.inner.repair_blocks().await?);
            if healed > 0 || !unread.is_empty() {
                self.inner.checkpoint().await?;
            }
            // Wrong blocks found here are written by the next checkpoint.
            if tries == TRIES {
                break;
            }
            for key in std::mem::take(&mut unread) {
                match self.inner.scrub_blocks(key).await? {
                    Some(bad) => self.done.healed += bad,
                    None => unread.push(key),
                }
            }
            if is_mended && unread.is_empty() && self.done.healed == healed {
                break;
            }
        }
        let end = groups.last().map_or(0, |key| key.row.0.saturating_add(1));
        let scrub = self.scrub_record(RowNumber(end), self.counts(), &mut recorded);
        self.inner.settle_losses(scrub).await
    }

    fn counts(&self) -> Counts {
        Counts { healed: self.done.healed, lost: self.done.lost }
    }

    /// Records that all rows before `next` are read, with their counts.
    async fn record_scrub(
        &self,
        next: RowNumber,
        counts: Counts,
        recorded: &mut Counts,
    ) -> Result<(), SpaceError> {
        if counts.healed > recorded.healed {
            self.inner.flush_groups(None, FlushSet::everything()).await?;
        }
        let scrub = self.scrub_record(next, counts, recorded);
        self.inner.commit(vec![OwnerOp::Scrub(scrub)]).await
    }

    fn scrub_record(&self, next: RowNumber, counts: Counts, recorded: &mut Counts) -> ScrubRecord {
        let before = std::mem::replace(recorded, counts);
        let scrub = self.inner.view.get().value.record.scrub;
        let (healed, lost) =
            (scrub.healed + counts.healed - before.healed, scrub.lost + counts.lost - before.lost);
        ScrubRecord { next, healed, lost, ..scrub }
    }
}

impl Inner {
    /// Returns the counts, and whether the blocks were read, too.
    async fn scrub_group(self: &Arc<Inner>, key: GroupKey) -> Result<(Counts, bool), SpaceError> {
        let mut counts = Counts::default();
        for first in (0..GROUP_UNITS as usize).step_by(CHUNK) {
            let target = Target { key, column: key.set, units: first..first + CHUNK };
            let _lock = self.locks.lock(key, target.units.clone(), Mode::Exclusive).await;
            let Some(cached) = self.loaded(key).await? else { return Ok((counts, true)) };
            while self.with_table(&cached, |table| table.has_open(target.units.clone())) {
                self.decide(&target, &cached).await?;
            }
            counts.healed += self.restore(&target, &cached).await?;
            let view = self.view.get().value;
            let Some(at) = route(&view, key) else { return Ok((counts, true)) };
            let found = match at.code {
                Some(_) => self.scrub_stripes(&target, &at, &cached).await?,
                None => self.scrub_copies(&target, &at, &cached).await?,
            };
            (counts.healed, counts.lost) = (counts.healed + found.healed, counts.lost + found.lost);
        }
        let blocks = self.scrub_blocks(key).await?;
        counts.healed += blocks.unwrap_or(0);
        Ok((counts, blocks.is_some()))
    }

    /// Computes checksums that no block of the group has, from the units' bytes. Returns `false` if some units are
    /// locked. Done at once, without waiting for a scrub: until all checksums are known, no checkpoint can write the
    /// blocks.
    pub(crate) async fn learn_units(
        self: &Arc<Inner>,
        key: GroupKey,
        cached: &Arc<Cached>,
    ) -> Result<bool, SpaceError> {
        let Some(at) = route(&self.view.get().value, key).filter(|at| at.code.is_some()) else {
            return Ok(true);
        };
        self.learn_blocks(key, &at, cached, u32::MAX).await;
        if self.with_table(cached, |table| table.unknown_contents()) == 0 {
            return Ok(true);
        }
        for first in (0..GROUP_UNITS as usize).step_by(CHUNK) {
            let target = Target { key, column: key.set, units: first..first + CHUNK };
            let Some(_lock) = self.locks.try_lock(key, target.units.clone(), Mode::Exclusive) else {
                return Ok(false);
            };
            if self.with_table(cached, |table| table.has_open(target.units.clone())) {
                return Ok(false);
            }
            self.scrub_stripes(&target, &at, cached).await?;
        }
        Ok(true)
    }

    async fn scrub_copies(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
    ) -> Result<Counts, SpaceError> {
        let value = |unit: usize| self.with_table(cached, |table| table.value(0, unit));
        let mut counts = Counts::default();
        if target.units.clone().all(|unit| value(unit).is_zeros()) {
            return Ok(counts);
        }
        let content = ContentId { space: self.space(), birth: at.birth, content: target.column };
        let counting: Vec<&Member> = at.members.iter().filter(|member| member.counts).collect();
        let mut copies = Vec::new();
        for member in &counting {
            match self.read_copy(target, member).await? {
                ReadCopy::Bytes(bytes) => copies.push((*member, bytes)),
                ReadCopy::Away | ReadCopy::Failed(_) | ReadCopy::Changed => {}
            }
        }
        let mut is_whole = copies.len() == counting.len();
        let is_good = |unit: usize, bytes: &IoBuf| match value(unit) {
            Value::Written(sum) => {
                content.checksum(target.first() + (unit - target.units.start) as u32, bytes) == sum
            }
            _ => false,
        };
        let good: Vec<Option<IoBuf>> = (target.units.clone().enumerate())
            .map(|(which, unit)| {
                let mut all = copies.iter().filter_map(|(_, bytes)| bytes[which].as_ref());
                all.find(|bytes| is_good(unit, bytes)).cloned()
            })
            .collect();
        let lacking = target.units.clone().zip(&good).filter(|(_, good)| good.is_none());
        let lacking: Units = lacking.map(|(unit, _)| unit).collect();
        let stale = self.stale_units(target, at, cached, &lacking).await?;
        is_whole &= stale.is_some();
        let stale = stale.unwrap_or_else(|| vec![None; good.len()]);
        let mut lost = Units::NONE;
        for (which, (unit, good)) in target.units.clone().zip(good).enumerate() {
            if value(unit).is_zeros() {
                continue;
            }
            let Some(good) = good.or_else(|| stale[which].clone()) else {
                lost.set(unit, is_whole);
                continue;
            };
            for (member, bytes) in &copies {
                let found = match &bytes[which] {
                    Some(bytes) if is_good(unit, bytes) => continue,
                    Some(_) => DamageKind::Healed,
                    None => DamageKind::Unreadable,
                };
                self.report_damage(found, member.disk, target, unit);
                self.rewrite(target, member, unit, good.clone()).await;
                counts.healed += 1;
            }
        }
        self.report_lost_units(&at.members, target, &lost);
        counts.lost = lost.iter().count() as u64;
        Ok(counts)
    }

    /// Scrubs stripes. Computes the checksums of contents whose blocks are damaged.
    async fn scrub_stripes(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
    ) -> Result<Counts, SpaceError> {
        let is_written = |content: usize, unit: usize| {
            self.with_table(cached, |table| !table.value(content, unit).is_zeros())
        };
        let all = (1_u32 << at.contents()) - 1;
        let Some(made) = self.columns(target, at, cached, all).await? else { return Ok(Counts::default()) };
        let mut counts = Counts { healed: made.rewritten, lost: 0 };
        for (content, units) in made.columns.iter().enumerate() {
            self.learn(target, at.birth, cached, content, |at| units[at].as_deref());
            let units = target.units.clone().zip(units);
            let lost = units.filter(|(unit, bytes)| bytes.is_none() && is_written(content, *unit)).count();
            if content < at.data && made.unread.is_none() {
                counts.lost += lost as u64;
            }
        }
        Ok(counts)
    }

    /// Compares the blocks of all copies with the table; returns how many are wrong. The next checkpoint rewrites
    /// them. Returns `None` if the group has changes to be written, so that its blocks were not compared.
    async fn scrub_blocks(self: &Arc<Inner>, key: GroupKey) -> Result<Option<u64>, SpaceError> {
        let mut is_dirty = false;
        {
            // No checkpoint writes the blocks meanwhile.
            let _one = self.checkpoints.lock().await;
            let Some(cached) = self.loaded(key).await? else { return Ok(Some(0)) };
            let Some(at) = route(&self.view.get().value, key) else { return Ok(Some(0)) };
            let mut read = Vec::new();
            for member in at.members.iter().filter(|member| member.counts) {
                is_dirty |= self.with_table(&cached, |table| table.is_dirty());
                if !is_dirty {
                    read.push((member, self.read_block(key, member).await));
                }
            }
            for (member, block) in read {
                let right = self.with_table(&cached, |table| {
                    (!table.is_dirty()).then(|| table.block(member.content.into()))
                });
                let is_right = match (block, right.flatten()) {
                    (ReadBlock::Bad, _) => false,
                    (ReadBlock::Good(block), Some(right)) => block.says_the_same(&right),
                    (ReadBlock::Good(_) | ReadBlock::Away, _) => true,
                };
                if !is_right {
                    self.report_bad_block(key, member, at.code.is_some());
                }
            }
        }
        let bad = self.findings.blocks_of(key);
        if bad > 0 {
            self.write_blocks_anew(key).await?;
        }
        Ok((!is_dirty || bad > 0).then_some(bad))
    }
}
