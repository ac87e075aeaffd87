//! The two kinds of open: the root, and a virtual disk in one of its forms.

use std::ops::Range;
use std::sync::Arc;

use arena::Sg;
use env::{Ctx, Io};
use parking_lot::Mutex;

use super::file::File;
use super::{BLOCK, Form, Tree};
use crate::{
    Attributes, BasicChange, Data, DirEntry, EntrySecurity, ExtendedAttribute, FileKey, Kind, Node, Stat,
    VfsError, VfsResult, Want,
};

/// An open root.
pub(super) struct Root {
    pub(super) tree: Arc<Tree>,
    /// The entry that was listed last.
    pub(super) listed: Mutex<Option<(u64, Form)>>,
}

/// An open virtual disk.
pub(super) struct Disk {
    pub(super) tree: Arc<Tree>,
    pub(super) file: Arc<File>,
    pub(super) form: Form,
    pub(super) id: FileKey,
}

fn refuse<T>(error: VfsError) -> Io<VfsResult<T>> {
    Io::Done(Err(error))
}

impl Node for Disk {
    fn id(&self) -> FileKey {
        self.id
    }

    fn kind(&self) -> Kind {
        Kind::File
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        Io::Done(self.tree.stat_of(self.file.number, self.form))
    }

    fn set_basic(&self, _: &Ctx, change: BasicChange) -> Io<VfsResult<()>> {
        let mut meta = self.file.meta.lock();
        meta.created = change.created.unwrap_or(meta.created);
        meta.accessed = change.accessed.unwrap_or(meta.accessed);
        meta.written = change.written.unwrap_or(meta.written);
        meta.changed = change.changed.unwrap_or_else(|| self.tree.files.now());
        if let Some(attributes) = change.attributes {
            meta.attributes = attributes & Attributes::STORED;
        }
        Io::Done(Ok(()))
    }

