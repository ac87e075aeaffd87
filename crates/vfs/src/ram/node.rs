//! One open file or directory in memory.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use arena::{Arena, CHUNK_MAX, Class, Sg};
use env::{Ctx, Io};
use parking_lot::Mutex;

use super::Tree;
use super::inode::{Child, Content, Inode, State};
use crate::fold::fold;
use crate::{
    BasicChange, Data, DirEntry, EntrySecurity, ExtendedAttribute, FileKey, Kind, Node, ReadOptions,
    ReparsePoint, Stat, StreamInfo, StreamName, VfsError, VfsResult,
};

/// The shortest read that lends the file's own memory, in bytes; shorter ones are copied, which is cheaper than
/// copying a block when it is written while it is lent.
pub const LEND_MIN: usize = 16 << 10;

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;

/// How much [`Node::copy_to`] moves at a time, in bytes.
const COPY: u64 = 1 << 20;

pub(super) struct RamNode {
    tree: Arc<Tree>,
    /// The inode with its data: the file's, or a named stream's.
    inode: Arc<Inode>,
    /// The file that a named stream belongs to.
    owner: Option<Arc<Inode>>,
    /// The folded name of the entry listed last.
    listed: Mutex<Option<String>>,
}

impl RamNode {
    pub(super) fn new(tree: Arc<Tree>, inode: Arc<Inode>) -> RamNode {
        RamNode { tree, inode, owner: None, listed: Mutex::new(None) }
    }

    /// The node of a named stream of `owner`.
    pub(super) fn of_stream(tree: Arc<Tree>, owner: Arc<Inode>, stream: Arc<Inode>) -> RamNode {
        RamNode { tree, inode: stream, owner: Some(owner), listed: Mutex::new(None) }
    }

    /// The file, which has all metadata.
    fn file(&self) -> &Arc<Inode> {
        self.owner.as_ref().unwrap_or(&self.inode)
    }

    pub(super) fn metadata(&self) -> Stat {
        let (file, data) = (self.file().stat(), self.inode.stat());
        Stat { kind: self.inode.kind, size: data.size, allocation: data.allocation, ..file }
    }

    /// # Errors
    /// `IsDirectory` or `NotDirectory`.
    fn must_be(&self, kind: Kind) -> VfsResult<()> {
        match (kind, self.inode.kind) {
            (Kind::File, Kind::Directory) => Err(VfsError::IsDirectory),
            (Kind::Directory, Kind::File) => Err(VfsError::NotDirectory),
            _ => Ok(()),
        }
    }

    /// Changes the data of a file, and its times if that succeeds.
    fn change<T>(&self, work: impl FnOnce(&mut State) -> VfsResult<T>) -> VfsResult<T> {
        self.must_be(Kind::File)?;
        let mut state = self.inode.state.lock();
        let done = work(&mut state)?;
        state.data_changed(self.tree.now());
        drop(state);
        if let Some(owner) = &self.owner {
            owner.state.lock().data_changed(self.tree.now());
        }
        Ok(done)
    }

    fn read_data(&self, offset: u64, length: u64, arena: &Arena) -> VfsResult<Sg> {
        self.must_be(Kind::File)?;
        let mut state = self.inode.state.lock();
        let end = state.size.min(offset.saturating_add(length));
        if offset >= end {
            return Ok(Sg::new());
        }
        let (range, length) = (offset..end, (end - offset) as usize);
        match &mut state.content {
            Content::Blocks(blocks) if length < LEND_MIN => {
                match arena.try_alloc(length, Class::Payload) {
                    Some(mut b) => {
                        b.set_len(length);
                        blocks.copy(range, b.filled_mut());
                        Ok([b.freeze()].into_iter().collect())
                    }
                    None => Ok(blocks.lend(range)), // lends the blocks instead of waiting for memory
                }
            }
            Content::Blocks(blocks) => Ok(blocks.lend(range)),
            _ => {
                let zeros = self.tree.store.lent_zeros(arena);
                let mut out = Sg::new();
                let mut left = length;
                while left > 0 {
                    let n = left.min(zeros.len()).min(CHUNK_MAX);
                    out.push(zeros.slice(0..n));
                    left -= n;
                }
                Ok(out)
            }
        }
    }

