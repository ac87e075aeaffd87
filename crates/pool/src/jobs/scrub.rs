//! Reading everything on every copy, and healing what differs.

use futures_util::future::join_all;

use super::{Progress, pieces};
use crate::blocks::Units;
use crate::groups::GroupKey;
use crate::space::{Copy, SpaceError, current};
use crate::{GROUP, GROUP_UNITS, RowNumber, Space, UNIT};

/// Units that are compared at a time, under their lock.
const PIECE: usize = (super::pacer::PIECE_BYTES / UNIT) as usize;

impl Space {
    /// Reads every written unit on every copy, and makes them what they should be. What was found is in [`crate::DataPath::events`]. Regions whose
    /// newest data is not here are left out.
    ///
    /// # Errors
    /// When a disk that fails cannot be dealt with.
    pub async fn scrub(&self, progress: &Progress) -> Result<(), SpaceError> {
        let id = self.id();
        let rows: Vec<RowNumber> = self.path.read(|s| {
            let rows = s.rows.range((id, RowNumber(0))..=(id, RowNumber(u32::MAX)));
            rows.map(|((_, r), _)| *r).collect()
        });
        progress.expect(rows.len() as u64 * self.inner.layout.row_bytes());
        for row in rows {
            if progress.is_stopped() {
                return Ok(());
            }
            self.scrub_row(row, progress).await?;
        }
        Ok(())
    }

    async fn scrub_row(&self, row: RowNumber, progress: &Progress) -> Result<(), SpaceError> {
        let groups = (self.path.slab_bytes / GROUP) as u32;
        let columns = 0..self.inner.columns;
        let keys: Vec<GroupKey> = columns
            .flat_map(|column| (0..groups).map(move |group| GroupKey { row, column, group }))
            .collect();
        let scrubbed = pieces::each(keys, |key| async move {
            self.scrub_group(key, progress).await?;
            progress.did(GROUP);
            Ok(())
        });
        scrubbed.await.map(drop)
    }

    async fn scrub_group(&self, key: GroupKey, progress: &Progress) -> Result<(), SpaceError> {
        if progress.is_stopped() {
            return Ok(());
        }
        if let Some(striped) = self.striped() {
            // All columns together.
            return match key.column {
                0 => striped.scrub_group(key.row, key.group, progress).await,
                _ => Ok(()),
            };
        }
        // Held, so that it stays loaded.
        let group = self.inner.groups.get(key);
        self.settle_doubts(key).await?;
        let piece = |from| Units::range(from, from + PIECE);
        for from in (0..GROUP_UNITS as usize).step_by(PIECE) {
            let written = group.state.lock().table.written;
            // What is written meanwhile is what it should be.
            if written.and(&piece(from)).is_empty() {
                continue;
            }
            let Some(_turn) = progress.piece(PIECE as u64 * UNIT).await else { return Ok(()) };
            let first = key.units().start;
            let range = first + from as u32..first + (from + PIECE) as u32;
            let _units = self.inner.locks.lock(key.row, key.column, range).await;
            let Some(copies) = self.inner.copies(&self.path, key.row, key.column) else { return Ok(()) };
            let mut look = {
                let state = group.state.lock();
                if state.dead {
                    return Ok(());
                }
                let regions = current(&copies) & !state.unknown & !self.inner.in_doubt(key);
                let known = self.inner.regions.in_group(key.group, regions);
                state.table.written.without(&state.table.lost).and(&known).and(&piece(from))
            };
            let mut bad = Units::NONE;
            for (from, to) in std::mem::take(&mut look).stretches() {
                let each = copies.iter().map(|c| self.differing(&group.state, key, c, from, to));
                bad = join_all(each).await.iter().fold(bad, |bad, b| bad.or(b));
            }
            let looked = self.heal(&group, &bad).await?;
            let lost = looked.iter().filter(|(_, bytes)| bytes.is_none()).count() as u64;
            progress.found(looked.len() as u64 - lost, lost);
        }
        Ok(())
    }

    /// Units of a copy, where it is current, that are not what the table says or cannot be read.
    async fn differing(
        &self,
        state: &parking_lot::Mutex<crate::groups::GroupState>,
        key: GroupKey,
        copy: &Copy,
        from: usize,
        to: usize,
    ) -> Units {
        let units = Units::range(from, to).and(&self.inner.regions.in_group(key.group, copy.current()));
        if units.is_empty() {
            return Units::NONE;
        }
        let first = key.units().start;
        let Some(read) = self.read_units(copy, first + from as u32, to - from).await else { return units };
        let state = state.lock();
        let mut bad = Units::NONE;
        for unit in units.iter() {
            let start = (unit - from) * UNIT as usize;
            let sum = self.sum(key, first + unit as u32, &read[start..start + UNIT as usize]);
            bad.set(unit, sum != state.table.sums[unit]);
        }
        bad
    }
}
