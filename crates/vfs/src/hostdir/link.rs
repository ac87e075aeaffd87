//! An open of a symbolic link of the host, not of its target: a file without data that is a reparse point
//! (MS-FSCC 2.1.2.4). The client gets the target as text; no call here accesses the target.
//!
//! A link to a directory of the share is shown as an empty directory, as on Windows. With an exact path it is shown as
//! a file, because such clients do not distinguish links to files and to directories.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use arena::Sg;
use env::{Ctx, Io};
use rustix::fs::{FileType, Mode, OFlags, Statx};

use super::device::{self, Device};
use super::{Tree, node, open, posix, resolve, stored, visible};
use crate::{
    Attributes, BasicChange, Data, DirEntry, ExtendedAttribute, FileKey, Kind, Node, OpenMode, OpenRequest,
    Opened, ReadOptions, ReparseKind, ReparsePoint, Stat, VfsError, VfsPath, VfsResult,
};

/// IO_REPARSE_TAG_SYMLINK.
const SYMLINK: u32 = 0xA000_000C;
/// SYMLINK_FLAG_RELATIVE.
const RELATIVE: u32 = 1;

pub(super) fn is_link(stat: &Statx) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Symlink
}

/// Metadata of a link.
pub(super) fn convert(stat: &Statx, kind: Kind, id: FileKey) -> Stat {
    let extra = node::ExtraMetadata::default();
    let mut link = node::convert(stat, kind, id, &extra);
    // On the host the size is the length of the target's text; on Windows a link has no data.
    (link.size, link.allocation) = (0, 0);
    link.attributes = match kind {
        Kind::File => Attributes::ARCHIVE | Attributes::REPARSE_POINT,
        Kind::Directory => Attributes::DIRECTORY | Attributes::REPARSE_POINT,
    };
    link.reparse = ReparseKind { tag: SYMLINK, head: 0 };
    link.posix = Some(posix::of(stat, &stored::StoredMetadata::default()));
    link
}

/// One open of a link.
struct LinkNode {
    tree: Arc<Tree>,
    device: Arc<Device>,
    id: FileKey,
    kind: Kind,
    /// Opened with `O_PATH`.
    fd: Arc<OwnedFd>,
    /// The client gets the target as stored on the host.
    exact: bool,
}

impl Tree {
    /// [`Tree::open`] for the link at `disk`, whose metadata is `seen`.
    pub(super) fn open_link(
        self: &Arc<Tree>,
        disk: &str,
        path: VfsPath,
        seen: &Statx,
        r: &OpenRequest,
    ) -> VfsResult<Option<Opened>> {
        if r.mode == OpenMode::Create {
            return Err(VfsError::Exists);
        }
        let exact = r.path.is_exact();
        let kind = match self.stat_at(disk) {
            Ok(target) if !exact && node::kind(&target) == Some(Kind::Directory) => Kind::Directory,
            _ => Kind::File,
        };
        match (r.kind, kind) {
            (Some(Kind::File), Kind::Directory) => return Err(VfsError::IsDirectory),
            (Some(Kind::Directory), Kind::File) => return Err(VfsError::NotDirectory),
            _ => {}
        }
        let fd = self
            .open_at(disk, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())
            .map_err(resolve::path_error)?;
        let stat = node::statx(&fd)?;
        if open::identity(&stat) != open::identity(seen) {
            return Ok(None);
        }
        let Some(restricted_directories) = self.restricted_directories(&fd, disk, false)? else {
            return Ok(None);
        };
        let device = self.device(&fd, device::number(&stat))?;
        let id = device.key(&stat);
        let node = LinkNode { tree: Arc::clone(self), device, id, kind, fd: Arc::new(fd), exact };
        let stat = convert(&stat, kind, id);
        Ok(Some(Opened {
            node: Arc::new(node),
            created: false,
            path,
            stream: None,
            stat,
            restricted_directories,
        }))
    }
}

/// The reparse point of a link to `target`. A client that is not `exact` gets a relative target with the names and
/// separators of listings.
fn point(target: &str, exact: bool) -> ReparsePoint {
    let relative = !target.starts_with('/');
    let shown = |part: &str| match part {
        "." | ".." => part.to_owned(),
        part => visible::shown_always(part).into_owned(),
    };
    let text = match relative && !exact {
        true => target.split('/').map(shown).collect::<Vec<_>>().join("\\"),
        false => target.to_owned(),
    };
    let name: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    // A path on Linux has less than 4,096 bytes.
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
    let mut data = Vec::with_capacity(12 + 2 * name.len());
    for field in [0, length, length, length] {
        data.extend_from_slice(&field.to_le_bytes());
    }
    data.extend_from_slice(&(if relative { RELATIVE } else { 0 }).to_le_bytes());
    data.extend_from_slice(&name);
    data.extend_from_slice(&name);
    ReparsePoint { tag: SYMLINK, guid: None, data }
}

