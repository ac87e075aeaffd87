//! The file of a sidecar, and what happens when that is another one or none.
//!
//! A record names its sidecar by a random identity. A program that restores, replaces or copies a file with its extended
//! attributes makes another file, whose records name the sidecars of the former one. Such a file gets a copy of the
//! sidecar when the stream is first opened. A sidecar whose file is gone becomes that of the only file that names it at
//! the next start.
//!
//! Each sidecar has the same owner as its file, and both rules require that owner. A user who once read a record could
//! otherwise copy it to a file of their own, and read the stream at any later time. The rule does not stop a user who may
//! write to another file of the same owner.
//!
//! At each start, sidecars whose file is gone are searched for in the records of all open trees on the file system. Those
//! that no file names are removed a day after they were first found so ([`KEPT`]): a restore may still be running, or
//! files may have been moved during the search.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, XattrFlags, openat2};
use rustix::io::Errno;

use super::record::{self, Record};
use super::store::{Store, create, name, tops};
use super::{data, handle};
use crate::hostdir::device::number;
use crate::hostdir::node::{self, Open};
use crate::hostdir::stored::Target;
use crate::hostdir::volume;
use crate::{Kind, VfsError, VfsResult};

/// The attribute of a sidecar that identifies its file, see [`SidecarFile`].
const FILE: &str = "user.causeway.stream-of";
const VERSION: u16 = 2;
/// `f_type` of FUSE, whose handles may be stale although the file is there.
const FUSE: u64 = 0x6573_5546;
/// The attribute with the time of the first start that found no file of a sidecar: u64, seconds since 1970.
const ORPHAN_SINCE: &str = "user.causeway.orphan-since";
/// How long a sidecar without a file is kept.
pub(in crate::hostdir) const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The search begins when the number of open trees was the same for this long, or after [`WAITS`] times this.
const SETTLED: Duration = Duration::from_secs(2);
const WAITS: u32 = 5;

/// Held while the file of a sidecar is checked and changed, or a sidecar is removed. No other lock is taken meanwhile.
static CHANGING: Mutex<()> = Mutex::new(());

/// The file that a sidecar belongs to. Stored, little-endian: u16 version = 2, then the fields in this order.
#[derive(Debug, PartialEq, Eq)]
struct SidecarFile {
    /// [`crate::FileKey::file`]
    number: u128,
    /// The stream's identity.
    stream: u64,
    /// Empty if it does not tell whether the file is still there: such a sidecar is never collected.
    handle: Vec<u8>,
}

/// What became of the file of a sidecar.
enum Former {
    /// It still names the sidecar.
    There(OwnedFd),
    Gone,
}

impl SidecarFile {
    fn encode(&self) -> Vec<u8> {
        let (number, stream) = (self.number.to_le_bytes(), self.stream.to_le_bytes());
        [&VERSION.to_le_bytes()[..], &number, &stream, &self.handle].concat()
    }

    fn decode(value: &[u8]) -> Option<SidecarFile> {
        let value = value.strip_prefix(&VERSION.to_le_bytes())?;
        let (number, value) = value.split_first_chunk()?;
        let (stream, handle) = value.split_first_chunk()?;
        Some(SidecarFile {
            number: u128::from_le_bytes(*number),
            stream: u64::from_le_bytes(*stream),
            handle: handle.to_vec(),
        })
    }

    fn of(sidecar: &OwnedFd) -> Result<SidecarFile, Errno> {
        SidecarFile::decode(&Target::Fd(sidecar).get_all(FILE)?).ok_or(Errno::INVAL)
    }

    /// # Errors
    /// `PERM` without CAP_DAC_READ_SEARCH.
    fn find(&self, mount: BorrowedFd<'_>, sidecar: u128) -> Result<Former, Errno> {
        if self.handle.is_empty() {
            return Err(Errno::OPNOTSUPP);
        }
        let found = match handle::open(mount, &self.handle) {
            Err(Errno::STALE) => return Ok(Former::Gone),
            found => found?,
        };
        if volume::file(&node::statx(&found)?) != self.number {
            return Ok(Former::Gone); // the file's number was reused
        }
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let is_named = record::names_sidecar(Target::Followed(&path), self.stream, sidecar);
        Ok(if is_named { Former::There(found) } else { Former::Gone })
    }
}

