//! The file-system interface below a share, and its backends.
//!
//! **What it is.** [`Vfs`] is one tree of files with Windows' semantics of names and attributes; a [`Node`] is one
//! open of a file or directory in it. Backends: `hostdir` (a directory of any mounted file system), `spaces`
//! (virtual disks of a pool), `ram`, and `null` (data completes at once, for measuring everything above it).
//!
//! **What it is not.** It is independent of SMB: share modes, delete-on-close, byte-range locks, leases, search
//! patterns and access checks belong to the server. Of pools it uses only the virtual disks, through a trait
//! ([`VirtualDisks`]).
//!
//! **Lifetime of values.** [`Vfs::open`] returns an `Arc<dyn Node>`; dropping the last clone closes it. The caller
//! tracks paths: the server keeps the name of each open file, and passes path and identity to [`Vfs::remove`] and
//! [`Vfs::rename`], which fail with [`VfsError::Stale`] when the name is another file's now.
//!
//! **I/O model.** Every call returns [`Io`]: complete at once if the call cannot block, pending otherwise. No call
//! blocks its thread on a disk. Write payload is shared ([`Sg`]), read payload is returned by value.
//!
//! **Errors.** [`VfsError`], which the server maps to NTSTATUS in one place.

mod blocking_pool;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod creation;
mod error;
mod fold;
mod hostdir;
mod identity;
mod path;
mod ram;
mod short;
mod snapshot;
mod spaces;
mod stream;
mod types;
mod watch;

pub use arena::Data;
pub use creation::{CreateCheck, Parent};
pub use error::VfsError;
pub use hostdir::{HostDir, HostDirOptions};
pub use identity::{FileKey, StreamKey, serial};
pub use path::{PathError, VfsPath, posix_name};
pub use ram::{LEND_MIN, RamFs, RamOptions};
pub use short::{is_short, short_name};
pub use snapshot::SnapshotTime;
pub use spaces::{BLOCK, OpenDisk, SpaceFiles, Spaces, SpacesOptions, VirtualDisk, VirtualDisks};
pub use stream::{StreamName, StreamPart};
pub use types::{
    Attributes, BasicChange, CREATION_ID_MAX, DirEntry, ExtendedAttribute, Kind, OpenMode, OpenRequest,
    Opened, Posix, ReadOptions, ReparseKind, ReparsePoint, Rights, Space, Stat, StreamInfo, Timestamp,
    VolumeInfo,
};
pub use watch::{ReportChange, TreeChange, WatchGuard};

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use arena::{PipedPayload, Sg};
use env::{Ctx, Io};

/// The result of a file-system call.
pub type VfsResult<T> = Result<T, VfsError>;

