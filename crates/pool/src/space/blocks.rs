//! Verifies the checksum blocks of groups whose tables are in memory: otherwise they are not read before a
//! restart, and then the other copy's may be lost.

use super::Space;
use super::flush::BadBlock;
use super::load::Block;
use super::resolve::is_silence;
use crate::DiskNumber;
use crate::events::{Finding, Found};
use crate::groups::Group;

impl Space {
    /// Compares them, and lets the next flush write damaged ones again. The caller holds no range.
    pub(crate) async fn check_blocks(&self, group: &Group) {
        if self.bad_blocks(group).await.is_empty() {
            return;
        }
        // It may have been one that a round is writing.
        let _blocks = self.no_flush().await;
        let bad = self.bad_blocks(group).await;
        let address = self.inner.address_in(group.key, 0);
        for disk in &bad {
            self.path.events.add(Finding {
                found: Found::BadTable,
                disk: *disk,
                space: self.inner.id,
                address,
            });
        }
        if !bad.is_empty() {
            self.inner.groups.dirty(group, &mut group.state.lock());
        }
    }

    /// The disks whose blocks say something else, or cannot be read; also some that are right, unless the
    /// caller keeps flushes from beginning.
    async fn bad_blocks(&self, group: &Group) -> Vec<DiskNumber> {
        let key = group.key;
        let Some(copies) = self.inner.copies(&self.path, key.row, key.column) else { return Vec::new() };
        let known = || {
            let state = group.state.lock();
            !(state.unknown | state.hearsay | self.inner.in_doubt(key))
        };
        let before = known();
        let blocks = self.read_blocks(group, &copies, before).await;
        if self.is_changed(key.row, key.column, &copies) {
            // The contents may belong to another row by now.
            return Vec::new();
        }
        let regions = before & known();
        let state = group.state.lock();
        let is_bad = |(copy, block): &&Block<'_>| match block {
            // A disk that does not answer has not lost it.
            Err(BadBlock::Disk(error)) if is_silence(error) => false,
            Err(_) => true,
            // The next flush writes changed groups anyway.
            Ok((_, table)) => {
                let units = self.inner.regions.in_group(key.group, regions & copy.current());
                !state.flags.dirty && !state.table.differ(table, &units).is_empty()
            }
        };
        blocks.iter().filter(|_| !state.flags.dead).filter(is_bad).map(|(copy, _)| copy.number).collect()
    }
}
