//! Verifies units again, under their lock: damaged copies are repaired from another, and counted.

use arena::IoBuf;
use disk::DiskError;
use smallvec::SmallVec;

use super::copies::Copy;
use super::resolve::is_silence;
use super::{Space, SpaceError};
use crate::UNIT;
use crate::blocks::Units;
use crate::blocks::checksums::checksum;
use crate::events::{Finding, Found};
use crate::groups::{Group, GroupKey};

/// A unit of a group and its bytes, or why no copy has them: [`SpaceError::Corrupt`], or
/// [`SpaceError::Unavailable`] when a disk did not answer.
pub(crate) type Looked = Vec<(usize, Result<IoBuf, SpaceError>)>;

impl Space {
    /// Reads units on every current copy, and makes all of them match the table. Unwritten units are skipped.
    /// Units of which no copy can say whether they were written are lost.
    ///
    /// The caller has their lock, and the group is ready there.
    ///
    /// # Errors
    /// When a disk that fails the repair cannot be handled; a lost unit is no error.
    pub(crate) async fn heal(&self, group: &Group, units: &Units) -> Result<Looked, SpaceError> {
        let key = group.key;
        let mut looked = Looked::new();
        for unit in units.iter() {
            let want = {
                let state = group.state.lock();
                state.table.written.has(unit).then(|| state.table.sums[unit])
            };
            if let Some(want) = want {
                looked.push((unit, self.heal_unit(group, key, unit, want).await?));
            } else if group.state.lock().table.lost.has(unit) {
                self.tell_unknown(key, unit);
            }
        }
        Ok(looked)
    }

    async fn heal_unit(
        &self,
        group: &Group,
        key: GroupKey,
        unit: usize,
        want: u32,
    ) -> Result<Result<IoBuf, SpaceError>, SpaceError> {
        let number = key.units().start + unit as u32;
        let region = self.inner.regions.of(&(number..number + 1));
        let corrupt = || SpaceError::Corrupt {
            space: self.inner.id,
            address: self.inner.address_in(key, unit),
            length: UNIT,
        };
        let (mut copies, mut good, mut bad): (_, _, Vec<(usize, Found)>);
        let silent = loop {
            let Some(now) = self.inner.copies(&self.path, key.row, key.column) else {
                return Ok(Err(corrupt()));
            };
            (copies, good, bad) = (now, None, Vec::new());
            let mut silent = SmallVec::new();
            for (index, copy) in copies.iter().enumerate().filter(|(_, c)| c.is_current(region)) {
                match self.try_read_units(copy, number, 1).await {
                    Ok(bytes) if self.sum(key, number, &bytes) == want => good = good.or(Some(bytes)),
                    Ok(_) => bad.push((index, Found::Healed)),
                    Err(error) => {
                        if error.as_ref().is_none_or(is_silence) {
                            silent.push(copy.number);
                        }
                        bad.push((index, Found::Unreadable));
                    }
                }
            }
            let newer = || self.inner.has_come(&self.path, key.row, key.column, &copies, region);
            if good.is_some() || silent.is_empty() || !newer() {
                break silent;
            }
        };
        let bad: Vec<(&Copy, Found)> =
            bad.into_iter().map(|(index, found)| (&copies[index], found)).collect();
        let finding = |disk, found| {
            let address = self.inner.address_in(key, unit);
            self.path.events.add(Finding { found, disk, space: self.inner.id, address });
        };
        let Some(good) = good else {
            if !silent.is_empty() {
                return Ok(Err(SpaceError::Unavailable {
                    space: self.inner.id,
                    row: key.row,
                    disks: silent,
                }));
            }
            if let Some((lowest, _)) = bad.first() {
                finding(lowest.number, Found::Lost);
                self.set_lost(group, unit, true);
            }
            return Ok(Err(corrupt()));
        };
        self.set_lost(group, unit, false);
        let good = IoBuf::from(good);
        for (copy, found) in bad {
            finding(copy.number, found);
            self.replace(group, copy, number, region, good.clone()).await?;
        }
        Ok(Ok(good))
    }

    /// A unit is lost because every copy's block is damaged: reported for the lowest copy.
    fn tell_unknown(&self, key: GroupKey, unit: usize) {
        let number = key.units().start + unit as u32;
        let region = self.inner.regions.of(&(number..number + 1));
        let copies = self.inner.copies(&self.path, key.row, key.column);
        let lowest = copies.iter().flatten().find(|c| c.is_current(region)).map(|c| c.number);
        let (space, address) = (self.inner.id, self.inner.address_in(key, unit));
        // A row may be longer than the space.
        if let Some(disk) = lowest.filter(|_| address < self.inner.size()) {
            self.path.events.add(Finding { found: Found::Lost, disk, space, address });
        }
    }

    /// Whether no copy has a unit. This is remembered: its place may contain anything, and a later resolution
    /// of the group must not accept that as the unit.
    fn set_lost(&self, group: &Group, unit: usize, lost: bool) {
        let mut state = group.state.lock();
        if state.table.lost.has(unit) != lost {
            state.table.lost.set(unit, lost);
            self.inner.groups.dirty(group, &mut state);
        }
    }

    /// Writes a unit to a copy that is not what it should be. It is durable after the next flush.
    pub(super) async fn replace(
        &self,
        group: &Group,
        copy: &Copy,
        number: u32,
        region: u64,
        bytes: IoBuf,
    ) -> Result<(), SpaceError> {
        let Some(disk) = &copy.disk else { return Ok(()) };
        let src = [bytes].into_iter().collect();
        if let Err(error) = disk.write(copy.data_at(disk, number), src).await {
            // It has other copies, so it is no longer needed here, or its owner gets the error at its next
            // write.
            match self.fail_copy(group.key.row, copy, region, &error).await {
                Err(SpaceError::Disk { .. }) | Ok(()) => {}
                Err(other) => return Err(other),
            }
        }
        self.inner.groups.dirty(group, &mut group.state.lock());
        Ok(())
    }

    /// Units of a copy from `first` on; `None` when they cannot be read.
    pub(crate) async fn read_units(&self, copy: &Copy, first: u32, units: usize) -> Option<Vec<u8>> {
        self.try_read_units(copy, first, units).await.ok()
    }

    /// The same; the disk's error when it is present.
    pub(super) async fn try_read_units(
        &self,
        copy: &Copy,
        first: u32,
        units: usize,
    ) -> Result<Vec<u8>, Option<DiskError>> {
        let disk = copy.disk.as_ref().ok_or(None)?;
        let at = copy.data_at(disk, first);
        disk.read_vec(&self.path.io, at, units * UNIT as usize).await.map_err(Some)
    }

    /// The checksum of a unit of a column.
    pub(crate) fn sum(&self, key: GroupKey, number: u32, bytes: &[u8]) -> u32 {
        checksum(self.inner.id, key.row, key.column, number, [bytes])
    }
}
