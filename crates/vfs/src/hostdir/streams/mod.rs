//! Named streams (MS-FSA 2.1.1.5): small ones in an extended attribute of the file, each large one in a separate file.
//!
//! **Records.** Each stream has one extended attribute `user.causeway.stream.IDENTITY` of its file or directory, so it
//! stays with the inode when any process renames the file. IDENTITY is 16 hexadecimal digits of a unique random number.
//! The value ([`record`] has the byte map) is the stream's name and, up to [`INLINE_MAX`] bytes, its data. Reading
//! Windows' `Zone.Identifier` or macOS' `AFP_AfpInfo` costs one system call more than looking it up.
//!
//! **Sidecars.** A stream that grows beyond that is moved to a file in `.causeway-streams` ([`store`]), which the record
//! names by a random identity, and stays there until it is removed. The same happens to all small streams of a file whose
//! security descriptor or attributes need the space ([`Open::make_room`]).
//!
//! **Atomicity.** Every change of a record, and every access to data in one, holds the lock of its file
//! ([`lock`]), which all trees of this process share: two shares that show one file serialise. Other processes that
//! write streams are not excluded.
//!
//! **Crashes.** A sidecar is created, filled and (if it has data) synced before the record refers to it, and unlinked
//! after the record is removed; the records of a file are removed with its inode, before its sidecars. So no record
//! loses its data, and a crash leaves only orphaned sidecars. They are removed at the next start ([`orphans`]). FLUSH and write-through of a stream sync the sidecar, its directory and the file.
//!
//! **Copies by other programs.** Programs that copy extended attributes (`cp --preserve=xattr`, `rsync -X`, `tar
//! --xattrs`) copy small streams with the file. The copied record of a large one names the sidecar of another file:
//! [`orphans`] has the rules. If there is no sidecar, opening the stream fails with [`VfsError::Damaged`]; it can be
//! listed and removed.

mod data;
mod handle;
mod node;
mod orphans;
mod record;
pub(super) mod store;

use std::any::Any;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::Tree;
use super::node::{HostNode, Open};
use crate::{
    FileKey, Kind, OpenMode, OpenRequest, Opened, Stat, StreamInfo, StreamName, VfsError, VfsResult,
};
use record::{Content, Record};

pub(super) use node::StreamNode;
#[cfg(test)]
pub(super) use orphans::KEPT;
pub(super) use store::is_store;

/// The most data that is stored in a record, in bytes. The streams that programs add to every file are smaller, and
/// ext4 has space for 4 KiB of attributes in all.
const INLINE_MAX: usize = 1024;

/// One open of a named stream.
pub(super) struct Stream {
    /// The file or directory, opened for reading.
    file: Arc<Open>,
    id: u64,
    /// The sidecar, once the data is in one. It never moves back.
    sidecar: OnceLock<HostNode>,
    /// Data was written through this open.
    wrote: AtomicBool,
}

/// The current location of a stream's data.
enum DataLocation {
    /// In the record, which is locked.
    Inline(Record, MutexGuard<'static, ()>),
    Sidecar(HostNode),
}

/// Locks a file's streams, in all trees. The lock is held during calls of the file system.
fn lock(file: FileKey) -> MutexGuard<'static, ()> {
    static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    LOCKS[(file.number() % LOCKS.len() as u64) as usize].lock()
}

impl Tree {
    /// Opens a named stream; creates its file first if needed.
    pub(super) fn open_stream(
        self: &Arc<Tree>,
        r: &OpenRequest,
        name: &StreamName,
        may_wait: bool,
    ) -> VfsResult<Opened> {
        if !self.info.named_streams {
            return Err(VfsError::Unsupported);
        }
        if r.kind == Some(Kind::Directory) {
            return Err(VfsError::NotDirectory);
        }
        if r.rights.write {
            self.may_change()?;
        }
        let mode = if r.mode == OpenMode::Open { OpenMode::Open } else { OpenMode::OpenOrCreate };
        let mut of_file = OpenRequest { mode, kind: None, stream: None, ..r.clone() };
        of_file.rights.write = false;
        let opened = self.open_file(&of_file, may_wait)?;
        let node: &dyn Any = &*opened.node;
        let file = Arc::clone(&node.downcast_ref::<HostNode>().ok_or(VfsError::Stale)?.open);
        let (name, id, created) = {
            let _lock = lock(file.shared.id);
            match record::find(&file, name)? {
                Some(_) if r.mode == OpenMode::Create => return Err(VfsError::Exists),
                Some(record) => (record.name, Ok(record.id), false),
                None if r.mode == OpenMode::Open => return Err(VfsError::NotFound),
                None if !opened.created && !r.allows_stream(file.shared.id) => return Ok(opened),
                None => {
                    self.may_change()?;
                    (name.clone(), record::create(&file, name), true)
                }
            }
        };
        if id.is_err() && opened.created {
            // The file was created for the stream: remove it. If that fails too, an empty file remains.
            let _ = self.remove(&opened.path, file.shared.id);
        }
        let (id, sidecar, wrote) = (id?, OnceLock::new(), AtomicBool::new(created));
        let stream = Stream { file, id, sidecar, wrote };
        let stat = stream.stat()?;
        let node = Arc::new(StreamNode::new(stream));
        let (path, restricted_directories) = (opened.path, opened.restricted_directories);
        Ok(Opened { node, created, path, stream: Some(name), stat, restricted_directories })
    }
}

