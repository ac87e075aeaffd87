//! Sidecars without a file, and files without their sidecar.
//!
//! A program that restores, replaces or copies a file with its extended attributes makes another file, whose records
//! name streams of the former one. The identity of a stream is random, so its sidecar is found by that:
//!
//! * A sidecar whose file is gone becomes that of the file that names the stream.
//! * If its file is still there, the other one is a copy, and gets a copy of the sidecar: when the stream is first used,
//!   if both files have one owner. (Otherwise whoever once read the records of a file could read its streams for ever.)
//!
//! At a start, sidecars that no file of the tree names are removed. Those that another program has put there, such as a
//! restore that is still running, are kept for [`KEPT`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, Statx, XattrFlags, openat2};
use rustix::io::Errno;

use super::store::{Store, name};
use super::{data, handle, lock, record};
use crate::hostdir::device::number;
use crate::hostdir::node::{self, Open};
use crate::hostdir::resolve::lstatx;
use crate::hostdir::stored::Target;
use crate::hostdir::volume;
use crate::{FileKey, Kind, VfsResult};

/// The attribute of a sidecar that identifies its file.
const OWNER: &str = "user.causeway.stream-of";
const VERSION: u16 = 1;
/// How long a sidecar that another program has put there is kept without a file.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The end of the name of a sidecar that is being copied.
const UNFINISHED: &str = ".new";

/// A sidecar: its name, and the file and stream in it.
pub(super) type Listed = (String, u128, u64);

/// The file of a sidecar.
enum FileOf {
    /// It still names the stream.
    There(OwnedFd),
    Gone,
}

impl Store {
    /// Gives sidecars to files that were restored or replaced, and removes orphaned ones: their file was removed by
    /// another program, or a crash interrupted a change. Returns how many were removed. Without CAP_DAC_READ_SEARCH none
    /// can be found.
    pub(in crate::hostdir) fn collect(&self) -> usize {
        for unfinished in self.names().unwrap_or_default().iter().filter(|name| name.ends_with(UNFINISHED)) {
            let _ = rustix::fs::unlinkat(&self.fd, &**unfinished, AtFlags::empty());
        }
        let mut orphans = Vec::new();
        for listed in self.list().unwrap_or_default() {
            match self.file_of(&listed) {
                Ok(FileOf::Gone) => orphans.push(listed),
                Ok(FileOf::There(_)) => {}
                Err(Errno::PERM) => {
                    tracing::info!("orphaned streams are kept: finding them needs CAP_DAC_READ_SEARCH");
                    break;
                }
                Err(e) => {
                    tracing::debug!(
                        name = listed.0,
                        "a stream is kept: its file could not be searched for: {e}"
                    );
                }
            }
        }
        if orphans.is_empty() {
            return 0;
        }
        let walked = self.walk(&mut |file, stat| self.give_to(file, stat, &mut orphans));
        if let Err(e) = walked {
            tracing::warn!("orphaned streams are kept: the files of the share could not be read: {e}");
            return 0;
        }
        let removed = orphans.iter().filter(|listed| self.remove_orphan(listed)).count();
        if removed > 0 {
            tracing::info!(removed, "streams of files that no longer exist were removed");
        }
        removed
    }

