//! Whether anything is in a part of a space.

use super::{Space, SpaceError};
use crate::groups::GroupKey;
use crate::{GROUP, RowNumber};

impl Space {
    /// Whether nothing was written to a range, or all of it has been discarded. Of a parity space it is not
    /// looked at more closely than by rows.
    ///
    /// # Errors
    /// [`SpaceError::Unavailable`]: the disks with the answer are absent.
    pub async fn is_unwritten(&self, address: u64, length: u64) -> Result<bool, SpaceError> {
        let (id, layout) = (self.inner.id, self.inner.layout);
        let (row_bytes, end) = (layout.row_bytes(), address + length);
        let (rows, parity): (Vec<RowNumber>, bool) = self.path.read(|s| {
            let parity = |r: &crate::SpaceRecord| r.resiliency.is_parity();
            let rows =
                s.rows.range((id, RowNumber((address / row_bytes) as u32))..=(id, RowNumber(u32::MAX)));
            (rows.map(|((_, row), _)| *row).collect(), s.spaces.get(&id).is_some_and(parity))
        });
        for row in rows {
            let first = u64::from(row.0) * row_bytes;
            let (from, to) = (first.max(address), (first + row_bytes).min(end));
            if from >= to {
                break;
            }
            if parity {
                return Ok(false);
            }
            for run in layout.runs(from, to - from, GROUP) {
                let (key, units) = (GroupKey::of(run.at), run.at.units(run.length));
                let Some(group) = self.ready(key, self.inner.regions.of(&units)).await? else { continue };
                let state = group.state.lock();
                if key.within(&units).any(|u| state.table.written.has(u) || state.table.lost.has(u)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