/// One tree of files.
pub trait Vfs: Send + Sync + 'static {
    /// Facts that do not change while it is mounted.
    fn info(&self) -> &VolumeInfo;

    /// Free and total space, in bytes.
    fn space(&self, c: &Ctx) -> Io<VfsResult<Space>>;

    /// Opens or creates. Names match without regard to case where [`VolumeInfo::case_sensitive`] is false, unless the
    /// path is exact ([`VfsPath::is_exact`]); the returned path is the stored one. Never truncates: the server does
    /// that after its share-mode check.
    ///
    /// # Errors
    /// `NotFound`: the last component or the stream is missing. `ReparsePoint`: the last component is missing in a
    /// folder that is a reparse point (only with [`OpenMode::Open`]). `PathNotFound`: an earlier component is missing.
    /// `Refused` by the [`CreateCheck`]. `AccessDenied` for an exact name that the backend cannot store beside one that
    /// differs in case only. `Unsupported` for a stream if the backend has no streams. `Exists`, `IsDirectory`,
    /// `NotDirectory`, …
    fn open(&self, c: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>>;

    /// Removes the name `path` of the file `id` (an empty directory too). Open nodes stay usable.
    ///
    /// # Errors
    /// `Stale` when the name no longer refers to the file `id`, `NotEmpty`, …
    fn remove(&self, c: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>>;

    /// Renames `from` (the file `id`) to `to`, replacing a file there if `replace`. A change of case only is a
    /// rename. If `to` is exact, a file there whose name differs in case stays.
    ///
    /// # Errors
    /// `Stale`, `Exists`, `PathNotFound`; `NotEmpty` or `IsDirectory` if `to` cannot be replaced; …
    fn rename(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>>;

    /// Gives the file `id` at `from` a second name `to`.
    ///
    /// # Errors
    /// Those of [`Vfs::rename`]; `Unsupported` if the backend has no hard links, `IsDirectory` for a directory.
    fn link(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>>;

    /// The earlier states of the tree that can be opened now, the newest first.
    fn snapshots(&self, _: &Ctx) -> Io<VfsResult<Vec<SnapshotTime>>> {
        Io::Done(Ok(Vec::new()))
    }

    /// The tree as it was at that time, read-only. Its files have other identities than those of this tree. The
    /// snapshot stays open until the returned tree and all its opens are dropped.
    ///
    /// # Errors
    /// `NotFound` when there is no snapshot of that time, …
    fn snapshot(&self, _: &Ctx, _: SnapshotTime) -> Io<VfsResult<Arc<dyn Vfs>>> {
        Io::Done(Err(VfsError::NotFound))
    }

    /// Reports changes of a directory's entries, and with `recursive` of everything below it, from the completion of
    /// this call until the guard is dropped, whether other programs or callers of this backend made them. Changes made
    /// shortly before the call may be reported too. If several watches with the same `report` cover a change, it is
    /// reported once. Returns `None` if changes by other programs are impossible or cannot be detected.
    fn watch(
        &self,
        _directory: &VfsPath,
        _recursive: bool,
        _report: &ReportChange,
    ) -> Io<Option<WatchGuard>> {
        Io::Done(None)
    }
}

/// The security descriptor of one entry of a directory: see [`Node::entry_security`].
pub type EntrySecurity = VfsResult<Option<Vec<u8>>>;

/// One open of a file or directory. Dropping it closes it. (`Any`, so that a backend recognizes its own nodes in
/// [`Node::copy_to`].)
pub trait Node: Any + Send + Sync {
    /// The identity of the file: equal for all opens of one file, also after a restart.
    fn id(&self) -> FileKey;

    /// File or directory. A named stream is a file, even if it belongs to a directory.
    fn kind(&self) -> Kind;

    /// Current size, times, attributes. For a named stream the size and the allocation are the stream's, the rest is
    /// the file's.
    fn stat(&self, c: &Ctx) -> Io<VfsResult<Stat>>;

    /// Sets the fields that are `Some`.
    fn set_basic(&self, c: &Ctx, change: BasicChange) -> Io<VfsResult<()>>;

    /// Reads up to `want.length` bytes at `offset`: fewer at the end of file, none if `offset` is at or behind it. May
    /// lend cached memory, or (when `want.file_ok`) return a range of a descriptor to send.
    fn read(&self, c: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>>;

    /// Writes all of `src` at `offset`, extending the file; returns the number of bytes written. Durable before
    /// completion when `c.flags.write_through`. The buffers may be shared: they are not changed.
    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>>;

    /// [`Node::write`] for a payload in a pipe. The default implementation reads the pipe into memory first.
    fn write_piped(&self, c: &Ctx, offset: u64, src: PipedPayload) -> Io<VfsResult<u32>> {
        match src.into_bytes() {
            Ok(bytes) => self.write(c, offset, bytes),
            Err(e) => Io::Done(Err(VfsError::Io(e.raw_os_error().unwrap_or(libc::EIO)))),
        }
    }

    /// Whether this node writes a payload from a pipe at a lower cost than from memory.
    fn prefers_pipes(&self) -> bool {
        false
    }

    /// Makes all written data durable. After a failure, data may be lost: every flush and write-through of any open of
    /// the file then fails until all its opens are closed.
    fn flush(&self, c: &Ctx) -> Io<VfsResult<()>>;

    /// Called once, after the last I/O and before the node is dropped, to report errors that dropping would hide. On a
    /// network file system it sends the data written through this node to the server first.
    ///
    /// # Errors
    /// Written data was lost.
    fn close(&self, _: &Ctx) -> Io<VfsResult<()>> {
        Io::Done(Ok(()))
    }

    /// Sets the end of file; new bytes read as zero.
    fn set_len(&self, c: &Ctx, len: u64) -> Io<VfsResult<()>>;

    /// Reserves space for the first `len` bytes without moving the end of file. A `len` that is less than the
    /// allocation and the size truncates the file, as FileAllocationInformation does.
    fn set_allocation(&self, c: &Ctx, len: u64) -> Io<VfsResult<()>>;

    /// Marks the file sparse or not (an attribute; the zeroed ranges of a sparse file are deallocated).
    fn set_sparse(&self, c: &Ctx, sparse: bool) -> Io<VfsResult<()>>;

    /// Turns compression of the file, or of new files in the directory, on or off. Existing data may stay unchanged.
    ///
    /// # Errors
    /// `Unsupported` where [`VolumeInfo::compression`] is false, or this file cannot be compressed.
    fn set_compressed(&self, _: &Ctx, _compressed: bool) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    /// Makes a range read as zero, and frees its space if the backend supports that. Does not move the end of file.
    fn zero(&self, c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>>;

    /// The ranges inside `range` that hold data, in order, at most `limit`.
    fn allocated(&self, c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>>;

    /// Copies `length` bytes from `from` of this file to `to` of `target` (another open of the same backend), inside
    /// the backend where possible; returns the number of bytes copied, fewer at the end of this file. Durable only
    /// after a flush of `target`, whatever the flags.
    ///
    /// # Errors
    /// `Unsupported` when `target` is of another kind: the caller reads and writes instead.
    fn copy_to(&self, c: &Ctx, from: u64, target: &Arc<dyn Node>, to: u64, length: u64)
    -> Io<VfsResult<u64>>;

    /// Makes `length` bytes at `to` of `target` share the blocks of the bytes at `from` of this file, all or nothing.
    /// Both offsets are multiples of the cluster. The target is extended as by a write.
    ///
    /// # Errors
    /// `Unsupported` where [`VolumeInfo::reflinks`] is false, or `target` is of another kind; `InvalidArgument` for
    /// ranges that are not aligned, overlap, or end behind this file.
    fn clone_to(
        &self,
        _: &Ctx,
        _from: u64,
        _target: &Arc<dyn Node>,
        _to: u64,
        _length: u64,
    ) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    /// The next entries of a directory, about `limit` of them, from the beginning if `restart`; none at the end. An
    /// entry that exists during the whole listing is returned once; `.` and `..` are not returned. A symbolic link of
    /// the backend is returned as its target, or not at all; if the directory's path is exact, it is returned as a
    /// link.
    fn list(&self, c: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>>;

    /// One entry of a directory by name (compared as the volume compares names), without listing the directory.
    fn lookup(&self, c: &Ctx, name: &str) -> Io<VfsResult<DirEntry>>;

    /// Whether a directory has no entries.
    fn is_empty(&self, c: &Ctx) -> Io<VfsResult<bool>>;

    /// Whether its file system can be changed now: it may have become read-only since it was mounted.
    ///
    /// # Errors
    /// `ReadOnly`.
    fn may_change(&self, _: &Ctx) -> Io<VfsResult<()>> {
        Io::Done(Ok(()))
    }

    /// All data streams of the file or directory (MS-FSCC 2.4.49): the unnamed one first, which a directory does not
    /// have, then the named ones in no order.
    fn streams(&self, c: &Ctx) -> Io<VfsResult<Vec<StreamInfo>>> {
        self.stat(c).map(|stat| {
            let s = stat?;
            let unnamed = StreamInfo { name: None, size: s.size, allocation: s.allocation };
            Ok(if s.kind == Kind::File { vec![unnamed] } else { Vec::new() })
        })
    }

    /// Removes a named stream. Calls on nodes that are open on it may fail with `Stale` from then on.
    ///
    /// # Errors
    /// `NotFound`, …
    fn remove_stream(&self, _: &Ctx, _: &StreamName) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    /// Renames the named stream `from` to `to`, or moves its data to the unnamed stream if `to` is `None`
    /// (MS-FSA 2.1.5.15.12.1). A change of case only is a rename. Nodes that are open on `from` stay usable after a
    /// rename; after a move to the unnamed stream they are open on a removed one.
    ///
    /// # Errors
    /// `NotFound`; `Exists` when `to` exists and `replace` is false; `InvalidArgument` when `to` exists and is not
    /// empty, and for the unnamed stream of a directory.
    fn rename_stream(
        &self,
        _: &Ctx,
        _from: &StreamName,
        _to: Option<&StreamName>,
        _replace: bool,
    ) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    /// The security descriptor stored with the file, self-relative (MS-DTYP 2.4.6); `None` if none was ever set or the
    /// backend cannot store any. A descriptor that cannot be read is an error.
    ///
    /// # Errors
    /// `Damaged` when there is one that cannot be decoded, …
    fn security(&self, c: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>>;

    /// [`Node::security`] of entries of a directory, in the order of `names`, which are names as listed. An entry that
    /// cannot be read has its own error.
    ///
    /// # Errors
    /// `NotDirectory`.
    fn entry_security(&self, _: &Ctx, names: Vec<String>) -> Io<VfsResult<Vec<EntrySecurity>>> {
        Io::Done(Ok(names.iter().map(|_| Err(VfsError::Unsupported)).collect()))
    }

    /// Stores a security descriptor.
    ///
    /// # Errors
    /// `AttributeTooLarge`; `Unsupported` if the backend cannot store any, …
    fn set_security(&self, c: &Ctx, descriptor: Vec<u8>) -> Io<VfsResult<()>>;

    /// The reparse point of the file or directory; `None` if it is not a reparse point.
    ///
    /// # Errors
    /// `Damaged` when there is one that cannot be decoded, …
    fn reparse_point(&self, _: &Ctx) -> Io<VfsResult<Option<ReparsePoint>>> {
        Io::Done(Ok(None))
    }

    /// Makes the file or directory a reparse point, replacing an existing one; `None` makes it an ordinary file or
    /// directory again. The caller checks that a directory is empty.
    ///
    /// # Errors
    /// `AttributeTooLarge`; `Unsupported` where [`VolumeInfo::reparse_points`] is false, …
    fn set_reparse_point(&self, _: &Ctx, _: Option<ReparsePoint>) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    /// The [`OpenRequest::creation_id`] of the call that created the file. It identifies that call after a crash,
    /// because the id is stored before the file gets its name. `None` if the call had none or it cannot be stored.
    fn creation_id(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(None))
    }

    /// All extended attributes.
    fn extended_attributes(&self, c: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>>;

    /// Sets extended attributes; an empty value removes one.
    fn set_extended_attributes(&self, c: &Ctx, set: Vec<ExtendedAttribute>) -> Io<VfsResult<()>>;
}