impl LinkNode {
    fn must_be_directory(&self) -> VfsResult<()> {
        if self.kind == Kind::Directory { Ok(()) } else { Err(VfsError::NotDirectory) }
    }

    /// Runs `work` in the thread pool; on a memory file system at once.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&OwnedFd) -> T + Send + 'static) -> Io<T> {
        if self.device.memory {
            return Io::Done(work(&self.fd));
        }
        let fd = Arc::clone(&self.fd);
        Io::Pending(self.tree.pool.run(move || work(&fd)))
    }
}

impl Drop for LinkNode {
    /// Closing the last descriptor of a link that was removed frees it, which may block.
    fn drop(&mut self) {
        if !self.device.memory {
            let fd = std::mem::replace(&mut self.fd, Arc::clone(&self.tree.root));
            drop(self.tree.pool.run(move || drop(fd)));
        }
    }
}

impl Node for LinkNode {
    fn id(&self) -> FileKey {
        self.id
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn stat(&self, _: &Ctx) -> Io<VfsResult<Stat>> {
        let (kind, id) = (self.kind, self.id);
        self.run(move |fd| Ok(convert(&node::statx(fd)?, kind, id)))
    }

    fn reparse_point(&self, _: &Ctx) -> Io<VfsResult<Option<ReparsePoint>>> {
        let exact = self.exact;
        self.run(move |fd| {
            let target = rustix::fs::readlinkat(fd, "", Vec::new())?;
            let target = target.to_str().map_err(|_| VfsError::InvalidName)?;
            Ok(Some(point(target, exact)))
        })
    }

    fn read(&self, _: &Ctx, _: u64, _: ReadOptions<'_>) -> Io<VfsResult<Data>> {
        Io::Done(Ok(Data::Bufs(Sg::new())))
    }

    fn security(&self, _: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        Io::Done(Ok(None))
    }

    fn extended_attributes(&self, _: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>> {
        Io::Done(Ok(Vec::new()))
    }

    fn allocated(
        &self,
        _: &Ctx,
        _: std::ops::Range<u64>,
        _: usize,
    ) -> Io<VfsResult<Vec<std::ops::Range<u64>>>> {
        Io::Done(Ok(Vec::new()))
    }

    fn flush(&self, _: &Ctx) -> Io<VfsResult<()>> {
        Io::Done(Ok(()))
    }

    fn set_basic(&self, _: &Ctx, _: BasicChange) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn write(&self, _: &Ctx, _: u64, _: Sg) -> Io<VfsResult<u32>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn set_len(&self, _: &Ctx, _: u64) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn set_allocation(&self, _: &Ctx, _: u64) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn set_sparse(&self, _: &Ctx, _: bool) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn zero(&self, _: &Ctx, _: std::ops::Range<u64>) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn copy_to(&self, _: &Ctx, _: u64, _: &Arc<dyn Node>, _: u64, _: u64) -> Io<VfsResult<u64>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn set_security(&self, _: &Ctx, _: Vec<u8>) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn set_extended_attributes(&self, _: &Ctx, _: Vec<ExtendedAttribute>) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }

    fn list(&self, _: &Ctx, _: bool, _: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        Io::Done(self.must_be_directory().map(|()| Vec::new()))
    }

    fn lookup(&self, _: &Ctx, _: &str) -> Io<VfsResult<DirEntry>> {
        Io::Done(self.must_be_directory().and(Err(VfsError::NotFound)))
    }

    fn is_empty(&self, _: &Ctx) -> Io<VfsResult<bool>> {
        Io::Done(self.must_be_directory().map(|()| true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let text = |target: &str, exact: bool| {
            let data = point(target, exact).data;
            let length = usize::from(u16::from_le_bytes([data[2], data[3]]));
            let units: Vec<u16> =
                data[12..12 + length].chunks(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
            assert_eq!(data.len(), 12 + 2 * length);
            (String::from_utf16(&units).expect("it was text"), data[8])
        };
        assert_eq!(text("../a/b", false), ("..\\a\\b".into(), 1));
        assert_eq!(text("../a/b", true), ("../a/b".into(), 1));
        assert_eq!(text("a:b/./c", false), ("a\u{f022}b\\.\\c".into(), 1));
        assert_eq!(text("a:b", true), ("a:b".into(), 1));
        for exact in [false, true] {
            assert_eq!(text("/etc/a:b", exact), ("/etc/a:b".into(), 0));
        }
    }
}
