//! Opening and creating.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::{self, Errno};

use super::node::ExtraMetadata;
use super::resolve::{self, ResolvedDirectory};
use super::stored::StoredMetadata;
use super::{Tree, device, link, node, stored, streams, visible};
use crate::{Attributes, Kind, OpenMode, OpenRequest, Opened, Parent, Rights, VfsError, VfsPath, VfsResult};

/// How often an open that raced other changes of the tree is retried.
const RACES: usize = 8;

impl Tree {
    /// Opens or creates; see [`crate::Vfs::open`].
    ///
    /// # Errors
    /// `Busy` when a local process holds a lease on the file: a `may_wait` call waits until the lease is released (the
    /// system enforces that within a minute).
    pub(super) fn open(self: &Arc<Tree>, r: &OpenRequest, may_wait: bool) -> VfsResult<Opened> {
        streams::store::refuse(&r.path)?;
        match &r.stream {
            Some(name) => self.open_stream(r, name, may_wait),
            None => self.open_file(r, may_wait),
        }
    }

    /// Opens an existing file, if that does not wait for a disk: a name that the kernel has in memory, without write
    /// access, and no stream. `None` in all other cases, and when the tree changed meanwhile.
    pub(super) fn open_cached(self: &Arc<Tree>, r: &OpenRequest) -> Option<VfsResult<Opened>> {
        if r.mode == OpenMode::Create || r.rights.write || r.stream.is_some() {
            return None;
        }
        if let Err(e) = streams::store::refuse(&r.path) {
            return Some(Err(e));
        }
        let (disk, stat) = self.stat_cached(r)?;
        self.open_existing(&disk, r.path.clone(), &stat, r, false).transpose()
    }

    pub(super) fn open_file(self: &Arc<Tree>, r: &OpenRequest, may_wait: bool) -> VfsResult<Opened> {
        for _ in 0..RACES {
            if let Some(opened) = self.try_open(r, may_wait)? {
                return Ok(opened);
            }
        }
        // A dangling link looks like an endless race.
        Err(if r.mode == OpenMode::Open { VfsError::NotFound } else { VfsError::AccessDenied })
    }

    /// `None` when the tree changed meanwhile.
    fn try_open(self: &Arc<Tree>, r: &OpenRequest, may_wait: bool) -> VfsResult<Option<Opened>> {
        let parts = r.path.components();
        let disk = Self::disk_path(parts)?;
        match (self.stat_for(r, &disk), parts.split_last()) {
            (Ok(stat), _) => self.open_existing(&disk, r.path.clone(), &stat, r, may_wait),
            (Err(Errno::NOENT | Errno::NOTDIR), Some((name, above))) => {
                let directory = self.directory_for(&r.path, above)?;
                // Locked, so that no name that differs in case only is added between the lookup and the change.
                let changing = (r.mode != OpenMode::Open).then(|| self.changing(&directory.stat).lock());
                let found = if r.path.is_exact() { None } else { self.find(&directory, name)? };
                match found {
                    Some(found) => {
                        // The open may wait for a lease.
                        drop(changing);
                        self.open_found(directory, &found, r, may_wait)
                    }
                    None if r.mode == OpenMode::Open && self.is_point(&directory)? => {
                        Err(VfsError::ReparsePoint)
                    }
                    None if r.mode == OpenMode::Open => Err(VfsError::NotFound),
                    None => self.create(directory, name, r),
                }
            }
            (Err(e), _) => Err(resolve::path_error(e)),
        }
    }

    /// Opens the name that matched without regard to case.
    fn open_found(
        self: &Arc<Tree>,
        directory: ResolvedDirectory,
        found: &str,
        r: &OpenRequest,
        may_wait: bool,
    ) -> VfsResult<Option<Opened>> {
        let disk = resolve::join(&directory.disk, found);
        match self.stat_for(r, &disk) {
            Ok(stat) => {
                let mut path = directory.path;
                path.push(visible::shown(found.as_bytes()).ok_or(VfsError::NotFound)?.into_owned());
                self.open_existing(&disk, VfsPath::from_parts(path), &stat, r, may_wait)
            }
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(resolve::path_error(e)),
        }
    }

