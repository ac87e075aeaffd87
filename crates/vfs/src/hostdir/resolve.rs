//! Path resolution below the root: the only module that turns a path into a descriptor.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat2};
use rustix::io::{self, Errno};

use super::{Tree, device, link, names, node, visible};
use crate::{FileKey, OpenRequest, VfsError, VfsPath, VfsResult, short};

/// Stay below the descriptor; do not jump through `/proc`.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// The longest path that Linux accepts in one call, in bytes without the NUL.
const PATH_MAX: usize = 4095;

/// How often a resolution that raced a rename (EAGAIN) is repeated.
const RETRIES: usize = 32;

/// A directory that was found.
pub(super) struct ResolvedDirectory {
    /// Opened with `O_PATH`.
    pub(super) fd: OwnedFd,
    /// Its path below the root, on the disk.
    pub(super) disk: String,
    /// Its path as stored, for clients.
    pub(super) path: Vec<String>,
    pub(super) stat: Statx,
}

/// One name in a directory.
pub(super) struct Entry<'a> {
    pub(super) directory: &'a ResolvedDirectory,
    /// The name on the disk.
    pub(super) name: String,
    /// The metadata, with links followed; that of the link if the link itself was requested.
    pub(super) stat: Statx,
    /// The metadata, with links not followed.
    pub(super) own: Statx,
}

impl Tree {
    /// Opens `disk`, a path on the disk below the root (`""` is the root).
    pub(super) fn open_at(&self, disk: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = if disk.is_empty() { "." } else { disk };
        beneath(&self.root, path, flags, mode)
    }

    /// [`Tree::open_at`], and whether the path contains no link, so that `disk` is the file's real path.
    pub(super) fn open_and_check_links(&self, disk: &str, flags: OFlags) -> (io::Result<OwnedFd>, bool) {
        let path = if disk.is_empty() { "." } else { disk };
        match resolved(&self.root, path, flags, Mode::empty(), BENEATH | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => (self.open_at(disk, flags, Mode::empty()), false),
            done => (done, true),
        }
    }

    /// The metadata of the file at `disk`, with links followed, without opening it.
    pub(super) fn stat_at(&self, disk: &str) -> io::Result<Statx> {
        node::statx(&self.open_at(disk, OFlags::PATH, Mode::empty())?)
    }

    /// [`Tree::stat_at`] for `r`; does not follow a link at the end if `r` requests the link itself.
    pub(super) fn stat_for(&self, r: &OpenRequest, disk: &str) -> io::Result<Statx> {
        node::statx(&self.open_at(disk, path_flags(r), Mode::empty())?)
    }

    /// The path on the disk and the metadata of the exact path of `r`, if the kernel has both in memory: then opening
    /// it to read does not wait. `None` if unsure.
    pub(super) fn stat_cached(&self, r: &OpenRequest) -> Option<(String, Statx)> {
        let disk = Self::disk_path(r.path.components()).ok()?;
        let (at, flags) = (if disk.is_empty() { "." } else { &disk }, path_flags(r) | OFlags::CLOEXEC);
        let fd = openat2(&self.root, at, flags, Mode::empty(), BENEATH | ResolveFlags::CACHED).ok()?;
        let stat = node::statx(&fd).ok()?;
        self.known_device(device::number(&stat))?.local.then_some((disk, stat))
    }

    /// The path on the disk with all names exactly as given.
    pub(super) fn disk_path(parts: &[String]) -> VfsResult<String> {
        let mut disk = String::with_capacity(parts.iter().map(|p| p.len() + 1).sum());
        for part in parts {
            let name = visible::stored(part);
            if visible::is_temporary(&name) {
                return Err(VfsError::NotFound);
            }
            push(&mut disk, &name);
        }
        if disk.len() > PATH_MAX { Err(VfsError::NameTooLong) } else { Ok(disk) }
    }

    /// The directory `parts`, each name exactly or, failing that, without regard to case.
    ///
    /// # Errors
    /// `PathNotFound` when it does not exist or is no directory; `Escapes`.
    pub(super) fn directory(&self, parts: &[String]) -> VfsResult<ResolvedDirectory> {
        // The longest prefix that exists exactly; the root always does.
        let mut exact = parts.len();
        let mut directory = loop {
            match self.directory_at(Self::disk_path(&parts[..exact])?, parts[..exact].to_vec()) {
                Ok(directory) => break directory,
                Err(Errno::NOENT | Errno::NOTDIR) if exact > 0 => exact -= 1,
                Err(e) => return Err(directory_error(e)),
            }
        };
        for part in &parts[exact..] {
            let name = self.find(&directory, part)?.ok_or(VfsError::PathNotFound)?;
            let mut disk = directory.disk;
            push(&mut disk, &name);
            if disk.len() > PATH_MAX {
                return Err(VfsError::NameTooLong);
            }
            let mut path = directory.path;
            path.push(visible::shown(name.as_bytes()).ok_or(VfsError::PathNotFound)?.into_owned());
            directory = self.directory_at(disk, path).map_err(directory_error)?;
        }
        Ok(directory)
    }

