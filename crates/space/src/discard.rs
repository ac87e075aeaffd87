//! Discards: the units read as zeros afterwards. The disks get a discard only for a whole group that is empty
//! ([`emptying`](crate::emptying)).
//!
//! A discard is a value of the table like any other, but without a write to the disks. So absent copies are marked
//! stale (rule 10) after the value is set: the removal of a disk that begins later finds the value.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pool_seam::layout::Layout;
use pool_seam::{GROUP, OwnerOp, Regions};

use crate::SpaceError;
use crate::blocks::Units;
use crate::coded::{NewColumns, stripes};
use crate::owner::{Inner, RETRY, Space};
use crate::size::next_ready;
use crate::table::Value;
use crate::view::{layout, route};
use crate::write::{Blocked, Target};

/// Bytes of the space that are cut into runs at a time.
const PART: u64 = 64 << 20;

impl Space {
    /// Discards whole units: after success they read as zeros, durably after a flush. After an error each unit is
    /// unchanged or discarded.
    ///
    /// # Panics
    /// If the range is not whole units.
    pub fn discard(&self, address: u64, length: u64) -> env::Io<Result<(), SpaceError>> {
        let inner = Arc::clone(&self.0);
        let is_inside = inner.check_range(inner.view.get().value.record.size, address, length);
        if length == 0 || is_inside.is_err() {
            return env::Io::Done(is_inside);
        }
        let env = inner.env.clone();
        env::Io::pending(env.run(async move { inner.discard(address..address + length).await }))
    }
}

impl Inner {
    pub(crate) async fn discard(self: &Arc<Inner>, range: Range<u64>) -> Result<(), SpaceError> {
        let mut at = range.start;
        while at < range.end {
            let end = (at / PART + 1).saturating_mul(PART).min(range.end);
            let _mapped = self.window.wait_outside(at..end).await;
            let view = self.view.get().value;
            let map = layout(&view);
            let limit = map.end_of_layout(at).min(range.end);
            let next = next_ready(&view, &map.at(at), at, limit);
            // The next data may be far beyond the addresses that the guard protects.
            if next < end {
                self.discard_rows(&map.at(at), at..end.min(limit)).await?;
                at = end.min(limit);
            } else {
                at = next;
            }
        }
        self.lease.hold().wait().await.map_err(SpaceError::from)
    }

    /// Discards addresses in the rows of a layout.
    pub(crate) async fn discard_rows(
        self: &Arc<Inner>,
        layout: &Layout,
        range: Range<u64>,
    ) -> Result<(), SpaceError> {
        let mut at = range.start;
        while at < range.end {
            let view = self.view.get().value;
            at = next_ready(&view, layout, at, range.end);
            let end = (at / PART + 1).saturating_mul(PART).min(range.end);
            let mut coded = Vec::new();
            for run in layout.runs(at, end - at, GROUP) {
                if view.record.rows.get(&run.at.row).is_none_or(|row| row.is_new) {
                    continue;
                }
                let target = Target::new(&view, run.at, run.length);
                if self.is_coded(&view, run.at.row) {
                    coded.push((target, None));
                } else {
                    self.discard_run(&target).await?;
                }
            }
            for new in stripes(coded) {
                let target = new.target();
                if new.columns.len() as u64 == layout.columns() {
                    self.discard_run(&target).await?;
                } else if self.has_written(&new).await? {
                    let permit = self.write_permit(&target).await?;
                    self.write_stripes(&new, permit).await?;
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Whether columns of stripes have written units to discard.
    async fn has_written(self: &Arc<Inner>, new: &NewColumns) -> Result<bool, SpaceError> {
        let Some(cached) = self.loaded(new.key).await? else { return Ok(false) };
        Ok(self.with_table(&cached, |table| {
            let has = |unit: usize, column: u8| table.value(column.into(), unit) != Value::Unwritten;
            let of = |unit| table.is_open(unit) || new.columns.iter().any(|(column, _)| has(unit, *column));
            new.units.clone().any(of)
        }))
    }

    async fn discard_run(self: &Arc<Inner>, target: &Target) -> Result<(), SpaceError> {
        let _permit = self.write_permit(target).await?;
        self.lease.hold().wait().await?;
        let cached = loop {
            let view = self.view.get().value;
            let Some(at) = route(&view, target.key).filter(|at| !at.is_new) else { return Ok(()) };
            match self.table(target.key, &at) {
                Ok(cached) => break cached,
                Err(Blocked::Table(load)) => drop(load.await?),
                Err(Blocked::Unavailable(error)) => return Err(error),
                Err(_) => {}
            }
        };
        // The stripe's units in the log are put in place first: while the discard waits for a record, a checkpoint
        // could not place them.
        self.place(target, &cached).await?;
        let changes = self.with_table(&cached, |table| {
            let is_to_change = |unit: &usize| {
                table.is_open(*unit) || table.values(*unit).iter().any(|value| *value != Value::Unwritten)
            };
            let units: Vec<usize> = target.units.clone().filter(is_to_change).collect();
            for unit in &units {
                let nothing = table.values(*unit).iter().map(|_| Value::Unwritten).collect();
                table.set(*unit, nothing);
            }
            if !units.is_empty() && table.written() == Units::NONE {
                self.has_emptied.store(true, Ordering::Relaxed);
            }
            !units.is_empty()
        });
        if !changes {
            return Ok(());
        }
        self.waiting_groups.add(&cached);
        self.all_know(target).await
    }

    /// Rule 10 for a change that is already in the table: marks the changed regions of absent copies stale.
    async fn all_know(&self, target: &Target) -> Result<(), SpaceError> {
        loop {
            let snapshot = self.view.get();
            let Some(at) = route(&snapshot.value, target.key) else { return Ok(()) };
            let counting = at.members.iter().filter(|member| member.counts);
            let (present, absent): (Vec<_>, Vec<_>) =
                counting.partition(|member| member.membership.is_some());
            for member in &present {
                // A disk whose removal is in progress is soon removed or present again.
                if self.port(member).await?.is_none_or(|port| port.is_leaving()) {
                    self.env.sleep(RETRY).await;
                }
            }
            let is_leaving = present.iter().any(|member| {
                let port = member.membership.and_then(|of| self.ports.get(member.disk, of));
                port.is_none_or(|port| port.is_leaving())
            });
            if is_leaving || !self.view.is_current(&snapshot) {
                continue;
            }
            let regions = Regions::new(snapshot.value.slab_bytes).of_group(target.key.group);
            let stale = absent.iter().map(|member| {
                let (row, index, generation) = (target.key.row, member.index, member.generation);
                OwnerOp::MarkStale { row, index, generation, regions, membership: None }
            });
            let stale: Vec<_> = stale.collect();
            if stale.is_empty() {
                return Ok(());
            }
            self.commit_if_fits(stale).await?;
        }
    }
}