    fn copy(&self, from: u64, target: &RamNode, to: u64, length: u64) -> VfsResult<u64> {
        self.must_be(Kind::File)?;
        target.must_be(Kind::File)?;
        let length = length.min(self.inode.state.lock().size.saturating_sub(from));
        let end = to.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or(VfsError::TooLarge)?;
        if Arc::ptr_eq(&self.inode, &target.inode) && from < end && to < from + length {
            return Err(VfsError::Unsupported); // overlapping ranges, like copy_file_range(2)
        }
        let mut done = 0;
        while done < length {
            let part = COPY.min(length - done);
            let src = {
                let mut state = self.inode.state.lock();
                let at = from + done;
                let stop = state.size.min(at + part);
                match &mut state.content {
                    _ if stop <= at => break,
                    Content::Blocks(blocks) => blocks.lend(at..stop),
                    _ => {
                        drop(state);
                        target.change(|state| state.extend(to + length))?;
                        return Ok(length);
                    }
                }
            };
            let n = arena::sg_len(&src) as u64;
            target.change(|state| state.write(to + done, &src))?;
            done += n;
        }
        Ok(done)
    }

    fn entry(child: Child) -> DirEntry {
        DirEntry { stat: child.inode.stat(), name: child.name }
    }
}

impl State {
    fn write(&mut self, offset: u64, src: &Sg) -> VfsResult<u32> {
        let length = u32::try_from(arena::sg_len(src)).map_err(|_| VfsError::TooLarge)?;
        let end = offset.checked_add(length.into()).filter(|e| *e <= SIZE_MAX).ok_or(VfsError::TooLarge)?;
        if length == 0 {
            return Ok(0);
        }
        if let Content::Blocks(blocks) = &mut self.content {
            blocks.write(offset, src)?;
        }
        self.size = self.size.max(end);
        Ok(length)
    }

    fn extend(&mut self, end: u64) -> VfsResult<()> {
        self.size = self.size.max(end);
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> VfsResult<()> {
        if len > SIZE_MAX {
            return Err(VfsError::TooLarge);
        }
        if let Content::Blocks(blocks) = &mut self.content
            && len < self.size
        {
            blocks.zero(len..self.size.next_multiple_of(super::blocks::BLOCK))?;
        }
        self.size = len;
        Ok(())
    }
}

impl Node for RamNode {
    fn id(&self) -> FileKey {
        self.inode.id
    }

    fn kind(&self) -> Kind {
        self.inode.kind
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        Io::Done(Ok(self.metadata()))
    }

    fn set_basic(&self, _: &Ctx, change: BasicChange) -> Io<VfsResult<()>> {
        self.file().set_basic(&change, self.tree.now());
        Io::Done(Ok(()))
    }

    fn read(&self, _: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        Io::Done(self.read_data(offset, want.length.into(), want.arena).map(Data::Bufs))
    }

