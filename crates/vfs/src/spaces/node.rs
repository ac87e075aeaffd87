//! One open: of the root, or of a virtual disk in one of its forms.

use std::ops::Range;
use std::sync::Arc;

use arena::Sg;
use env::{Ctx, Io};
use parking_lot::Mutex;

use super::file::File;
use super::{BLOCK, Form, Tree, now};
use crate::{
    Attributes, BasicChange, Data, DirEntry, EntrySecurity, ExtendedAttribute, FileKey, Kind, Node,
    ReadOptions, Stat, VfsError, VfsResult,
};

pub(super) struct SpaceNode {
    pub(super) tree: Arc<Tree>,
    pub(super) id: FileKey,
    /// `None`: the root.
    pub(super) file: Option<(Arc<File>, Form)>,
    /// The entry of the root that was listed last.
    pub(super) listed: Mutex<Option<(u64, Form)>>,
}

impl SpaceNode {
    /// Runs `work` on the file; fails for the root, which has no data.
    fn data<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<File>, Form) -> F) -> Io<VfsResult<T>>
    where
        F: Future<Output = VfsResult<T>> + Send + 'static,
    {
        match &self.file {
            Some((file, form)) => Io::pending(work(Arc::clone(file), *form)),
            None => Io::Done(Err(VfsError::IsDirectory)),
        }
    }

    /// Runs `work` on the root.
    fn root<T: Send + 'static>(&self, work: impl FnOnce(&Tree) -> VfsResult<T>) -> Io<VfsResult<T>> {
        Io::Done(if self.file.is_none() { work(&self.tree) } else { Err(VfsError::NotDirectory) })
    }
}

fn unsupported<T>() -> Io<VfsResult<T>> {
    Io::Done(Err(VfsError::Unsupported))
}

impl Node for SpaceNode {
    fn id(&self) -> FileKey {
        self.id
    }

    fn kind(&self) -> Kind {
        if self.file.is_some() { Kind::File } else { Kind::Directory }
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        Io::Done(match &self.file {
            Some((file, form)) => self.tree.stat_of(file.number, *form),
            None => Ok(self.tree.root_stat()),
        })
    }

    fn set_basic(&self, _: &Ctx, change: BasicChange) -> Io<VfsResult<()>> {
        let Some((file, _)) = &self.file else { return unsupported() };
        let stat = &mut file.meta.lock().stat;
        stat.created = change.created.unwrap_or(stat.created);
        stat.accessed = change.accessed.unwrap_or(stat.accessed);
        stat.written = change.written.unwrap_or(stat.written);
        stat.changed = change.changed.unwrap_or_else(|| now(&self.tree.files.env));
        stat.attributes =
            change.attributes.map_or(stat.attributes, |a| a & Attributes::STORED | Attributes::SPARSE_FILE);
        Io::Done(Ok(()))
    }

    fn read(&self, c: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        let (c, length) = (*c, want.length.into());
        self.data(|file, form| async move { file.read(&c, form, offset, length).await.map(Data::Bufs) })
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>> {
        self.data(|file, form| file.write(*c, form, offset, src))
    }

    /// Changes of names are durable on completion.
    fn flush(&self, c: &Ctx) -> Io<VfsResult<()>> {
        if self.file.is_none() { Io::Done(Ok(())) } else { self.data(|file, _| file.flush(*c)) }
    }

    fn close(&self, _: &Ctx) -> Io<VfsResult<()>> {
        if self.file.is_none() { Io::Done(Ok(())) } else { self.data(|file, _| file.settle()) }
    }

    fn set_len(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        self.data(|file, form| file.set_len(form, len))
    }

    /// Space is allocated when it is written.
    fn set_allocation(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        self.data(|file, form| async move {
            let there = file.meta.lock().stat.size;
            let data = len.min(there).next_multiple_of(BLOCK);
            if data < there { file.set_len(form, data + form.footer()).await } else { Ok(()) }
        })
    }

    /// Every virtual disk is sparse.
    fn set_sparse(&self, _: &Ctx, _: bool) -> Io<VfsResult<()>> {
        self.data(|_, _| async { Ok(()) })
    }

    fn zero(&self, c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>> {
        let c = *c;
        self.data(|file, _| async move { file.zero(&c, range).await })
    }

    fn allocated(&self, c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>> {
        let c = *c;
        self.data(|file, form| async move { file.allocated(&c, form, range, limit).await })
    }

    /// Not supported: the caller reads and writes.
    fn copy_to(&self, _: &Ctx, _: u64, _: &Arc<dyn Node>, _: u64, _: u64) -> Io<VfsResult<u64>> {
        self.data(|_, _| async { Err(VfsError::Unsupported) })
    }

    fn list(&self, _: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        self.root(|tree| {
            let mut listed = self.listed.lock();
            *listed = listed.filter(|_| !restart);
            tree.entries(&mut listed, limit.max(1))
        })
    }

    fn lookup(&self, _: &Ctx, name: &str) -> Io<VfsResult<DirEntry>> {
        self.root(|tree| tree.lookup(name))
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        self.root(|tree| Ok(tree.entries(&mut None, 1)?.is_empty()))
    }

    /// `None`: full control for everyone, within the share's permission.
    fn security(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(None))
    }

    fn entry_security(&self, _: &Ctx, names: Vec<String>) -> Io<VfsResult<Vec<EntrySecurity>>> {
        self.root(|_| Ok(names.iter().map(|_| Ok(None)).collect()))
    }

    fn set_security(&self, _: &Ctx, _: Vec<u8>) -> Io<VfsResult<()>> {
        unsupported()
    }

    fn extended_attributes(&self, _: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        Io::Done(Ok(Vec::new()))
    }

    fn set_extended_attributes(&self, _: &Ctx, _: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        unsupported()
    }
}
