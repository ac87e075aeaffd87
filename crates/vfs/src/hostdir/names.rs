//! Looking a name up without regard to case in a directory that the kernel looks up with regard to it.
//!
//! A directory that was searched is kept as a map from folded name to names, and the kernel's inotify keeps the map
//! exact: a change is in inotify's queue before the call that made it returns, whoever made it, and the queue is read
//! before the map is used. So making 10,000 files costs one reading of the directory, not 10,000. File systems that
//! other machines change (NFS, ...) have no such news, nor have directories past the limits: they are read each time.
//!
//! Invariants:
//! 1. A directory is in `directories` exactly when its watch is in `watches`.
//! 2. After [`Inner::catch_up`], a map holds the names that its directory had when the queue was last empty.
//! 3. `total` is the number of names in all maps, at most [`NAMES_MAX`].

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, RawDir, Statx};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::device::{self, Device};
use super::place::beneath;
use super::visible;
use crate::VfsResult;
use crate::fold::{fold, is_folded};

/// The most names kept, over all directories (about 150 bytes each).
const NAMES_MAX: usize = 1 << 18;
/// The most directories kept.
const DIRECTORIES_MAX: usize = 256;

/// Directories that were searched, kept exact.
#[derive(Default)]
pub(super) struct Names {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    inotify: Option<OwnedFd>,
    directories: HashMap<Key, Directory>,
    watches: HashMap<i32, Key>,
    total: usize,
    /// Counts searches, to find the directory that was used longest ago.
    tick: u64,
}

/// Device and number of a directory.
type Key = (u64, u64);

struct Directory {
    watch: i32,
    names: HashMap<String, SmallVec<[String; 1]>>,
    count: usize,
    used: u64,
}

impl Names {
    /// The name on the disk of what clients call `name` in the directory `fd`: the exact one if it is there,
    /// otherwise the first that differs in case only.
    pub(super) fn find(
        &self,
        fd: &OwnedFd,
        stat: &Statx,
        device: &Device,
        name: &str,
    ) -> VfsResult<Option<String>> {
        let folded = fold(name);
        if !device.local {
            return search(fd, name, &folded);
        }
        let mut inner = self.inner.lock();
        let key = (device::number(stat), stat.stx_ino);
        inner.catch_up();
        if !inner.directories.contains_key(&key) && !inner.learn(key, fd)? {
            drop(inner);
            return search(fd, name, &folded);
        }
        inner.tick += 1;
        let tick = inner.tick;
        Ok(inner.directories.get_mut(&key).and_then(|directory| {
            directory.used = tick;
            choose(directory.names.get(&folded)?.iter(), name).cloned()
        }))
    }
}

impl Inner {
    /// Reads a directory into a map; false when it cannot be watched or is too large.
    fn learn(&mut self, key: Key, fd: &OwnedFd) -> VfsResult<bool> {
        if self.inotify.is_none() {
            self.inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        }
        let Some(queue) = &self.inotify else { return Ok(false) };
        let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::ONLYDIR;
        // Watched before it is read, so nothing is missed; what is seen twice does no harm.
        let Ok(watch) = inotify::add_watch(queue, format!("/proc/self/fd/{}", fd.as_raw_fd()), changes)
        else {
            return Ok(false);
        };
        let mut directory = Directory { watch, names: HashMap::new(), count: 0, used: self.tick };
        let mut fits = true;
        let read = each_name(fd, |name| {
            directory.add(name);
            fits = directory.count <= NAMES_MAX;
            fits
        });
        if read.is_err() || !fits {
            let _ = inotify::remove_watch(queue, watch);
            read?;
            return Ok(false);
        }
        self.total += directory.count;
        self.watches.insert(watch, key);
        self.directories.insert(key, directory);
        while self.total > NAMES_MAX || self.directories.len() > DIRECTORIES_MAX {
            let oldest = self.directories.iter().filter(|d| *d.0 != key).min_by_key(|d| d.1.used);
            let Some(oldest) = oldest.map(|d| *d.0) else { break };
            self.forget(oldest);
        }
        self.catch_up();
        Ok(self.directories.contains_key(&key))
    }

    fn forget(&mut self, key: Key) {
        if let Some(directory) = self.directories.remove(&key) {
            self.total -= directory.count;
            self.watches.remove(&directory.watch);
            if let Some(queue) = &self.inotify {
                let _ = inotify::remove_watch(queue, directory.watch);
            }
        }
    }

    /// Applies what the kernel has queued.
    fn catch_up(&mut self) {
        let Some(queue) = self.inotify.take() else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&queue, &mut buffer);
        let mut lost = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    lost = true;
                    break;
                }
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                lost = true;
                continue;
            }
            let Some(key) = self.watches.get(&event.wd()).copied() else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                // The directory is gone, and the watch with it.
                self.watches.remove(&event.wd());
                if let Some(directory) = self.directories.remove(&key) {
                    self.total -= directory.count;
                }
                continue;
            }
            let Some(name) = event.file_name().and_then(|n| n.to_str().ok()) else { continue };
            let Some(directory) = self.directories.get_mut(&key) else { continue };
            let before = directory.count;
            if event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                directory.add(name);
            } else if event.events().intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                directory.remove(name);
            }
            self.total = self.total - before + directory.count;
        }
        if lost {
            // News were lost: begin again, with a new queue.
            *self = Inner { tick: self.tick, ..Inner::default() };
        } else {
            self.inotify = Some(queue);
            if self.total > NAMES_MAX {
                let largest = self.directories.iter().max_by_key(|d| d.1.count).map(|d| *d.0);
                largest.into_iter().for_each(|key| self.forget(key));
            }
        }
    }
}

impl Directory {
    fn add(&mut self, disk: &str) {
        let Some(shown) = visible::shown(disk.as_bytes()) else { return };
        let same = self.names.entry(fold(&shown)).or_default();
        if !same.iter().any(|n| n == disk) {
            same.push(disk.to_owned());
            self.count += 1;
        }
    }

    fn remove(&mut self, disk: &str) {
        let Some(folded) = visible::shown(disk.as_bytes()).map(|n| fold(&n)) else { return };
        if let Some(same) = self.names.get_mut(&folded)
            && let Some(at) = same.iter().position(|n| n == disk)
        {
            same.remove(at);
            self.count -= 1;
            if same.is_empty() {
                self.names.remove(&folded);
            }
        }
    }
}

/// Reads the whole directory for one name.
fn search(fd: &OwnedFd, name: &str, folded: &str) -> VfsResult<Option<String>> {
    let mut found: SmallVec<[String; 1]> = SmallVec::new();
    each_name(fd, |disk| {
        if visible::shown(disk.as_bytes()).is_some_and(|shown| is_folded(&shown, folded)) {
            found.push(disk.to_owned());
        }
        found.len() < 16
    })?;
    Ok(choose(found.iter(), name).cloned())
}

/// The exact name if it is among `same`, otherwise the first in byte order, so that the choice does not depend on
/// the order of the directory.
fn choose<'a>(same: impl Iterator<Item = &'a String> + Clone, name: &str) -> Option<&'a String> {
    let exact = visible::stored(name);
    same.clone().find(|n| **n == exact).or_else(|| same.min())
}

/// Calls `each` with every UTF-8 name of the directory that `fd` (opened with `O_PATH`) is, until it returns false.
fn each_name(fd: &OwnedFd, mut each: impl FnMut(&str) -> bool) -> VfsResult<()> {
    let fd = beneath(fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(&fd, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Ok(name) = entry?.file_name().to_str()
            && name != "."
            && name != ".."
            && !each(name)
        {
            break;
        }
    }
    Ok(())
}
