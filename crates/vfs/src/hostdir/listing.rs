//! Listing a directory: getdents on the node's own descriptor, then the metadata of each entry.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, Statx};
use rustix::io::{self, Errno};

use super::node::{self, ExtraMetadata, Open};
use super::resolve::{self, ResolvedDirectory};
use super::stored::{self, StoredMetadata, Target};
use super::streams::is_store;
use super::working_directory::WorkingDirectory;
use super::{device, link, visible};
use crate::{DirEntry, EntrySecurity, Kind, Stat, VfsError, VfsResult};

/// The position of one open directory.
#[derive(Default)]
pub(super) struct Listing {
    /// Names from the kernel that were not returned yet.
    waiting: VecDeque<String>,
}

#[cfg(test)]
impl Listing {
    /// Adds this name as if it were from the kernel.
    pub(super) fn push(&mut self, name: &str) {
        self.waiting.push_back(name.to_owned());
    }
}

/// Bytes requested from the kernel at once.
const BUFFER: usize = 32 << 10;

/// The next entries.
pub(super) fn next(open: &Open, restart: bool, limit: usize) -> VfsResult<Vec<DirEntry>> {
    let mut listing = open.listing.lock();
    if restart {
        listing.waiting.clear();
        rustix::fs::seek(&*open.fd, SeekFrom::Start(0))?;
    }
    let working_directory = WorkingDirectory::enter(&open.fd);
    let mut out = Vec::new();
    while out.len() < limit.max(1) {
        let Some(name) = listing.waiting.pop_front() else {
            if fill(open, &mut listing.waiting)? {
                continue;
            }
            break;
        };
        match entry(open, &name, working_directory.as_ref()) {
            Ok(entry) => out.extend(entry),
            // An entry whose metadata cannot be read is left out; the others are listed.
            Err(error) => unreadable(&name, error),
        }
    }
    Ok(out)
}