    fn read(&self, c: &Ctx, offset: u64, want: Want<'_>) -> Io<VfsResult<Data>> {
        let (file, c, form, length) = (Arc::clone(&self.file), *c, self.form, want.length.into());
        Io::pending(async move { file.read(&c, form, offset, length).await.map(Data::Bufs) })
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>> {
        Io::pending(Arc::clone(&self.file).write(*c, self.form, offset, src))
    }

    fn flush(&self, c: &Ctx) -> Io<VfsResult<()>> {
        Io::pending(Arc::clone(&self.file).flush(*c))
    }

    fn close(&self, _: &Ctx) -> Io<VfsResult<()>> {
        Io::pending(Arc::clone(&self.file).settle())
    }

    fn set_len(&self, _: &Ctx, len: u64) -> Io<VfsResult<()>> {
        Io::pending(Arc::clone(&self.file).set_len(self.form, len))
    }

    /// Space is taken when it is written.
    fn set_allocation(&self, c: &Ctx, len: u64) -> Io<VfsResult<()>> {
        match self.tree.stat_of(self.file.number, self.form) {
            Ok(stat) if len < stat.size => {
                self.set_len(c, len.next_multiple_of(BLOCK) + if len > 0 { self.form.footer() } else { 0 })
            }
            stat => Io::Done(stat.map(drop)),
        }
    }

    /// Every virtual disk is.
    fn set_sparse(&self, _: &Ctx, _: bool) -> Io<VfsResult<()>> {
        Io::Done(Ok(()))
    }

    fn zero(&self, c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>> {
        Io::pending(Arc::clone(&self.file).zero(*c, range))
    }

    fn allocated(&self, c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>> {
        let (file, c, form) = (Arc::clone(&self.file), *c, self.form);
        Io::pending(async move { file.allocated(&c, form, range, limit).await })
    }

    /// The caller reads and writes: a copy of a virtual disk is data like any other.
    fn copy_to(&self, _: &Ctx, _: u64, _: &Arc<dyn Node>, _: u64, _: u64) -> Io<VfsResult<u64>> {
        refuse(VfsError::Unsupported)
    }

    fn list(&self, _: &Ctx, _: bool, _: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        refuse(VfsError::NotDirectory)
    }

    fn lookup(&self, _: &Ctx, _: &str) -> Io<VfsResult<DirEntry>> {
        refuse(VfsError::NotDirectory)
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        refuse(VfsError::NotDirectory)
    }

    fn security(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(None))
    }

    fn set_security(&self, _: &Ctx, _: Vec<u8>) -> Io<VfsResult<()>> {
        refuse(VfsError::Unsupported)
    }

    fn extended_attributes(&self, _: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        Io::Done(Ok(Vec::new()))
    }

    fn set_extended_attributes(&self, _: &Ctx, _: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        refuse(VfsError::Unsupported)
    }
}

impl Node for Root {
    fn id(&self) -> FileKey {
        self.tree.root_stat().id
    }

    fn kind(&self) -> Kind {
        Kind::Directory
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        Io::Done(Ok(self.tree.root_stat()))
    }

    fn set_basic(&self, _: &Ctx, _: BasicChange) -> Io<VfsResult<()>> {
        refuse(VfsError::Unsupported)
    }

    fn read(&self, _: &Ctx, _: u64, _: Want<'_>) -> Io<VfsResult<Data>> {
        refuse(VfsError::IsDirectory)
    }

    fn write(&self, _: &Ctx, _: u64, _: Sg) -> Io<VfsResult<u32>> {
        refuse(VfsError::IsDirectory)
    }

    /// Names are durable when they have changed.
    fn flush(&self, _: &Ctx) -> Io<VfsResult<()>> {
        Io::Done(Ok(()))
    }

    fn set_len(&self, _: &Ctx, _: u64) -> Io<VfsResult<()>> {
        refuse(VfsError::IsDirectory)
    }

    fn set_allocation(&self, _: &Ctx, _: u64) -> Io<VfsResult<()>> {
        refuse(VfsError::IsDirectory)
    }

    fn set_sparse(&self, _: &Ctx, _: bool) -> Io<VfsResult<()>> {
        refuse(VfsError::IsDirectory)
    }

    fn zero(&self, _: &Ctx, _: Range<u64>) -> Io<VfsResult<()>> {
        refuse(VfsError::IsDirectory)
    }

    fn allocated(&self, _: &Ctx, _: Range<u64>, _: usize) -> Io<VfsResult<Vec<Range<u64>>>> {
        refuse(VfsError::IsDirectory)
    }

    fn copy_to(&self, _: &Ctx, _: u64, _: &Arc<dyn Node>, _: u64, _: u64) -> Io<VfsResult<u64>> {
        refuse(VfsError::IsDirectory)
    }

    fn list(&self, _: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        let mut listed = self.listed.lock();
        if restart {
            *listed = None;
        }
        Io::Done(self.tree.entries(&mut listed, limit.max(1)))
    }

    fn lookup(&self, _: &Ctx, name: &str) -> Io<VfsResult<DirEntry>> {
        Io::Done(self.tree.lookup(name))
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        Io::Done(self.tree.entries(&mut None, 1).map(|entries| entries.is_empty()))
    }

    fn security(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(None))
    }

    fn entry_security(&self, _: &Ctx, names: Vec<String>) -> Io<VfsResult<Vec<EntrySecurity>>> {
        Io::Done(Ok(names.iter().map(|_| Ok(None)).collect()))
    }

    fn set_security(&self, _: &Ctx, _: Vec<u8>) -> Io<VfsResult<()>> {
        refuse(VfsError::Unsupported)
    }

    fn extended_attributes(&self, _: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        Io::Done(Ok(Vec::new()))
    }

    fn set_extended_attributes(&self, _: &Ctx, _: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        refuse(VfsError::Unsupported)
    }
}
