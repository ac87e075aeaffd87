//! Tables: from the blocks of a group, when an I/O needs one that is not in memory.

use std::sync::Arc;

use arena::{Class, Sg};
use disk::{DiskError, sized};
use env::Io;
use futures_util::future::join_all;
use pool_seam::{GROUP_UNITS, Regions};

use crate::SpaceError;
use crate::active::SetKey;
use crate::blocks::{ChecksumBlock, newer};
use crate::cache::Cached;
use crate::log::BLOCK;
use crate::log::entry::Entry;
use crate::owner::Inner;
use crate::table::{Table, TableId};
use crate::view::{GroupKey, Member, Route, block_id, route};
use crate::write::{NotYet, unavailable};

/// What a read of a block came to.
pub(crate) enum ReadBlock {
    Good(Box<ChecksumBlock>),
    /// It is damaged, or another's.
    Bad,
    /// The disk does not give it now.
    Away,
}

impl ReadBlock {
    fn good(&self) -> Option<&ChecksumBlock> {
        match self {
            ReadBlock::Good(block) => Some(block),
            ReadBlock::Bad | ReadBlock::Away => None,
        }
    }
}

impl Inner {
    /// The table of a group.
    pub(crate) fn table(self: &Arc<Inner>, key: GroupKey, at: &Route) -> Result<Arc<Cached>, NotYet> {
        let load = || {
            let (inner, at) = (Arc::clone(self), at.clone());
            async move { inner.load(key, at).await }
        };
        match self.cache.get(&self.env, key, load) {
            Io::Done(Ok(cached)) if cached.birth() == at.birth => Ok(cached),
            Io::Done(Ok(cached)) => {
                // A call that was slow has loaded the table of a row that was freed; or this one is, and looks again.
                if cached.birth() < at.birth {
                    self.cache.forget(|other| *other == key);
                }
                Err(NotYet::Row)
            }
            Io::Done(Err(error)) => Err(NotYet::Unavailable(error)),
            Io::Pending(load) => Err(NotYet::Table(load)),
        }
    }

    /// Changes or looks at a table that knows how far the log is.
    pub(crate) fn look<T>(&self, cached: &Cached, look: impl FnOnce(&mut Table) -> T) -> T {
        let progress = self.progress();
        self.cache.update(cached, |table| {
            table.advance(progress.confirmed, progress.said);
            look(table)
        })
    }

    /// Reads a table from the disks of a route, or from those of the present one if these have not enough of it.
    pub(crate) async fn load(&self, key: GroupKey, mut at: Route) -> Result<Table, SpaceError> {
        loop {
            if let Some(table) = self.load_from(key, &at).await {
                return Ok(table);
            }
            // A disk that has left since may not have been needed any more.
            self.wait_for_view();
            let present = route(&self.view.get().value, key);
            match present.filter(|present| present.birth == at.birth && present.members != at.members) {
                Some(present) => at = present,
                None => return Err(unavailable(key.row, &at.members)),
            }
        }
    }

    /// The newest block of each content, of all members that count. One that is older than the others say it is counts for
    /// nothing, unless a crash has cut off a checkpoint: then the log names the group, and a block may be torn, too (rules 6
    /// and 16).
    async fn load_from(&self, key: GroupKey, at: &Route) -> Option<Table> {
        let counting: Vec<&Member> = at.members.iter().filter(|member| member.counts).collect();
        let blocks = join_all(counting.iter().map(|member| self.read_block(key, member))).await;
        let read: Vec<(&Member, &ChecksumBlock)> =
            counting.iter().zip(&blocks).filter_map(|(m, block)| Some((*m, block.good()?))).collect();
        let latest = read.iter().map(|(_, block)| *block).reduce(newer);
        let is_named = self.overlay.names(&key);
        let is_old = |(member, block): &(&Member, &ChecksumBlock)| {
            let slab = usize::from(member.slab - at.members[0].slab);
            let has = latest.and_then(|latest| latest.versions.get(slab));
            !is_named && has.is_some_and(|has| block.version < *has)
        };
        let is_bad = |block: &ReadBlock| !is_named && matches!(block, ReadBlock::Bad);
        let bad = counting.iter().zip(&blocks).filter(|(_, block)| is_bad(block));
        let old = read.iter().filter(|one| is_old(one)).map(|(member, _)| *member);
        let bad = bad.map(|(member, _)| *member).chain(old);
        bad.for_each(|member| self.found_block(key, member, at.code.is_some()));
        let newest_of = |is_used: &dyn Fn(&(&Member, &ChecksumBlock)) -> bool| {
            let newest = |content: usize| {
                let of_it = read.iter().filter(|one| usize::from(one.0.content) == content && is_used(one));
                of_it.map(|(_, block)| *block).reduce(newer)
            };
            let newest: Vec<Option<&ChecksumBlock>> = (0..at.contents()).map(newest).collect();
            let have = newest.iter().enumerate().filter(|(_, block)| block.is_some());
            let have = have.fold(0, |have, (content, _)| have | 1 << content);
            at.decodes(have).then_some(newest)
        };
        let newest = newest_of(&|one| !is_old(one)).or_else(|| newest_of(&|_| true));
        let id = TableId { row: key.row, birth: at.birth, set: key.set, group: key.group };
        let table = newest.and_then(|newest| Table::load(id, at.data, at.slabs(), &newest));
        table.map(|mut table| {
            self.overlay.apply(key, &mut table);
            let region = Regions::new(self.view.get().value.slab_bytes).of_group(key.group);
            if self.active.is_unresolved(SetKey { row: key.row, birth: at.birth, set: key.set }, region) {
                table.unresolve(0..GROUP_UNITS as usize);
            }
            table
        })
    }

    /// What the log has of a group that cannot be loaded now: a snapshot has it anew.
    pub(crate) fn carried_unloaded(&self, key: GroupKey) -> Vec<(Entry, Sg)> {
        let Some(at) = route(&self.view.get().value, key) else { return Vec::new() };
        let id = TableId { row: key.row, birth: at.birth, set: key.set, group: key.group };
        let mut table = Table::unknown(id, at.data, at.contents(), at.slabs());
        self.overlay.apply(key, &mut table);
        let units = table.only_in_log();
        table.carry(&units)
    }

    /// The block of a copy.
    pub(crate) async fn read_block(&self, key: GroupKey, member: &Member) -> ReadBlock {
        let Ok(Some(port)) = self.port(member).await else { return ReadBlock::Away };
        let buffers = self.arena.alloc_sg(BLOCK, Class::Control).await;
        let (result, read) = port.read(member.block, sized(buffers, BLOCK)).await;
        let view = self.view.get().value;
        let id = block_id(&view, key.row, key.group, member.slab, member.generation);
        match result {
            Ok(()) => ChecksumBlock::decode(&read[0], &id).map_or(ReadBlock::Bad, ReadBlock::Good),
            Err(DiskError::Medium { .. }) => ReadBlock::Bad,
            Err(_) => ReadBlock::Away,
        }
    }
}