/// Whether the directory is empty.
pub(super) fn is_empty(open: &Open) -> VfsResult<bool> {
    let fd = resolve::beneath(&open.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&fd, &mut buffer);
    while let Some(entry) = entries.next() {
        // Hidden entries count too: the system would refuse to remove the directory. But new files that a crash left
        // under temporary names are removed with it.
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && !name.starts_with(visible::TEMPORARY.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One entry by name.
pub(super) fn lookup(open: &Open, name: &str) -> VfsResult<DirEntry> {
    let tree = &open.shared.tree;
    if is_store(name) {
        return Err(VfsError::NotFound);
    }
    if let Some(entry) = entry(open, &visible::stored(name), None)? {
        return Ok(entry);
    }
    let fd = resolve::beneath(&open.fd, ".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let stat = node::statx(&fd)?;
    let directory = ResolvedDirectory { fd, disk: String::new(), path: Vec::new(), stat };
    let found = tree.find(&directory, name)?.ok_or(VfsError::NotFound)?;
    entry(open, &found, None)?.ok_or(VfsError::NotFound)
}

/// The security descriptor of an entry by its name as listed. A link out of the directory is an error.
pub(super) fn security(open: &Open, name: &str) -> EntrySecurity {
    let name = visible::stored(name);
    let shows_links = open.shows_links.load(Ordering::Relaxed);
    let flags = if shows_links { OFlags::PATH | OFlags::NOFOLLOW } else { OFlags::PATH };
    let fd = resolve::beneath(&open.fd, &name, flags, Mode::empty()).map_err(resolve::path_error)?;
    let stat = node::statx(&fd)?;
    if link::is_link(&stat) {
        return Ok(None);
    }
    let device = open.shared.tree.device(&fd, device::number(&stat))?;
    stored::security_of(Target::Followed(&format!("/proc/self/fd/{}", fd.as_raw_fd())), &device)
}

/// Reads more names from the kernel; false at the end.
fn fill(open: &Open, waiting: &mut VecDeque<String>) -> VfsResult<bool> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(&*open.fd, &mut buffer);
    let mut any = false;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        any = true;
        let shown = matches!(
            entry.file_type(),
            FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown
        );
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            _ if !shown => {}
            name if std::str::from_utf8(name).is_ok_and(is_store) => {}
            name => match std::str::from_utf8(name) {
                Ok(name) if visible::is_temporary(name) => {}
                Ok(name) => waiting.push_back(name.to_owned()),
                Err(_) => skipped(),
            },
        }
        if entries.is_buffer_empty() {
            break;
        }
    }
    Ok(any)
}

/// An entry by its name on the disk; `None` if it was removed or is hidden. `inside`: the directory is this thread's
/// working directory.
fn entry(
    open: &Open,
    name: &str,
    working_directory: Option<&WorkingDirectory>,
) -> VfsResult<Option<DirEntry>> {
    let Some(shown) = visible::shown(name.as_bytes()) else {
        skipped();
        return Ok(None);
    };
    let stat = match resolve::lstatx(&open.fd, name) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let found = if link::is_link(&stat) {
        if open.shows_links.load(Ordering::Relaxed) { Some(own(open, &stat)?) } else { linked(open, name) }
    } else {
        let path = match working_directory {
            Some(_) => Cow::Borrowed(name),
            None => Cow::Owned(format!("/proc/self/fd/{}/{name}", open.fd.as_raw_fd())),
        };
        let fd = || resolve::beneath(&open.fd, name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
        stat_of(open, &stat, fd, |device| StoredMetadata::load(Target::Path(&path), device))?
    };
    Ok(found.map(|stat| DirEntry { name: shown.into_owned(), stat }))
}

/// Metadata of a symbolic link in this directory, not of its target.
fn own(open: &Open, stat: &Statx) -> VfsResult<Stat> {
    let device = open.shared.tree.device(&*open.fd, device::number(stat))?;
    Ok(link::convert(stat, Kind::File, device.key(stat)))
}

/// Metadata of the target of a symbolic link in this directory, if the target is in the tree.
fn linked(open: &Open, name: &str) -> Option<Stat> {
    let tree = &open.shared.tree;
    let path =
        |fd: i32| rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()).ok()?.into_string().ok();
    let (root, here) = (path(tree.root.as_raw_fd())?, path(open.fd.as_raw_fd())?);
    // The directory's path below the root. If it was moved meanwhile, the kernel still resolves below the root only.
    let below = here.strip_prefix(root.trim_end_matches('/'))?.trim_start_matches('/');
    let disk = resolve::join(below, name);
    let target = tree.open_at(&disk, OFlags::PATH, Mode::empty()).ok()?;
    let stat = node::statx(&target).ok()?;
    let proc = format!("/proc/self/fd/{}", target.as_raw_fd());
    let load = |device: &device::Device| StoredMetadata::load(Target::Followed(&proc), device);
    stat_of(open, &stat, || target.try_clone().map_err(|_| Errno::MFILE), load).ok()?
}

fn stat_of(
    open: &Open,
    stat: &Statx,
    fd: impl FnOnce() -> io::Result<OwnedFd>,
    load: impl FnOnce(&device::Device) -> StoredMetadata,
) -> VfsResult<Option<Stat>> {
    let Some(kind) = node::kind(stat) else { return Ok(None) };
    let tree = &open.shared.tree;
    let number = device::number(stat);
    let device = match tree.known_device(number) {
        Some(device) => device,
        None => tree.device(fd()?, number)?, // another file system is mounted there
    };
    let id = device.key(stat);
    let extra = match tree.shared(id) {
        Some(shared) => shared.extra_metadata(),
        None => ExtraMetadata { stored: load(&device), reserved: 0 },
    };
    Ok(Some(node::convert(stat, kind, id, &extra)))
}

/// Logs once that an entry is left out because its metadata cannot be read.
fn unreadable(name: &str, error: VfsError) {
    static LOGGED: Once = Once::new();
    tracing::debug!(name, "a directory entry is not listed: {error}");
    LOGGED.call_once(|| {
        tracing::warn!(
            name,
            "a directory entry cannot be read and is not listed: {error}; further ones \
            are logged at level debug"
        );
    });
}

/// Logs once that entries are hidden.
fn skipped() {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            "a directory has names that are not UTF-8 or too long for clients; they are not listed"
        );
    });
}