impl Open {
    /// See [`crate::Node::streams`].
    pub(super) fn streams(&self) -> VfsResult<Vec<StreamInfo>> {
        let mut all = Vec::new();
        if self.kind == Kind::File {
            let stat = self.stat()?;
            all.push(StreamInfo { name: None, size: stat.size, allocation: stat.allocation });
        }
        if !self.shared.device.attributes {
            return Ok(all);
        }
        let _lock = lock(self.shared.id);
        for record in record::all(self)? {
            let (size, allocation) = match record.content {
                Content::Inline(data) => record::sizes(&data),
                Content::Sidecar(sidecar) => store::sizes(self, sidecar),
            };
            all.push(StreamInfo { name: Some(record.name), size, allocation });
        }
        Ok(all)
    }

    /// See [`crate::Node::remove_stream`].
    pub(super) fn remove_stream(&self, name: &StreamName) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        let _lock = lock(self.shared.id);
        let record = record::find(self, name)?.ok_or(VfsError::NotFound)?;
        self.drop_stream(&record)
    }

    /// Removes a stream; its file's streams are locked.
    fn drop_stream(&self, record: &Record) -> VfsResult<()> {
        record::remove(self, record.id)?;
        if let Content::Sidecar(sidecar) = record.content {
            store::unlink(self.shared.id, sidecar);
        }
        Ok(())
    }

    /// See [`crate::Node::rename_stream`].
    pub(super) fn rename_stream(
        &self,
        from: &StreamName,
        to: Option<&StreamName>,
        replace: bool,
    ) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        let _lock = lock(self.shared.id);
        let record = record::find(self, from)?.ok_or(VfsError::NotFound)?;
        let Some(to) = to else { return self.move_to_unnamed(&record, replace) };
        let other = record::find(self, to)?.filter(|other| other.id != record.id);
        if let Some(other) = &other {
            check_replaceable_at(self.size(other), replace)?;
            // A crash between the two steps loses an empty stream, never one with data.
            self.drop_stream(other)?;
        }
        record::set(self, &Record { name: to.clone(), ..record })
    }

    /// Moves the data of a stream to the unnamed stream. A crash may leave the data in both, or in part in the unnamed
    /// one.
    fn move_to_unnamed(&self, record: &Record, replace: bool) -> VfsResult<()> {
        if self.kind == Kind::Directory {
            return Err(VfsError::InvalidArgument);
        }
        check_replaceable_at(self.stat()?.size, replace)?;
        let file = data::writable(self)?;
        match &record.content {
            Content::Inline(bytes) => data::fill(&file, bytes)?,
            Content::Sidecar(_) => data::copy(&store::open(self, record)?.open.fd, &file)?,
        }
        rustix::fs::fsync(&file)?;
        // The stream of a copied file has another sidecar since it was opened.
        match record::read(self, record.id)? {
            Some(record) => self.drop_stream(&record),
            None => Ok(()),
        }
    }

    /// Moves all small streams to sidecars, to free space for other attributes. Returns whether there were any.
    pub(super) fn make_room(&self) -> VfsResult<bool> {
        let _lock = lock(self.shared.id);
        store::promote_all(self)
    }

    fn size(&self, record: &Record) -> u64 {
        match &record.content {
            Content::Inline(data) => data.len() as u64,
            Content::Sidecar(sidecar) => store::sizes(self, *sidecar).0,
        }
    }
}

impl Stream {
    /// Finds the location of the data.
    ///
    /// # Errors
    /// `Stale` when the stream was removed, `Damaged` when its sidecar is missing.
    fn location(&self) -> VfsResult<DataLocation> {
        if let Some(node) = self.sidecar.get() {
            return Ok(DataLocation::Sidecar(node.clone_handle()));
        }
        let lock = lock(self.file.shared.id);
        let record = record::read(&self.file, self.id)?.ok_or(VfsError::Stale)?;
        match record.content {
            Content::Inline(_) => Ok(DataLocation::Inline(record, lock)),
            Content::Sidecar(_) => Ok(DataLocation::Sidecar(self.moved(store::open(&self.file, &record)?))),
        }
    }

    /// Records that the data is in a sidecar from now on.
    fn moved(&self, node: HostNode) -> HostNode {
        self.sidecar.get_or_init(|| node).clone_handle()
    }

    fn stat(&self) -> VfsResult<Stat> {
        let stat = self.file.stat()?;
        let (size, allocation, written) = match self.location()? {
            DataLocation::Inline(record, _) => {
                let Content::Inline(data) = &record.content else { return Err(VfsError::Stale) };
                let (size, allocation) = record::sizes(data);
                (size, allocation, None)
            }
            DataLocation::Sidecar(node) => {
                let data = node.open.stat()?;
                // The file's own time is updated at close.
                let written = self.wrote.load(Ordering::Relaxed).then_some(data.written);
                (data.size, data.allocation, written)
            }
        };
        let written = written.map_or(stat.written, |w| w.max(stat.written));
        Ok(Stat { kind: Kind::File, size, allocation, written, ..stat })
    }
}

/// Whether a stream of `size` bytes may be replaced by a renamed one (MS-FSA 2.1.5.15.12.1).
fn check_replaceable_at(size: u64, replace: bool) -> VfsResult<()> {
    match (replace, size) {
        (false, _) => Err(VfsError::Exists),
        (true, 0) => Ok(()),
        (true, _) => Err(VfsError::InvalidArgument),
    }
}
