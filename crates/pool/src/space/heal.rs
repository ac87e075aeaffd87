//! Looking at units again, under their lock: what is bad on one copy is replaced from another, and counted.

use arena::IoBuf;

use super::copies::Copy;
use super::{Space, SpaceError};
use crate::UNIT;
use crate::blocks::Units;
use crate::blocks::checksums::checksum;
use crate::events::{Finding, Found};
use crate::groups::{Group, GroupKey};

/// A unit of a group and its bytes; `None` when no copy has them.
pub(crate) type Looked = Vec<(usize, Option<IoBuf>)>;

impl Space {
    /// Reads units on every copy that is current there, and makes all of them what the table says. Units that are not written are left out.
    ///
    /// The caller has their lock, and the group is ready there.
    ///
    /// # Errors
    /// When a disk that fails the repair cannot be dealt with; a unit that nobody has is no error.
    pub(crate) async fn heal(&self, group: &Group, units: &Units) -> Result<Looked, SpaceError> {
        let key = group.key;
        let mut looked = Looked::new();
        for unit in units.iter() {
            let want = {
                let state = group.state.lock();
                let known = state.table.written.has(unit) && !state.table.lost.has(unit);
                known.then(|| state.table.sums[unit])
            };
            if let Some(want) = want {
                looked.push((unit, self.heal_unit(group, key, unit, want).await?));
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
    ) -> Result<Option<IoBuf>, SpaceError> {
        let number = key.units().start + unit as u32;
        let region = self.inner.regions.of(&(number..number + 1));
        let Some(copies) = self.inner.copies(&self.path, key.row, key.column) else { return Ok(None) };
        let mut good = None;
        let mut bad: Vec<(&Copy, Found)> = Vec::new();
        for copy in copies.iter().filter(|c| c.is_current(region)) {
            match self.read_units(copy, number, 1).await {
                Some(bytes) if self.sum(key, number, &bytes) == want => good = good.or(Some(bytes)),
                Some(_) => bad.push((copy, Found::Healed)),
                None => bad.push((copy, Found::Unreadable)),
            }
        }
        let finding = |disk, found| {
            let address = self.inner.address_in(key, unit);
            self.path.events.add(Finding { found, disk, space: self.inner.id, address });
        };
        let Some(good) = good else {
            if let Some((lowest, _)) = bad.first() {
                finding(lowest.number, Found::Lost);
            }
            return Ok(None);
        };
        let good = IoBuf::from(good);
        for (copy, found) in bad {
            finding(copy.number, found);
            self.replace(group, copy, number, region, good.clone()).await?;
        }
        Ok(Some(good))
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
            // It has other copies, so it is no longer needed here, or its owner hears of it when he writes.
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
        let disk = copy.disk.as_ref()?;
        let at = copy.data_at(disk, first);
        self.path.io.read(&*disk.member.disk, at, units * UNIT as usize).await.ok()
    }

    /// The checksum of a unit of a column.
    pub(crate) fn sum(&self, key: GroupKey, number: u32, bytes: &[u8]) -> u32 {
        checksum(self.inner.id, key.row, key.column, number, [bytes])
    }
}
