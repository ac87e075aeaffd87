//! Loading tables from the blocks of a group, when an I/O needs one that is not in memory.

use std::sync::Arc;

use arena::{Class, Sg};
use disk::{DiskError, sized};
use env::Io;
use futures_util::future::join_all;
use pool_seam::{GROUP_UNITS, Regions};
use smallvec::SmallVec;

use crate::SpaceError;
use crate::active::SetKey;
use crate::blocks::{ChecksumBlock, newer};
use crate::cache::{Cached, Need, Source};
use crate::log::BLOCK;
use crate::log::entry::Entry;
use crate::owner::Inner;
use crate::port::Port;
use crate::table::{Table, TableId};
use crate::view::{GroupKey, Member, Route, block_id, route};
use crate::write::{Blocked, unavailable};

/// The result of reading a block.
pub(crate) enum ReadBlock {
    Good(Box<ChecksumBlock>),
    /// The block is damaged or misplaced.
    Bad,
    /// The disk is absent, or the read failed.
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
    pub(crate) fn table(self: &Arc<Inner>, key: GroupKey, at: &Route) -> Result<Arc<Cached>, Blocked> {
        let load = || {
            let (inner, at) = (Arc::clone(self), at.clone());
            async move { Ok((inner.load(key, at).await?, Source::All)) }
        };
        self.of_row(key, at, self.cache.get(&self.env, key, Need::Whole, load))
    }

    /// Returns the table of a group, or a partial one that suffices to read a member's content: it costs one block
    /// instead of one for each copy.
    pub(crate) fn table_to_read(
        self: &Arc<Inner>,
        key: GroupKey,
        at: &Route,
        member: &Member,
    ) -> Result<Arc<Cached>, Blocked> {
        let load = || {
            let (inner, at, member) = (Arc::clone(self), at.clone(), *member);
            async move {
                match inner.load_to_read(key, &at, &member).await {
                    Some(loaded) => Ok(loaded),
                    None => Ok((inner.load(key, at).await?, Source::All)),
                }
            }
        };
        self.of_row(key, at, self.cache.get(&self.env, key, Need::Any, load))
    }

    fn of_row(
        &self,
        key: GroupKey,
        at: &Route,
        loaded: Io<Result<Arc<Cached>, SpaceError>>,
    ) -> Result<Arc<Cached>, Blocked> {
        match loaded {
            Io::Done(Ok(cached)) if cached.birth() == at.birth => Ok(cached),
            Io::Done(Ok(cached)) => {
                // A slow call has loaded the table of a row that was freed meanwhile. Or this call is the slow one,
                // and checks again.
                if cached.birth() < at.birth {
                    self.cache.forget(|other| *other == key);
                }
                Err(Blocked::Row)
            }
            Io::Done(Err(error)) => Err(Blocked::Unavailable(error)),
            Io::Pending(load) => Err(Blocked::Table(load)),
        }
    }

    /// Changes or reads a table, with the log's progress applied.
    pub(crate) fn with_table<T>(&self, cached: &Cached, read: impl FnOnce(&mut Table) -> T) -> T {
        let progress = self.progress();
        self.cache.update(cached, |table| {
            table.advance(progress.confirmed, progress.declared);
            read(table)
        })
    }

    /// Reads a table from the disks of a route, or, if these do not suffice, from those of the current one.
    pub(crate) async fn load(&self, key: GroupKey, mut at: Route) -> Result<Table, SpaceError> {
        loop {
            if let Some(table) = self.load_from(key, &at).await {
                return Ok(table);
            }
            // A disk that was removed since may not be needed any more.
            self.wait_for_view();
            let present = route(&self.view.get().value, key);
            match present.filter(|present| present.birth == at.birth && present.members != at.members) {
                Some(present) => at = present,
                None => return Err(unavailable(key.row, &at.members)),
            }
        }
    }