    /// Gives orphans to a file that names them, and takes them out of the list.
    fn give_to(&self, file: &OwnedFd, stat: &Statx, orphans: &mut Vec<Listed>) -> Result<(), Errno> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let ids = match Target::Followed(&path).list() {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            names => record::ids_in(&names?),
        };
        for id in ids {
            let Some(at) = orphans.iter().position(|(_, _, other)| *other == id) else { continue };
            let key = FileKey { volume: self.volume, file: volume::file(stat) };
            let _lock = lock(key);
            let to = name(key.file, id);
            let has_one = orphans[at].0 != to && lstatx(&self.fd, &to).is_ok();
            if !has_one && record::names_sidecar(Target::Followed(&path), id) {
                let (from, ..) = orphans.swap_remove(at);
                match self.give(&from, file.as_fd(), key.file, id) {
                    // Meanwhile the file has got another one.
                    Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                    Err(e) => tracing::warn!(from, "the data of a stream was not found by its file: {e}"),
                }
            }
        }
        Ok(())
    }

    /// Makes a sidecar that of another file.
    fn give(&self, from: &str, file: BorrowedFd<'_>, number: u128, id: u64) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        set_file(&rustix::fs::openat(&self.fd, from, flags, Mode::empty())?, file)?;
        let to = name(number, id);
        if from != to {
            rustix::fs::renameat_with(&self.fd, from, &self.fd, &*to, RenameFlags::NOREPLACE)?;
        }
        tracing::info!(to, "a stream of a file that was restored or replaced was found");
        Ok(())
    }

    fn remove_orphan(&self, listed @ (name, file, _): &Listed) -> bool {
        let _lock = lock(FileKey { volume: self.volume, file: *file });
        // A client may have used it meanwhile.
        let is_orphan = matches!(self.file_of(listed), Ok(FileOf::Gone));
        is_orphan
            && self.may_remove(name)
            && rustix::fs::unlinkat(&self.fd, &**name, AtFlags::empty()).is_ok()
    }

    /// Whether an orphan may be removed now.
    fn may_remove(&self, name: &str) -> bool {
        let Ok(stat) = lstatx(&self.fd, name) else { return false };
        let since = env::Env::real().unix_time().as_secs() as i64 - stat.stx_ctime.tv_sec;
        let is_ours = self.stored(name).is_ok_and(|(own, _)| own == volume::file(&stat));
        is_ours || since > KEPT.as_secs() as i64
    }

    /// The file of a sidecar.
    fn file_of(&self, (name, file, id): &Listed) -> Result<FileOf, Errno> {
        let (_, stored) = self.stored(name)?;
        let found = match handle::open(self.fd.as_fd(), &stored) {
            Err(Errno::STALE) => return Ok(FileOf::Gone),
            found => found?,
        };
        if volume::file(&node::statx(&found)?) != *file {
            return Ok(FileOf::Gone); // the file's number was reused
        }
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let is_named = record::names_sidecar(Target::Followed(&path), *id);
        Ok(if is_named { FileOf::There(found) } else { FileOf::Gone })
    }

    /// The number of the sidecar itself, and the handle of its file, as they were when the sidecar was made.
    fn stored(&self, name: &str) -> Result<(u128, Vec<u8>), Errno> {
        let path = format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd());
        let value = Target::Path(&path).get_all(OWNER)?;
        let value = value.strip_prefix(&VERSION.to_le_bytes()).ok_or(Errno::INVAL)?;
        let (own, handle) = value.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
        Ok((u128::from_le_bytes(*own), handle.to_vec()))
    }

    /// The sidecars.
    fn list(&self) -> Result<Vec<Listed>, Errno> {
        Ok(self.names()?.iter().filter_map(|name| parse(name)).collect())
    }

    /// The names in the directory.
    fn names(&self) -> Result<Vec<String>, Errno> {
        let fd = rustix::fs::openat(&self.fd, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
        let (mut entries, mut all) = (RawDir::new(&fd, &mut buffer), Vec::new());
        while let Some(entry) = entries.next() {
            all.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(all)
    }

    /// Calls `visit` with each file and directory of the tree that the store is in, opened with `O_PATH`.
    fn walk(&self, visit: &mut dyn FnMut(&OwnedFd, &Statx) -> Result<(), Errno>) -> Result<(), Errno> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let top = rustix::fs::openat(&self.fd, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        visit(&top, &node::statx(&top)?)?;
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
        let mut directories = vec![b".".to_vec()];
        while let Some(directory) = directories.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = match openat2(&top, &directory[..], flags, Mode::empty(), how) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue, // changed meanwhile
                fd => fd?,
            };
            let mut entries = RawDir::new(&fd, &mut buffer);
            while let Some(entry) = entries.next() {
                let entry = entry?;
                let file_name = entry.file_name().to_bytes();
                if matches!(file_name, b"." | b"..") || super::is_store(&entry.file_name().to_string_lossy())
                {
                    continue;
                }
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file =
                    match openat2(&fd, file_name, flags, Mode::empty(), how - ResolveFlags::NO_SYMLINKS) {
                        Err(Errno::NOENT | Errno::XDEV) => continue,
                        file => file?,
                    };
                let stat = node::statx(&file)?;
                let Some(kind) = node::kind(&stat) else { continue };
                if number(&stat) != self.directory_id.0 {
                    continue;
                }
                visit(&file, &stat)?;
                if kind == Kind::Directory {
                    directories.push([&directory[..], b"/", file_name].concat());
                }
            }
        }
        Ok(())
    }
}