    fn write(&self, _: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>> {
        Io::Done(self.change(|state| state.write(offset, &src)))
    }

    fn flush(&self, _: &Ctx) -> Io<VfsResult<()>> {
        Io::Done(Ok(()))
    }

    fn set_len(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        Io::Done(self.change(|state| state.set_len(len)))
    }

    fn set_allocation(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        Io::Done(self.change(|state| if len < state.size { state.set_len(len) } else { Ok(()) }))
    }

    fn set_sparse(&self, _: &Ctx, sparse: bool) -> Io<VfsResult<()>> {
        let done = self.must_be(Kind::File);
        if done.is_ok() {
            self.file().set_sparse(sparse, self.tree.now());
        }
        Io::Done(done)
    }

    fn zero(&self, _: &Ctx, range: Range<u64>) -> Io<VfsResult<()>> {
        Io::Done(self.change(|state| {
            // A range that reaches the end of file is extended to the end of its block: the rest has only zeros.
            let end = if range.end >= state.size {
                state.size.next_multiple_of(super::blocks::BLOCK)
            } else {
                range.end
            };
            match &mut state.content {
                Content::Blocks(blocks) => blocks.zero(range.start..end),
                _ => Ok(()),
            }
        }))
    }

    fn allocated(&self, _: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>> {
        let state = self.inode.state.lock();
        let range = range.start..range.end.min(state.size);
        Io::Done(match &state.content {
            Content::Directory(_) => Err(VfsError::IsDirectory),
            Content::Blocks(blocks) => Ok(blocks.allocated(range, limit)),
            Content::Nothing if range.start < range.end && limit > 0 => Ok(vec![range]),
            Content::Nothing => Ok(Vec::new()),
        })
    }

    fn copy_to(
        &self,
        _: &Ctx,
        from: u64,
        target: &Arc<dyn Node>,
        to: u64,
        length: u64,
    ) -> Io<VfsResult<u64>> {
        let target: &dyn Any = &**target;
        Io::Done(match target.downcast_ref::<RamNode>() {
            Some(target) => self.copy(from, target, to, length),
            None => Err(VfsError::Unsupported),
        })
    }

    fn list(&self, _: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        if let Err(e) = self.must_be(Kind::Directory) {
            return Io::Done(Err(e));
        }
        let mut listed = self.listed.lock();
        if restart {
            *listed = None;
        }
        let found = self.inode.children(listed.as_deref(), limit.max(1));
        if let Some((last, _)) = found.last() {
            *listed = Some(last.clone());
        }
        Io::Done(Ok(found.into_iter().map(|(_, child)| RamNode::entry(child)).collect()))
    }

    fn lookup(&self, _: &Ctx, name: &str) -> Io<VfsResult<DirEntry>> {
        let found = self.must_be(Kind::Directory).map(|()| self.inode.child(&fold(name)));
        Io::Done(found.and_then(|child| child.map(RamNode::entry).ok_or(VfsError::NotFound)))
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        Io::Done(self.must_be(Kind::Directory).map(|()| !self.inode.has_children()))
    }

    fn streams(&self, _: &Ctx) -> Io<VfsResult<Vec<StreamInfo>>> {
        Io::Done(Ok(self.file().streams()))
    }

    fn remove_stream(&self, _: &Ctx, name: &StreamName) -> Io<VfsResult<()>> {
        Io::Done(self.file().remove_stream(name, self.tree.now()))
    }

    fn rename_stream(
        &self,
        _: &Ctx,
        from: &StreamName,
        to: Option<&StreamName>,
        replace: bool,
    ) -> Io<VfsResult<()>> {
        Io::Done(self.file().rename_stream(from, to, replace, self.tree.now()))
    }

    fn security(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(self.file().security()))
    }

    fn entry_security(&self, _: &Ctx, names: Vec<String>) -> Io<VfsResult<Vec<EntrySecurity>>> {
        let of = |name: &String| {
            self.inode.child(&fold(name)).map(|c| c.inode.security()).ok_or(VfsError::NotFound)
        };
        Io::Done(self.must_be(Kind::Directory).map(|()| names.iter().map(of).collect()))
    }

    fn set_security(&self, _: &Ctx, descriptor: Vec<u8>) -> Io<VfsResult<()>> {
        Io::Done(self.file().set_security(&descriptor, self.tree.now()))
    }

    fn reparse_point(&self, _: &Ctx) -> Io<VfsResult<Option<ReparsePoint>>> {
        Io::Done(Ok(self.file().reparse_point()))
    }

    fn set_reparse_point(&self, _: &Ctx, point: Option<ReparsePoint>) -> Io<VfsResult<()>> {
        Io::Done(self.file().set_reparse_point(point, self.tree.now()))
    }

    fn creation_id(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(self.file().creation_id()))
    }

    fn extended_attributes(&self, _: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        Io::Done(Ok(self.file().extended()))
    }

    fn set_extended_attributes(&self, _: &Ctx, set: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        Io::Done(self.file().set_extended(&set, self.tree.now()))
    }
}
