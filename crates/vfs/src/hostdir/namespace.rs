//! Removing, renaming, linking: changes of one name in a directory that was resolved below the root.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Statx};
use rustix::io::{self, Errno};

use super::resolve::{Entry, ResolvedDirectory, join, lstatx, path_error};
use super::streams::store::{PendingRemoval, refuse};
use super::visible::TEMPORARY;
use super::{Tree, device, link, new_file, node, visible};
use crate::{FileKey, Kind, VfsError, VfsPath, VfsResult};

/// The most temporary names in use for other files that [`link_beside`] skips.
const LEFT_MAX: u32 = 16;

impl Tree {
    /// The lock of a directory's names.
    pub(super) fn changing(&self, directory: &Statx) -> &Mutex<()> {
        &self.changing[self.stripe(directory)]
    }

    fn stripe(&self, directory: &Statx) -> usize {
        (directory.stx_ino % self.changing.len() as u64) as usize
    }

    /// The locks of two directories' names, in a global order.
    fn changing_both(&self, a: &Statx, b: &Statx) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (a, b) = (self.stripe(a), self.stripe(b));
        let first = self.changing[a.min(b)].lock();
        (first, (a != b).then(|| self.changing[a.max(b)].lock()))
    }

    /// See [`crate::Vfs::remove`].
    pub(super) fn remove(&self, path: &VfsPath, id: FileKey) -> VfsResult<()> {
        self.may_change()?;
        refuse(path)?;
        let (directory, name) = self.resolve_parent(path)?;
        let _changing = self.changing(&directory.stat).lock();
        let entry = self.entry(&directory, name, id)?;
        self.same_file(&entry, id)?;
        // A link to a directory is removed like a file.
        let flags = match node::kind(&entry.own) {
            Some(Kind::Directory) => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        let pending_removal = self.pending_removal(&directory, &entry.name, &entry.own);
        match rustix::fs::unlinkat(&entry.directory.fd, &*entry.name, flags) {
            Err(Errno::NOTEMPTY) if new_file::remove_leftovers(&entry.directory.fd, &entry.name) => {
                rustix::fs::unlinkat(&entry.directory.fd, &*entry.name, flags)?;
            }
            done => done?,
        }
        if let Some(pending_removal) = pending_removal {
            pending_removal.remove();
        }
        if let Some(shared) = self.shared(id) {
            shared.slow_close.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// See [`crate::Vfs::rename`].
    pub(super) fn rename(&self, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> VfsResult<()> {
        self.may_change()?;
        refuse(from)?;
        refuse(to).map_err(|_| VfsError::AccessDenied)?;
        let ((source, old), (directory, name)) = (self.resolve_parent(from)?, self.resolve_parent(to)?);
        let _changing = self.changing_both(&source.stat, &directory.stat);
        let from = self.entry(&source, old, id)?;
        self.same_file(&from, id)?;
        let moved = join(&source.disk, &from.name);
        if directory.disk.strip_prefix(&*moved).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(VfsError::InvalidArgument); // into itself
        }
        let name = &*visible::stored(name);
        let within = same(&from.directory.stat, &directory.stat);
        match self.colliding_name(&directory, name, to.is_exact())? {
            Some(there) if within && there == from.name && there == name => return Ok(()),
            Some(there) if within && there == from.name => {} // a change of case only
            Some(there) => {
                self.check_replaceable(&from, &directory, &there, replace)?;
                let replaced = lstatx(&directory.fd, &there)?;
                if !same(&from.own, &replaced) && self.refers_to(&directory, &there, &from.stat)? {
                    // `from` is a link and `to` its target: the renamed link would point to itself, and the file would
                    // be lost.
                    return Err(VfsError::Exists);
                }
                if same(&from.own, &replaced) {
                    // Both are names of one file: a rename would have no effect (POSIX).
                    rustix::fs::unlinkat(&from.directory.fd, &*from.name, AtFlags::empty())?;
                } else {
                    // Renames over the existing name first, so that the name always exists.
                    let pending_removal = self.pending_removal(&directory, &there, &replaced);
                    rustix::fs::renameat(&from.directory.fd, &*from.name, &directory.fd, &*there)?;
                    if let Some(pending_removal) = pending_removal {
                        pending_removal.remove();
                    }
                }
                if there != name {
                    rustix::fs::renameat(&directory.fd, &*there, &directory.fd, name)?;
                }
                return Ok(());
            }
            None => {}
        }
        move_to_new(&from.directory.fd, &from.name, &directory, name)
    }

    /// See [`crate::Vfs::link`].
    pub(super) fn link(&self, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> VfsResult<()> {
        self.may_change()?;
        refuse(from)?;
        refuse(to).map_err(|_| VfsError::AccessDenied)?;
        let ((source, old), (directory, name)) = (self.resolve_parent(from)?, self.resolve_parent(to)?);
        let _changing = self.changing_both(&source.stat, &directory.stat);
        let from = self.entry(&source, old, id)?;
        self.same_file(&from, id)?;
        if node::kind(&from.stat) == Some(Kind::Directory) {
            return Err(VfsError::IsDirectory);
        }
        if link::is_link(&from.stat) {
            return Err(VfsError::Unsupported);
        }
        let file = self.file_of(&from)?;
        let name = &*visible::stored(name);
        let Some(there) = self.colliding_name(&directory, name, to.is_exact())? else {
            return Ok(link_to_new(&file, &directory, name)?);
        };
        self.check_replaceable(&from, &directory, &there, replace)?;
        // Links a temporary name first and renames it over the existing one, so that the name always exists.
        let beside = link_beside(&file, &from.stat, &directory)?;
        let pending_removal = self.pending_removal(&directory, &there, &lstatx(&directory.fd, &there)?);
        let moved = rustix::fs::renameat(&directory.fd, &*beside, &directory.fd, &*there);
        // If both are names of one file, the rename succeeds without effect (POSIX).
        let _ = rustix::fs::unlinkat(&directory.fd, &*beside, AtFlags::empty());
        moved?;
        if let Some(pending_removal) = pending_removal {
            pending_removal.remove();
        }
        if there != name {
            rustix::fs::renameat(&directory.fd, &*there, &directory.fd, name)?;
        }
        Ok(())
    }

    /// The large streams of the file `stat` that is about to lose its name `name`.
    fn pending_removal(
        &self,
        directory: &ResolvedDirectory,
        name: &str,
        stat: &Statx,
    ) -> Option<PendingRemoval> {
        let device = self.devices.lock().get(&device::number(stat)).cloned()?;
        PendingRemoval::of(&device, &directory.fd, name, stat)
    }

    /// The name in `directory` that `name` (as on the disk) would collide with; with `exact`, only the same name.
    fn colliding_name(
        &self,
        directory: &ResolvedDirectory,
        name: &str,
        exact: bool,
    ) -> VfsResult<Option<String>> {
        match lstatx(&directory.fd, name) {
            Ok(_) => Ok(Some(name.to_owned())),
            Err(Errno::NOENT) if exact => Ok(None),
            Err(Errno::NOENT) => {
                let shown = visible::shown(name.as_bytes()).ok_or(VfsError::InvalidName)?;
                self.find(directory, &shown)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the name `there`, with links followed, refers to the file `stat`; false for a dangling link, and for one
    /// that leads out of the tree.
    fn refers_to(&self, directory: &ResolvedDirectory, there: &str, stat: &Statx) -> VfsResult<bool> {
        match self.stat_at(&join(&directory.disk, there)) {
            Ok(found) => Ok(same(&found, stat)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the file `there` may be replaced: only with `replace`, and never a directory, nor by one.
    fn check_replaceable(
        &self,
        from: &Entry<'_>,
        directory: &ResolvedDirectory,
        there: &str,
        replace: bool,
    ) -> VfsResult<()> {
        let stat = lstatx(&directory.fd, there)?;
        let is_directory = |s: &Statx| node::kind(s) == Some(Kind::Directory);
        if !replace || is_directory(&stat) || is_directory(&from.stat) {
            return Err(VfsError::Exists);
        }
        let number = device::number(&stat);
        if let Some(device) = self.devices.lock().get(&number).cloned()
            && let Some(shared) = self.shared(device.key(&stat))
        {
            shared.slow_close.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The file of an entry, with links followed, so that a hard link is made to the file and not to a symbolic link.
    fn file_of(&self, entry: &Entry<'_>) -> VfsResult<OwnedFd> {
        let file = self
            .open_at(&join(&entry.directory.disk, &entry.name), OFlags::PATH, Mode::empty())
            .map_err(path_error)?;
        if same(&node::statx(&file)?, &entry.stat) { Ok(file) } else { Err(VfsError::Stale) }
    }

    /// # Errors
    /// `Stale` when the name is another file's than `id`.
    fn same_file(&self, entry: &Entry<'_>, id: FileKey) -> VfsResult<()> {
        let device = self.device(&entry.directory.fd, device::number(&entry.directory.stat))?;
        let number = device::number(&entry.stat);
        let device = if number == device::number(&entry.directory.stat) {
            device
        } else {
            // The root of another file system, or a link into one.
            self.devices.lock().get(&number).cloned().ok_or(VfsError::Stale)?
        };
        if device.key(&entry.stat) == id { Ok(()) } else { Err(VfsError::Stale) }
    }
}

/// Renames to a name that is free.
pub(super) fn move_to_new(
    old: &OwnedFd,
    from: &str,
    directory: &ResolvedDirectory,
    name: &str,
) -> VfsResult<()> {
    let new = &directory.fd;
    match rustix::fs::renameat_with(old, from, new, name, RenameFlags::NOREPLACE) {
        // The file system does not support RENAME_NOREPLACE. The names are locked, so an ordinary rename is safe.
        Err(Errno::INVAL) if matches!(lstatx(new, name), Err(Errno::NOENT)) => {
            Ok(rustix::fs::renameat(old, from, new, name)?)
        }
        done => Ok(done?),
    }
}

/// Gives a file (opened with `O_PATH`, or without a name) a name that is free.
pub(super) fn link_to_new(file: &OwnedFd, directory: &ResolvedDirectory, name: &str) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, &directory.fd, name, AtFlags::SYMLINK_FOLLOW)
}

/// Gives a file a temporary name of our own in `directory`, and returns it.
fn link_beside(file: &OwnedFd, stat: &Statx, directory: &ResolvedDirectory) -> VfsResult<String> {
    let mut left = 0;
    loop {
        let name = format!("{TEMPORARY}link-{:016x}-{:016x}-{left}", stat.stx_ino, directory.stat.stx_ino);
        match link_to_new(file, directory, &name) {
            Ok(()) => return Ok(name),
            // A server that was killed between the two steps has left it: it is another name of the same file.
            Err(Errno::EXIST) if lstatx(&directory.fd, &name).is_ok_and(|s| same(&s, stat)) => {
                rustix::fs::unlinkat(&directory.fd, &*name, AtFlags::empty())?;
            }
            Err(Errno::EXIST) if left < LEFT_MAX => left += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

fn same(a: &Statx, b: &Statx) -> bool {
    (device::number(a), a.stx_ino) == (device::number(b), b.stx_ino)
}
