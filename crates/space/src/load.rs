//! Tables: from the blocks of a group, when an I/O needs one that is not in memory.

use std::sync::Arc;

use arena::{Class, Sg};
use disk::sized;
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

impl Inner {
    /// The table of a group.
    pub(crate) fn table(self: &Arc<Inner>, key: GroupKey, at: &Route) -> Result<Arc<Cached>, NotYet> {
        let slabs = at.slabs();
        let load = || {
            let (inner, at) = (Arc::clone(self), at.clone());
            async move { inner.load(key, &at, slabs).await }
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

    /// The newest block of each content, of all members that count.
    async fn load(&self, key: GroupKey, at: &Route, slabs: usize) -> Result<Table, SpaceError> {
        let counting: Vec<&Member> = at.members.iter().filter(|member| member.counts).collect();
        let blocks = join_all(counting.iter().map(|member| self.read_block(key, member))).await;
        let newest: Vec<Option<&ChecksumBlock>> = (0..at.contents())
            .map(|content| {
                let of_it = counting.iter().zip(&blocks).filter(|(m, _)| usize::from(m.content) == content);
                of_it.filter_map(|(_, block)| block.as_deref()).reduce(newer)
            })
            .collect();
        let id = TableId { row: key.row, birth: at.birth, set: key.set, group: key.group };
        let have =
            (0..).zip(&newest).filter(|(_, block)| block.is_some()).fold(0, |have, (c, _)| have | 1 << c);
        let table = at.decodes(have).then(|| Table::load(id, at.data, slabs, &newest)).flatten();
        let table = table.map(|mut table| {
            self.overlay.apply(key, &mut table);
            let region = Regions::new(self.view.get().value.slab_bytes).of_group(key.group);
            if self.active.is_unresolved(SetKey { row: key.row, birth: at.birth, set: key.set }, region) {
                table.unresolve(0..GROUP_UNITS as usize);
            }
            table
        });
        let present = route(&self.view.get().value, key).map(|route| route.members);
        table.ok_or_else(|| unavailable(key.row, &present.unwrap_or_else(|| at.members.clone())))
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

    async fn read_block(&self, key: GroupKey, member: &Member) -> Option<Box<ChecksumBlock>> {
        let port = self.port(member).await.ok()??;
        let buffers = self.arena.alloc_sg(BLOCK, Class::Control).await;
        let (result, read) = port.read(member.block, sized(buffers, BLOCK)).await;
        let view = self.view.get().value;
        let id = block_id(&view, key.row, key.group, member.slab, member.generation);
        result.ok().and_then(|()| ChecksumBlock::decode(&read[0], &id).ok())
    }
}