    fn open_existing(
        self: &Arc<Tree>,
        disk: &str,
        path: VfsPath,
        seen: &Statx,
        r: &OpenRequest,
        may_wait: bool,
    ) -> VfsResult<Option<Opened>> {
        if link::is_link(seen) {
            return self.open_link(disk, path, seen, r);
        }
        // Checked before the open: opening a device may have side effects.
        let kind = node::kind(seen).ok_or(VfsError::AccessDenied)?;
        if r.mode == OpenMode::Create {
            return Err(VfsError::Exists);
        }
        match (r.kind, kind) {
            (Some(Kind::File), Kind::Directory) => return Err(VfsError::IsDirectory),
            (Some(Kind::Directory), Kind::File) => return Err(VfsError::NotDirectory),
            _ => {}
        }
        if r.rights.write && kind == Kind::File {
            self.may_change()?;
        }
        let (mut opened, direct) = self.open_and_check_links(disk, flags(kind, r.rights));
        if matches!(opened, Err(Errno::ACCESS)) && r.rights.write && !r.rights.read && kind == Kind::File {
            opened = self.open_at(disk, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        }
        if matches!(opened, Err(Errno::BUSY)) && may_wait && kind == Kind::File {
            opened = self.wait_for(disk, seen, flags(kind, r.rights));
        }
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO) => return Ok(None),
            Err(e) => return Err(resolve::path_error(e)),
        };
        let stat = node::statx(&fd)?;
        if identity(&stat) != identity(seen) {
            return Ok(None);
        }
        let Some(restricted_directories) = self.restricted_directories(&fd, disk, direct)? else {
            return Ok(None);
        };
        let (node, stat) = self.node(fd, &stat, kind, (false, r.rights.write && kind == Kind::File))?;
        node.open.shows_links.store(path.is_exact(), Ordering::Relaxed);
        Ok(Some(Opened {
            node: Arc::new(node),
            created: false,
            path,
            stream: None,
            stat,
            restricted_directories,
        }))
    }

    /// Opens a file on which another process has a lease; waits until the lease is released.
    fn wait_for(&self, disk: &str, seen: &Statx, flags: OFlags) -> io::Result<OwnedFd> {
        // Opens a descriptor with `O_PATH` first, so that the file that is then opened without NONBLOCK is the one that
        // was checked, and not a pipe.
        let held = self.open_at(disk, OFlags::PATH, Mode::empty())?;
        if identity(&node::statx(&held)?) != identity(seen) {
            return Err(Errno::NOENT);
        }
        let flags = (flags - OFlags::NONBLOCK) | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::open(format!("/proc/self/fd/{}", held.as_raw_fd()), flags, Mode::empty())
    }

    /// The [`Parent`] of a new file in `directory`; `None` when the directory was moved meanwhile.
    fn parent(&self, directory: &ResolvedDirectory) -> VfsResult<Option<Parent>> {
        // The directory was resolved before it was locked and its names were read: it may have been moved since then.
        let Some(restricted_directories) =
            self.restricted_directories(&directory.fd, &directory.disk, false)?
        else {
            return Ok(None);
        };
        let device = self.device(&directory.fd, device::number(&directory.stat))?;
        // Attributes cannot be read through `directory.fd` (`O_PATH`); by its path below `/proc` it takes twice as
        // long.
        let fd = resolve::beneath(&directory.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let id = device.key(&directory.stat);
        let extra = match self.shared(id) {
            Some(shared) => shared.extra_metadata(),
            None => {
                ExtraMetadata { stored: StoredMetadata::load(stored::Target::Fd(&fd), &device), reserved: 0 }
            }
        };
        let stat = node::convert(&directory.stat, Kind::Directory, id, &extra);
        Ok(Some(Parent { stat, security: stored::security(&fd, &device), restricted_directories }))
    }

    /// Creates `name` in `directory`, whose names are locked. The file gets its name last: see [`new_file`].
    fn create(
        self: &Arc<Tree>,
        directory: ResolvedDirectory,
        name: &str,
        r: &OpenRequest,
    ) -> VfsResult<Option<Opened>> {
        let security = match &r.create_check {
            Some(check) => {
                let Some(parent) = self.parent(&directory)? else { return Ok(None) };
                Some(check.check(&parent).ok_or(VfsError::Refused)?)
            }
            None => None,
        };
        self.may_change()?;
        let disk = visible::stored(name);
        let kind = r.kind.unwrap_or(Kind::File);
        let made = match self.create_unnamed(&directory, &disk, kind) {
            Ok(made) => made,
            Err(Errno::EXIST) => return Ok(None),
            Err(Errno::NOENT) => return Err(VfsError::PathNotFound), // the directory was removed meanwhile
            Err(e) => return Err(e.into()),
        };
        let (fd, new_name) = made;
        let stat = node::statx(&fd)?;
        let (node, stat) = self.node(fd, &stat, kind, (true, kind == Kind::File))?;
        let done = set_initial_metadata(&node.open, r, security.as_deref(), stat.attributes)
            .and_then(|()| new_name.give_name(&directory, &node.open.fd, &disk));
        if let Err(e) = done {
            new_name.discard(&directory);
            // Another program has created the name, or removed the directory with our temporary file.
            return if matches!(e, VfsError::Exists | VfsError::NotFound) { Ok(None) } else { Err(e) };
        }
        let stat = node.open.stat()?;
        let mut path = directory.path;
        path.push(visible::shown(disk.as_bytes()).ok_or(VfsError::InvalidName)?.into_owned());
        let (path, restricted_directories) = (VfsPath::from_parts(path), Vec::new());
        Ok(Some(Opened {
            node: Arc::new(node),
            created: true,
            path,
            stream: None,
            stat,
            restricted_directories,
        }))
    }
}