/// Stores the file of a sidecar with it, and gives it the file's owner.
pub(super) fn set_file(sidecar: &OwnedFd, file: BorrowedFd<'_>, stream: u64) -> Result<(), Errno> {
    let stat = node::statx(file)?;
    set_owner(sidecar, stat.stx_uid)?;
    let is_fuse = rustix::fs::fstatfs(file).is_ok_and(|f| f.f_type as u64 == FUSE);
    let handle = if is_fuse { Err(Errno::OPNOTSUPP) } else { handle::of(file) };
    let handle = handle.unwrap_or_else(|e| {
        tracing::debug!("the file of a stream has no handle: {e}");
        Vec::new()
    });
    let value = SidecarFile { number: volume::file(&stat), stream, handle }.encode();
    rustix::fs::fsetxattr(sidecar, FILE, &value, XattrFlags::empty())?;
    match rustix::fs::fremovexattr(sidecar, ORPHAN_SINCE) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

/// A server without CAP_CHOWN has files of its own only.
fn set_owner(sidecar: &OwnedFd, user: u32) -> Result<(), Errno> {
    if node::statx(sidecar)?.stx_uid == user {
        return Ok(());
    }
    match rustix::fs::fchown(sidecar, Some(rustix::fs::Uid::from_raw(user)), None) {
        Err(Errno::PERM) => Ok(()),
        changed => changed,
    }
}

/// The sidecar of a stream, of which the record names `found`: that one, if it belongs to this file, or a copy. The
/// file's streams are locked.
///
/// # Errors
/// `Damaged` when it belongs to a file of another owner.
pub(super) fn own(file: &Open, record: &Record, found: OwnedFd) -> VfsResult<OwnedFd> {
    if SidecarFile::of(&found).is_ok_and(|of| of.number == file.shared.id.file) {
        return Ok(found);
    }
    if node::statx(&found)?.stx_uid != node::statx(&*file.fd)?.stx_uid {
        tracing::warn!(file = ?file.shared.id, "the data of a stream belongs to a file of another owner");
        return Err(VfsError::Damaged);
    }
    if file.shared.tree.info.read_only {
        return Ok(found);
    }
    create(file, record, |copy| data::copy(&found, copy))
}

/// Removes a sidecar if it belongs to this file.
pub(super) fn remove(store: &Store, number: u128, sidecar: u128) -> Result<(), Errno> {
    let _one = CHANGING.lock();
    if SidecarFile::of(&store.open_sidecar(sidecar)?).is_ok_and(|of| of.number == number) {
        rustix::fs::unlinkat(&store.fd, name(sidecar), AtFlags::empty())?;
    }
    Ok(())
}

impl Store {
    /// Searches for the files of sidecars whose own file is gone, and removes those that were found without one `kept`
    /// ago. Returns how many. Without CAP_DAC_READ_SEARCH none can be found.
    pub(in crate::hostdir) fn collect(&self, kept: Duration) -> usize {
        let mut orphans: BTreeMap<u128, Vec<SidecarFile>> = BTreeMap::new();
        for sidecar in self.list().unwrap_or_default() {
            match self.open_sidecar(sidecar).and_then(|found| self.is_orphan(sidecar, &found)) {
                Ok(true) => _ = orphans.insert(sidecar, Vec::new()),
                Ok(false) => {}
                Err(Errno::PERM) => {
                    tracing::info!("orphaned streams are kept: finding them needs CAP_DAC_READ_SEARCH");
                    return 0;
                }
                Err(e) => {
                    tracing::debug!("a stream is kept: its file could not be searched for: {e}");
                }
            }
        }
        if orphans.is_empty() {
            return 0;
        }
        for top in tops(self.volume) {
            let walked = self.walk(&top, &mut |file| note_names(file, &mut orphans));
            if let Err(e) = walked {
                tracing::warn!("orphaned streams are kept: the files of a share could not be read: {e}");
                return 0;
            }
        }
        orphans.retain(|sidecar, names| {
            if let Err(e) = self.give(*sidecar, names) {
                tracing::debug!("a stream stays without its file: {e}");
            }
            names.is_empty()
        });
        let orphans = orphans.into_keys();
        let remove = || orphans.filter(|s| self.remove_orphan(*s, kept) == Ok(true)).count();
        let removed = self.alone(remove).unwrap_or(0);
        if removed > 0 {
            tracing::info!(removed, "streams of files that no longer exist were removed");
        }
        removed
    }

    /// [`Store::collect`], when all trees are open.
    pub(super) fn collect_after_start(&self) {
        let mut open = 0;
        for _ in 0..WAITS {
            if std::mem::replace(&mut open, tops(self.volume).len()) == open {
                break;
            }
            std::thread::sleep(SETTLED);
        }
        self.collect(KEPT);
    }

    fn open_sidecar(&self, sidecar: u128) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name(sidecar), flags, Mode::empty())
    }

    /// Whether the file of a sidecar is gone, or does not name it. If it is there, the sidecar gets its owner, which may
    /// have changed.
    fn is_orphan(&self, sidecar: u128, found: &OwnedFd) -> Result<bool, Errno> {
        match SidecarFile::of(found)?.find(self.fd.as_fd(), sidecar)? {
            Former::Gone => Ok(true),
            Former::There(file) => set_owner(found, node::statx(&file)?.stx_uid).map(|()| false),
        }
    }

    /// Gives an orphan to the only file that names it. (If there are several, each gets a copy at its use.)
    fn give(&self, sidecar: u128, names: &[SidecarFile]) -> Result<(), Errno> {
        let (first, others) = names.split_first().ok_or(Errno::NOENT)?;
        // A file with several names, or in several trees, was found more than once.
        if others.iter().any(|other| other.number != first.number) {
            return Ok(());
        }
        let _one = CHANGING.lock();
        let (found, file) = (self.open_sidecar(sidecar)?, handle::open(self.fd.as_fd(), &first.handle)?);
        // A client may have used it meanwhile.
        if self.is_orphan(sidecar, &found)? && node::statx(&found)?.stx_uid == node::statx(&file)?.stx_uid {
            set_file(&found, file.as_fd(), first.stream)?;
            tracing::info!("a stream of a file that was restored or replaced was found");
        }
        Ok(())
    }

    /// Removes a sidecar without a file, if it has none for long enough.
    fn remove_orphan(&self, sidecar: u128, kept: Duration) -> Result<bool, Errno> {
        let _one = CHANGING.lock();
        let found = self.open_sidecar(sidecar)?;
        if !self.is_orphan(sidecar, &found)? {
            return Ok(false);
        }
        let now = env::Env::real().unix_time().as_secs();
        let since = match Target::Fd(&found).get_all(ORPHAN_SINCE) {
            Err(Errno::NODATA) => {
                rustix::fs::fsetxattr(&found, ORPHAN_SINCE, &now.to_le_bytes(), XattrFlags::empty())?;
                now
            }
            since => since?.first_chunk().map_or(now, |since| u64::from_le_bytes(*since)),
        };
        if now.saturating_sub(since) < kept.as_secs() {
            return Ok(false);
        }
        rustix::fs::unlinkat(&self.fd, name(sidecar), AtFlags::empty())?;
        Ok(true)
    }

    /// The sidecars.
    fn list(&self) -> Result<Vec<u128>, Errno> {
        let fd = rustix::fs::openat(&self.fd, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
        let (mut entries, mut all) = (RawDir::new(&fd, &mut buffer), Vec::new());
        let parse = |text: &str| u128::from_str_radix(text, 16).ok().filter(|sidecar| name(*sidecar) == text);
        while let Some(entry) = entries.next() {
            all.extend(entry?.file_name().to_str().ok().and_then(parse));
        }
        Ok(all)
    }

    /// Calls `visit` with each file and directory below `top` on this file system, opened with `O_PATH`.
    fn walk(
        &self,
        top: &Arc<OwnedFd>,
        visit: &mut dyn FnMut(OwnedFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        visit(rustix::io::fcntl_dupfd_cloexec(top, 0)?)?;
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
        // Each with its parent, because a path may be longer than a call accepts.
        let mut directories = vec![(Arc::clone(top), b".".to_vec())];
        while let Some((parent, directory)) = directories.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = match openat2(&*parent, &directory[..], flags, Mode::empty(), how) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue, // changed meanwhile
                fd => Arc::new(fd?),
            };
            let mut entries = RawDir::new(&*fd, &mut buffer);
            while let Some(entry) = entries.next() {
                let entry = match entry {
                    Err(Errno::NOENT) => break, // removed meanwhile
                    entry => entry?,
                };
                let file_name = entry.file_name().to_bytes();
                if matches!(file_name, b"." | b"..") {
                    continue;
                }
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = match rustix::fs::openat(&*fd, file_name, flags, Mode::empty()) {
                    Err(Errno::NOENT) => continue,
                    file => file?,
                };
                // Another file system below this one may not answer.
                let Ok(stat) = node::statx(&file) else { continue };
                let Some(kind) = node::kind(&stat) else { continue };
                if number(&stat) != self.directory_id.0 {
                    continue;
                }
                visit(file)?;
                if kind == Kind::Directory {
                    directories.push((Arc::clone(&fd), file_name.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// Notes a file that names orphans.
fn note_names(file: OwnedFd, orphans: &mut BTreeMap<u128, Vec<SidecarFile>>) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let named = match record::sidecars(Target::Followed(&path)) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        named => named?,
    };
    for (stream, sidecar) in named {
        if let Some(names) = orphans.get_mut(&sidecar) {
            let (number, handle) = (volume::file(&node::statx(&file)?), handle::of(file.as_fd())?);
            names.push(SidecarFile { number, stream, handle });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let of = SidecarFile { number: 1, stream: 2, handle: vec![4, 5] };
        let golden = b"\x02\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x04\x05";
        assert_eq!(of.encode(), golden);
        assert_eq!(SidecarFile::decode(golden), Some(of));
        for bad in [&golden[..25], b"\x01\0", b""] {
            assert_eq!(SidecarFile::decode(bad), None);
        }
    }
}