/// Finds the sidecar of a stream that has none by its name: see the module. Returns whether there is one now. The file's
/// streams are locked.
pub(super) fn find(file: &Open, id: u64) -> VfsResult<bool> {
    if file.shared.tree.info.read_only {
        return Ok(false);
    }
    let key = file.shared.id;
    let mut others = Vec::new();
    for store in Store::all() {
        for listed in store.list().unwrap_or_default().into_iter().filter(|(_, _, other)| *other == id) {
            match store.file_of(&listed) {
                Ok(FileOf::Gone) if store.volume == key.volume => {
                    store.give(&listed.0, file.fd.as_fd(), key.file, id)?;
                    return Ok(true);
                }
                Ok(FileOf::Gone) => others.push((Arc::clone(&store), listed.0)),
                Ok(FileOf::There(other)) => {
                    if node::statx(&other)?.stx_uid == node::statx(&*file.fd)?.stx_uid {
                        others.push((Arc::clone(&store), listed.0));
                    }
                }
                Err(e) => {
                    tracing::debug!(name = listed.0, "the file of a stream could not be searched for: {e}")
                }
            }
        }
    }
    let Some((store, from)) = others.pop() else { return Ok(false) };
    copy(file, id, &store, &from)?;
    Ok(true)
}

/// Copies a sidecar for another file.
fn copy(file: &Open, id: u64, from_store: &Store, from: &str) -> VfsResult<()> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::openat(&from_store.fd, from, flags | OFlags::RDONLY, Mode::empty())?;
    let (store, to) = (file.shared.device.make_store(file)?, name(file.shared.id.file, id));
    let unfinished = format!("{to}{UNFINISHED}");
    let create = flags | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let sidecar = rustix::fs::openat(&store.fd, &*unfinished, create, Mode::RUSR | Mode::WUSR)?;
    let copied = || {
        data::copy(&source, &sidecar)?;
        set_file(&sidecar, file.fd.as_fd())?;
        rustix::fs::fsync(&sidecar)?;
        rustix::fs::renameat_with(&store.fd, &*unfinished, &store.fd, &*to, RenameFlags::NOREPLACE)?;
        Ok(())
    };
    let copied: VfsResult<()> = copied();
    if copied.is_err() {
        let _ = rustix::fs::unlinkat(&store.fd, &*unfinished, AtFlags::empty());
    }
    copied
}

/// Stores the file of a sidecar with it.
pub(super) fn set_file(sidecar: &OwnedFd, file: BorrowedFd<'_>) -> Result<(), Errno> {
    match handle::of(file) {
        Ok(handle) => {
            let own = volume::file(&node::statx(sidecar)?).to_le_bytes();
            let value = [&VERSION.to_le_bytes()[..], &own, &handle].concat();
            rustix::fs::fsetxattr(sidecar, OWNER, &value, XattrFlags::empty())
        }
        // Without a handle the sidecar is never collected if another program removes the file.
        Err(e) => {
            tracing::debug!("the file of a stream has no handle: {e}");
            Ok(())
        }
    }
}

fn parse(text: &str) -> Option<Listed> {
    let (file, id) = text.split_once('-')?;
    let (file, id) = (u128::from_str_radix(file, 16).ok()?, u64::from_str_radix(id, 16).ok()?);
    (name(file, id) == text).then(|| (text.to_owned(), file, id))
}