    /// Loads a partial table. For a mirror: the block of a copy other than the member that is read, so that the block
    /// detects a write that the member's disk lost. For a coded row: the member's block and that of another column,
    /// which has the member's minimum version. Returns `None` if all blocks are needed.
    async fn load_to_read(&self, key: GroupKey, at: &Route, member: &Member) -> Option<(Table, Source)> {
        let region = Regions::new(self.view.get().value.slab_bytes).of_group(key.group);
        let set = SetKey { row: key.row, birth: at.birth, set: key.set };
        if self.overlay.names(&key) || self.active.is_unresolved(set, region) {
            return None;
        }
        let is_here = |member: &Member| {
            let port = member.membership.and_then(|of| self.ports.get(member.disk, of));
            port.is_some_and(|port| !port.is_avoided())
        };
        let is_other = |other: &&Member| {
            other.counts && other.slab != member.slab && other.disk != member.disk && is_here(other)
        };
        // Spreads the reads over the blocks of all copies.
        let mut next = at.members.iter().filter(|other| other.index > member.index).filter(is_other);
        let other = next.next().or_else(|| at.members.iter().find(is_other))?;
        let (read, source): (SmallVec<[&Member; 2]>, _) = match at.code {
            None => ([other].into_iter().collect(), Source::Copy(other.disk)),
            Some(_) => ([member, other].into_iter().collect(), Source::Column),
        };
        let blocks = join_all(read.iter().map(|member| self.read_block(key, member))).await;
        let blocks: Vec<&ChecksumBlock> = blocks.iter().map(ReadBlock::good).collect::<Option<_>>()?;
        let latest = blocks.iter().copied().reduce(newer)?;
        let is_new = |(member, block): (&&Member, &&ChecksumBlock)| {
            let version = latest.versions.get(usize::from(member.slab - at.members[0].slab));
            version.is_some_and(|version| block.version >= *version)
        };
        if !read.iter().zip(&blocks).all(is_new) {
            return None;
        }
        let block =
            |content| read.iter().zip(&blocks).find(|(member, _)| usize::from(member.content) == content);
        let of_content: Vec<_> = (0..at.contents()).map(|content| Some(*block(content)?.1)).collect();
        let id = TableId { row: key.row, birth: at.birth, set: key.set, group: key.group };
        Some((Table::load(id, at.data, at.slabs(), &of_content)?, source))
    }

    /// Loads the newest block of each content from all complete members. A block that is older than the others
    /// require is ignored. The exception: if the log names the group, a crash may have interrupted its checkpoint,
    /// and a block may be old or torn (rules 6 and 16).
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
        bad.for_each(|member| self.report_bad_block(key, member, at.code.is_some()));
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

    /// Reads the blocks of these contents (bits) that the table lacks: their disks may have returned since it was
    /// loaded. Does not wait for a disk to be reopened.
    pub(crate) async fn learn_blocks(&self, key: GroupKey, at: &Route, cached: &Cached, of: u32) {
        let unknown = self.with_table(cached, |table| table.unknown_contents()) & of;
        let wanted = |member: &&Member| member.counts && unknown & 1 << member.content != 0;
        for member in at.members.iter().filter(wanted) {
            let port = member.membership.and_then(|of| self.ports.get(member.disk, of));
            let Some(port) = port else { continue };
            if let ReadBlock::Good(block) = self.read_block_from(&port, key, member).await {
                let (content, slab) = (member.content.into(), usize::from(member.slab - at.members[0].slab));
                self.with_table(cached, |table| table.learn_block(content, slab, &block));
            }
        }
    }

    /// The log's entries of a group that cannot be loaded now: the snapshot repeats them.
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
        match self.port(member).await {
            Ok(Some(port)) => self.read_block_from(&port, key, member).await,
            Ok(None) | Err(_) => ReadBlock::Away,
        }
    }

    async fn read_block_from(&self, port: &Arc<Port>, key: GroupKey, member: &Member) -> ReadBlock {
        let buffers = self.arena.alloc_sg(BLOCK, Class::Control).await;
        let (result, read) = port.read(member.block, sized(buffers, BLOCK)).await;
        let view = self.view.get().value;
        let id = block_id(&view, key.row, key.group, member.generation);
        match result {
            Ok(()) => ChecksumBlock::decode(&read[0], &id).map_or(ReadBlock::Bad, ReadBlock::Good),
            Err(DiskError::Medium { .. }) => ReadBlock::Bad,
            Err(_) => ReadBlock::Away,
        }
    }
}
