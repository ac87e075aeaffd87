//! Whether an older block of a column is believed.
//!
//! Where a journal entry names a group, a power cut may have kept the newest block from a column; and for a
//! column that was absent when the journal was replayed, the valid block is unknown. Such a column is
//! *doubted*: its block is valid wherever no entry says otherwise, unless its disk lost writes. A column that
//! lost the block has units that are newer than their sums, or lost them too. So:
//!
//! 1. The block of a doubted column is believed only of units that are as it says. The sums of the others
//!    count as lost before anybody can use them, and these units are made from the other columns.
//! 2. Its units are compared with those computed from the columns without doubt, if these are enough. They
//!    had the newest block, so a unit that differs is wrong, and is replaced by the computed one.
//! 3. A unit that cannot be read keeps its sum: nothing is known against it.

use disk::DiskError;
use futures_util::future::join_all;

use super::Striped;
use super::columns::Columns;
use super::load::Bad;
use super::rebuild::{Part, pieces};
use super::table::{RowGroup, RowKey, there};
use crate::blocks::Units;
use crate::blocks::stripes::Block;
use crate::events::{Finding, Found};
use crate::space::SpaceError;
use crate::space::copies::Copy;
use crate::space::resolve::is_silence;
use crate::{REGIONS, UNIT};

/// A column, its block, and the units of which nothing proves that.
pub(super) struct Doubted<'a> {
    pub(super) copy: &'a Copy,
    block: &'a Block,
    units: Units,
}

impl Striped {
    /// The columns whose older blocks would be believed though nothing proves them.
    pub(super) fn doubted<'a>(
        &self,
        group: &RowGroup,
        blocks: &'a [(&'a Copy, Result<Block, Bad>)],
        here: u64,
        relaxed: bool,
    ) -> Vec<Doubted<'a>> {
        let state = group.state.lock();
        let good = blocks.iter().filter_map(|(copy, block)| Some((*copy, block.as_ref().ok()?)));
        let mut all: Vec<Doubted<'a>> =
            good.map(|(copy, block)| Doubted { copy, block, units: Units::NONE }).collect();
        for region in (0..REGIONS).map(|r| 1_u64 << r).filter(|r| here & r != 0) {
            let told = all.iter().filter(|d| d.copy.is_current(region)).map(|d| d.block);
            let Some(newest) = told.max_by_key(|block| block.generation) else { continue };
            let units = self.space.inner.regions.in_group(group.key.group, region);
            for d in all.iter_mut().filter(|d| d.copy.is_current(region)) {
                let (c, generation) = (d.copy.index, d.block.generation);
                let said = newest.wrote[c].max(if relaxed { 0 } else { state.wrote[c] });
                let unproven = said == 0 || relaxed && generation < said;
                if generation < newest.generation && unproven && state.known[c] & region == 0 {
                    let there = there(self.p.code, c, &newest.written).and(&units);
                    d.units = d.units.or(&there.without(&d.block.lost));
                }
            }
        }
        all.retain(|d| !d.units.is_empty());
        all
    }

    /// Of each such column the units that are not as its block says.
    pub(super) async fn unlike<'a>(
        &self,
        key: RowKey,
        doubted: &[Doubted<'a>],
    ) -> Vec<(&'a Copy, Result<Units, DiskError>)> {
        join_all(doubted.iter().map(|d| async move { (d.copy, self.differing(key, d).await) })).await
    }

    async fn differing(&self, key: RowKey, doubted: &Doubted<'_>) -> Result<Units, DiskError> {
        let (mut unlike, mut left) = (Units::NONE, pieces(&doubted.units));
        while let Some((from, to)) = left.pop() {
            match self.compared(key, doubted, from, to).await {
                Ok(found) => unlike = unlike.or(&found),
                Err(Some(error)) if is_silence(&error) => return Err(error),
                // Those of it that can be read.
                Err(_) if to - from > 1 => left.extend((from..to).map(|unit| (unit, unit + 1))),
                Err(_) => {}
            }
        }
        Ok(unlike.and(&doubted.units))
    }

    async fn compared(
        &self,
        key: RowKey,
        doubted: &Doubted<'_>,
        from: usize,
        to: usize,
    ) -> Result<Units, Option<DiskError>> {
        let mut unlike = Units::NONE;
        let number = |unit: usize| key.first() + unit as u32;
        let bytes = self.space.try_read_units(doubted.copy, number(from), to - from).await?;
        for (unit, bytes) in (from..to).zip(bytes.chunks_exact(UNIT as usize)) {
            let sum = self.sum(key.row, doubted.copy.index, number(unit), bytes);
            unlike.set(unit, sum != doubted.block.sums[unit]);
        }
        Ok(unlike)
    }

    /// Compares what doubted columns have, each as its sum says, with what the others make, and puts it
    /// right. They are doubted no more. The caller has the stripes' lock, and they are known.
    ///
    /// # Errors
    /// When the failure of a disk during the repair cannot be handled.
    pub(super) async fn compare_doubted(&self, group: &RowGroup) -> Result<(), SpaceError> {
        let row = group.key.row;
        let Some(columns) = self.columns(row) else { return Ok(()) };
        let (doubted, any) = {
            let state = group.state.lock();
            (state.doubted, state.any().and(&self.known(group, &state.known, state.mapped)))
        };
        // A slab that a column moves to may have a unit as it was.
        if doubted == 0 || self.targets(row).is_none_or(|t| t.len() != columns.len()) {
            return Ok(());
        }
        for (from, to) in pieces(&any) {
            let parts = self.parts(group, &columns, self.p.code.all(), from, to).await;
            for unit in (from..to).filter(|u| any.has(*u)) {
                let stripe: Vec<&Part> = parts.iter().map(|p| &p[unit - from]).collect();
                self.compare_stripe(group, &columns, doubted, unit, &stripe).await?;
            }
        }
        group.state.lock().doubted &= !doubted;
        Ok(())
    }

    async fn compare_stripe(
        &self,
        group: &RowGroup,
        columns: &Columns,
        doubted: u32,
        unit: usize,
        stripe: &[&Part],
    ) -> Result<(), SpaceError> {
        let number = group.key.first() + unit as u32;
        let region = self.regions(&(number..number + 1));
        let is_doubted = |c: usize| doubted & 1 << c != 0;
        let proven = |(c, part): (usize, &&Part)| part.bytes().filter(|_| !is_doubted(c)).map(|b| b.to_vec());
        let mut made: Vec<Option<Vec<u8>>> = stripe.iter().enumerate().map(proven).collect();
        if !self.p.code.recover(UNIT as usize, &mut made, doubted) {
            return Ok(());
        }
        for (c, part) in stripe.iter().enumerate().filter(|(c, _)| is_doubted(*c)) {
            let (Part::Good(has), Some(made)) = (part, made[c].take()) else { continue };
            if has[..] == made[..] {
                continue;
            }
            let (disk, space) = (columns[c].number, self.space.inner.id);
            let address = self.address(group.key.row, c, number);
            self.space.path.events.add(Finding { found: Found::Unsettled, disk, space, address });
            group.state.lock().lost[c].insert(unit);
            self.put_back(group, &columns[c], unit, region, made.into()).await?;
        }
        Ok(())
    }
}