    /// The directory `above`, a prefix of `path`: case-sensitive if the path is exact.
    ///
    /// # Errors
    /// As [`Tree::directory`].
    pub(super) fn directory_for(&self, path: &VfsPath, above: &[String]) -> VfsResult<ResolvedDirectory> {
        let directory = self.directory(above)?;
        if path.is_exact() && directory.path != above { Err(VfsError::PathNotFound) } else { Ok(directory) }
    }

    fn directory_at(&self, disk: String, path: Vec<String>) -> io::Result<ResolvedDirectory> {
        let fd = self.open_at(&disk, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let stat = node::statx(&fd)?;
        Ok(ResolvedDirectory { fd, disk, path, stat })
    }

    /// The name on the disk that matches the client's `name` in `directory`: the exact one if it exists, otherwise one
    /// that differs in case only, otherwise the one whose short name it is.
    pub(super) fn find(&self, directory: &ResolvedDirectory, name: &str) -> VfsResult<Option<String>> {
        let device = self.device(&directory.fd, device::number(&directory.stat))?;
        match self.names.find(&directory.fd, &directory.stat, &device, name)? {
            None if short::is_generated(name) => names::find_short(&directory.fd, name),
            found => Ok(found),
        }
    }

    /// The directory that holds the last name of `path`, and that name.
    ///
    /// # Errors
    /// `PathNotFound`, `Escapes`; `AccessDenied` for the root, which has no name.
    pub(super) fn resolve_parent<'a>(&self, path: &'a VfsPath) -> VfsResult<(ResolvedDirectory, &'a str)> {
        let (name, above) = path.components().split_last().ok_or(VfsError::AccessDenied)?;
        if visible::is_temporary(&visible::stored(name)) {
            return Err(VfsError::AccessDenied);
        }
        Ok((self.directory_for(path, above)?, name))
    }

    /// The entry that matches the client's `name` in `directory`. For a link: the link itself if its identity is `id`,
    /// otherwise its target.
    ///
    /// # Errors
    /// `NotFound`, `Escapes`.
    pub(super) fn entry<'a>(
        &self,
        directory: &'a ResolvedDirectory,
        name: &str,
        id: FileKey,
    ) -> VfsResult<Entry<'a>> {
        let exact = visible::stored(name);
        let (name, own) = match lstatx(&directory.fd, &exact) {
            Ok(own) => (exact.into_owned(), own),
            Err(Errno::NOENT) => {
                let found = self.find(directory, name)?.ok_or(VfsError::NotFound)?;
                let own = lstatx(&directory.fd, &found)?;
                (found, own)
            }
            Err(e) => return Err(e.into()),
        };
        if !link::is_link(&own) || self.device(&directory.fd, device::number(&own))?.key(&own) == id {
            return Ok(Entry { directory, name, stat: own, own });
        }
        let stat = self.stat_at(&join(&directory.disk, &name)).map_err(path_error)?;
        Ok(Entry { directory, name, stat, own })
    }
}

/// Flags to open the file of a request with `O_PATH`.
fn path_flags(r: &OpenRequest) -> OFlags {
    if r.link { OFlags::PATH | OFlags::NOFOLLOW } else { OFlags::PATH }
}

/// Opens `path` with `openat2`; the resolution cannot leave `fd`.
pub(super) fn beneath(fd: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    resolved(fd, path, flags, mode, BENEATH)
}

fn resolved(fd: &OwnedFd, path: &str, flags: OFlags, mode: Mode, how: ResolveFlags) -> io::Result<OwnedFd> {
    // openat2 refuses flags that have no effect with O_PATH.
    let more = if flags.contains(OFlags::PATH) { OFlags::CLOEXEC } else { OFlags::CLOEXEC | OFlags::NOCTTY };
    for _ in 0..RETRIES {
        match openat2(fd, path, flags | more, mode, how) {
            Err(Errno::AGAIN | Errno::INTR) => {} // a `..` in a link raced a rename, or a signal arrived
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

/// Metadata of a name, with links not followed.
pub(super) fn lstatx(fd: &OwnedFd, name: &str) -> io::Result<Statx> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(fd, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, mask)
}

/// Appends a name to a path.
pub(super) fn join(disk: &str, name: &str) -> String {
    let mut path = String::with_capacity(disk.len() + 1 + name.len());
    path.push_str(disk);
    push(&mut path, name);
    path
}

fn push(disk: &mut String, name: &str) {
    if !disk.is_empty() {
        disk.push('/');
    }
    disk.push_str(name);
}

/// An error of resolving a whole path: EXDEV means that a link led out.
pub(super) fn path_error(e: Errno) -> VfsError {
    if e == Errno::XDEV { VfsError::Escapes } else { e.into() }
}

/// An error of resolving a directory on the path.
fn directory_error(e: Errno) -> VfsError {
    match e {
        Errno::NOENT | Errno::NOTDIR => VfsError::PathNotFound,
        e => path_error(e),
    }
}