/// The identity and type of a file.
pub(super) fn identity(s: &Statx) -> (u32, u32, u64, u16) {
    (s.stx_dev_major, s.stx_dev_minor, s.stx_ino, s.stx_mode & 0o170_000)
}

fn flags(kind: Kind, rights: Rights) -> OFlags {
    match kind {
        Kind::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        // NONBLOCK: if it has become a pipe meanwhile, the open does not wait for its other end.
        Kind::File if rights.write => OFlags::RDWR | OFlags::NONBLOCK,
        Kind::File => OFlags::RDONLY | OFlags::NONBLOCK,
    }
}

/// Stores the requested metadata of a new file, which has `attributes`.
fn set_initial_metadata(
    open: &node::Open,
    r: &OpenRequest,
    security: Option<&[u8]>,
    attributes: Attributes,
) -> VfsResult<()> {
    let quietly = |done: VfsResult<()>| match done {
        // Logged at the first use of the file system. One that supports attributes, but refuses them here, fails the
        // creation.
        Err(VfsError::Unsupported) if !open.shared.device.attributes => Ok(()),
        done => done,
    };
    let wanted = r.attributes & Attributes::STORED;
    if wanted != attributes & Attributes::STORED {
        let change = crate::BasicChange { attributes: Some(wanted), ..Default::default() };
        quietly(open.set_basic(&change))?;
    }
    if let Some(descriptor) = security {
        quietly(stored::set_security(&open.fd, &open.shared.device, descriptor))?;
    }
    if !r.extended_attributes.is_empty() {
        open.set_extended(&r.extended_attributes)?;
    }
    if let Some(id) = &r.creation_id {
        // The id is stored last: if the file system has no space for it, the file is created without it.
        match stored::set_creation_id(&open.fd, &open.shared.device, id) {
            Err(VfsError::AttributeTooLarge) => {}
            done => quietly(done)?,
        }
    }
    Ok(())
}
