//! Carrying a change out: journal, places, table. Under the lock of its stripes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::{IoBuf, Sg};
use disk::DiskError;
use futures_util::future::join_all;

use super::Striped;
use super::log::{Pending, Room};
use super::marks::Mark;
use super::table::{RowGroup, RowKey};
use crate::UNIT;
use crate::journal::record::{Entry, Kind};
use crate::space::SpaceError;
use crate::space::copies::{Copy, blame, in_pieces};

/// The new contents of a stripe.
pub(super) struct Stripe {
    /// Which unit of every column.
    pub(super) unit: u32,
    /// Whether it was not written before.
    pub(super) fresh: bool,
    /// Data columns that are written then.
    pub(super) written: u32,
    /// Columns whose sums are right.
    pub(super) known: u32,
    pub(super) sums: Vec<u32>,
    /// New units, by column.
    pub(super) units: Vec<(usize, IoBuf)>,
}

/// A change that has begun: its stripes are not visible before it is carried out.
pub(super) struct Intent {
    pub(super) key: RowKey,
    /// Held: its changes of the table, past and future, exist nowhere else.
    pub(super) group: Arc<RowGroup>,
    pub(super) regions: u64,
    pub(super) stripes: Vec<Stripe>,
    /// Its regions stay marked as long as it is not carried out.
    pub(super) _mark: Mark,
    pub(super) pending: Option<Pending>,
}

impl Intent {
    pub(super) fn units(&self) -> Range<u32> {
        let of = |s: Option<&Stripe>| s.map_or(self.key.first(), |s| s.unit);
        of(self.stripes.first())..of(self.stripes.last()) + 1
    }

    pub(super) fn overlaps(&self, units: &Range<u32>) -> bool {
        let mine = self.units();
        mine.start < units.end && units.start < mine.end
    }

    /// Units of payload that its record has.
    pub(super) fn payload(&self) -> usize {
        self.stripes.iter().filter(|s| !s.fresh).map(|s| s.units.len()).sum()
    }

    /// Whether nothing of it has to go to the journal any more.
    pub(super) fn is_journaled(&self) -> bool {
        self.pending.is_some() || self.stripes.iter().all(|s| s.fresh)
    }
}

impl Striped {
    /// Carries a change out; the parts that fail wait in `stuck`. The caller holds the stripes' lock; columns
    /// with absent disks have durably missed the change.
    pub(super) async fn carry(
        &self,
        columns: &[Copy],
        mut intent: Intent,
        room: Option<Room>,
    ) -> Result<(), SpaceError> {
        match self.carry_out(columns, &mut intent, room).await {
            Ok(()) => {
                self.tell(&intent);
                Ok(())
            }
            Err(error) => {
                self.p.stuck.add(intent);
                Err(error)
            }
        }
    }

    /// Carries out what could not be before. The caller has the stripes' lock.
    pub(super) async fn carry_again(&self, intent: Intent, room: Option<Room>) -> Result<(), SpaceError> {
        let (key, regions) = (intent.key, intent.regions);
        let begun = async {
            loop {
                let Some(columns) = self.targets(key.row) else { return Ok(None) };
                self.enough(key.row, &columns, regions)?;
                let here: Vec<Copy> = columns.iter().filter(|c| c.disk.is_some()).cloned().collect();
                self.space.miss(key.row, &columns, &here, regions).await?;
                if !self.is_changed(key.row, &columns) {
                    return Ok(self.targets(key.row));
                }
            }
        };
        match begun.await {
            Ok(Some(columns)) => self.carry(&columns, intent, room).await,
            // The row is gone.
            Ok(None) => Ok(()),
            Err(error) => {
                self.p.stuck.add(intent);
                Err(error)
            }
        }
    }

    async fn carry_out(
        &self,
        columns: &[Copy],
        intent: &mut Intent,
        room: Option<Room>,
    ) -> Result<(), SpaceError> {
        if !intent.is_journaled() {
            let birth = Striped::birth(columns);
            let redo = || intent.stripes.iter().filter(|s| !s.fresh);
            let entries = redo().map(|s| Entry {
                kind: Kind::Redo,
                row: intent.key.row,
                birth,
                unit: s.unit,
                written: s.written,
                known: s.known,
                payload: s.units.iter().fold(0, |all, (c, _)| all | 1 << c),
                sums: s.sums.clone(),
            });
            let payload = redo().flat_map(|s| s.units.iter().map(|(_, b)| b.clone())).collect();
            let entries = entries.collect();
            let room = room.expect("room was made for what goes to the journal");
            intent.pending = Some(self.append(entries, payload, room).await?);
        }
        let writes =
            columns.iter().flat_map(|c| writes_of(c, &intent.stripes).into_iter().map(move |w| (c, w)));
        let writes = writes.filter_map(|(c, (unit, src))| {
            let disk = c.disk.as_ref()?;
            let units = arena::sg_len(&src) as u64 / UNIT;
            self.p.counts.in_place.fetch_add(units, Ordering::Relaxed);
            Some(async move { (c, disk.write(c.data_at(disk, unit), src).await) })
        });
        let results: Vec<(&Copy, Result<(), DiskError>)> = join_all(writes).await;
        self.judge(intent, &results).await
    }

    /// Whether a change has succeeded: every current column in it has it, and there are enough of them.
    /// Handles the failed columns.
    async fn judge(
        &self,
        intent: &Intent,
        results: &[(&Copy, Result<(), DiskError>)],
    ) -> Result<(), SpaceError> {
        let (row, regions) = (intent.key.row, intent.regions);
        let mut failed: Vec<(usize, SpaceError)> = Vec::new();
        for (copy, result) in results {
            if let Err(error) = result {
                failed.push((copy.index, blame(copy.number, *error)));
                self.space.fail_copy(row, copy, regions, error).await?;
            }
        }
        let now = self.columns(row).unwrap_or_default();
        for (index, error) in failed {
            if now.iter().any(|c| c.index == index && c.current() & regions != 0) {
                return Err(error);
            }
        }
        self.enough(row, &now, regions)
    }

    /// Puts what was carried out into the table.
    fn tell(&self, intent: &Intent) {
        let group = &*intent.group;
        let mut state = group.state.lock();
        for stripe in &intent.stripes {
            let unit = (stripe.unit - intent.key.first()) as usize;
            state.set(unit, stripe.written);
            for (c, _) in &stripe.units {
                state.sums[*c][unit] = stripe.sums[*c];
                state.lost[*c].remove(unit);
            }
            match stripe.fresh {
                true => state.fresh.insert(unit),
                false => state.stale = true,
            }
        }
        if let Some(pending) = &intent.pending {
            state.name(pending.named());
        }
        self.p.groups.dirty(group, &mut state);
        drop(state);
        let data = |s: &Stripe| s.units.iter().any(|(c, _)| *c < self.p.data());
        if intent.stripes.iter().any(data) {
            self.space.inner.emptying.wrote(intent.key.row);
        }
    }
}

impl super::table::RowState {
    pub(super) fn set(&mut self, unit: usize, written: u32) {
        for (c, units) in self.written.iter_mut().enumerate() {
            units.set(unit, written & 1 << c != 0);
        }
    }
}

/// The data to write to a slab.
fn writes_of(copy: &Copy, stripes: &[Stripe]) -> Vec<(u32, Sg)> {
    let of = |stripe: &Stripe| stripe.units.iter().find(|(c, _)| *c == copy.slab_of).map(|(_, b)| b.clone());
    in_pieces(stripes.iter().filter_map(|stripe| Some((stripe.unit, of(stripe)?))))
}
