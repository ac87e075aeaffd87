//! Case-insensitive lookup of names in directories of case-sensitive file systems.
//!
//! A directory that was searched is cached as a map from folded name to names, and inotify keeps the map exact: a
//! change by any program is in inotify's queue before the call that made it returns, and the queue is read before the
//! map is used. So creating 10,000 files costs one reading of the directory, not 10,000. File systems that other
//! machines change (NFS, ...) have no such events, and directories beyond the limits are not cached: these are read
//! each time. A directory is read into its map without holding the lock that all searches share; changes meanwhile are
//! recorded.
//!
//! Invariants:
//! 1. A directory is in `directories` exactly when its watch is in `watches`.
//! 2. After [`Inner::catch_up`], a map holds the names that its directory had when the queue was last empty.
//! 3. `total` is the number of names in all maps, at most `limit`.
//! 4. While `news` is set the map is invalid: the directory is being read, and searches in it read the disk.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, RawDir, Statx};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::device::{self, Device};
use super::resolve::beneath;
use super::streams::is_store;
use super::visible;
use crate::fold::{fold, is_folded};
use crate::{VfsResult, short_name};

/// The most names kept, over all directories (about 150 bytes each).
const NAMES_MAX: usize = 1 << 18;
/// The most directories cached, and the most remembered as too large.
const DIRECTORIES_MAX: usize = 256;
/// After this many searches a directory that was too large is tried again: it may have shrunk.
const AGAIN: u32 = 256;

/// The cache of searched directories.
pub(super) struct Names {
    inner: Mutex<Inner>,
}

impl Default for Names {
    fn default() -> Names {
        Names::new(NAMES_MAX)
    }
}

#[derive(Default)]
struct Inner {
    /// The most names kept.
    limit: usize,
    /// Directories with more names than that, and the searches left until they are tried again.
    large: HashMap<Key, u32>,
    inotify: Option<OwnedFd>,
    directories: HashMap<Key, Directory>,
    watches: HashMap<i32, Key>,
    total: usize,
    /// Counts searches, to evict the least recently used directory.
    tick: u64,
}

/// Device and number of a directory.
type Key = (u64, u64);

#[derive(Default)]
struct Directory {
    watch: i32,
    names: HashMap<String, SmallVec<[String; 1]>>,
    count: usize,
    used: u64,
    /// Names added (true) and removed while the directory is being read, in order.
    news: Option<Vec<(bool, String)>>,
}

impl Names {
    /// Keeps at most `limit` names.
    fn new(limit: usize) -> Names {
        Names { inner: Mutex::new(Inner { limit, ..Inner::default() }) }
    }

    /// The name on the disk that matches the client's `name` in the directory `fd`: the exact one if it exists,
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
        inner.tick += 1;
        let tick = inner.tick;
        match inner.directories.get(&key) {
            Some(directory) if directory.news.is_none() => {}
            // Another search is reading it: this one reads the directory itself, for its name only.
            Some(_) => {
                drop(inner);
                return search(fd, name, &folded);
            }
            None => {
                let begun = !inner.is_large(key) && inner.begin(key, fd);
                let limit = inner.limit;
                drop(inner);
                if !begun {
                    return search(fd, name, &folded);
                }
                let read = Directory::read(fd, limit);
                inner = self.inner.lock();
                if !inner.finish(key, tick, read)? {
                    drop(inner);
                    return search(fd, name, &folded);
                }
            }
        }
        Ok(inner.directories.get_mut(&key).and_then(|directory| {
            directory.used = tick;
            choose(directory.names.get(&folded)?.iter(), name).cloned()
        }))
    }
}

impl Inner {
    /// Whether a directory is known to have too many names for the cache. Counts this search.
    fn is_large(&mut self, key: Key) -> bool {
        match self.large.get_mut(&key) {
            None => false,
            Some(0) => {
                self.large.remove(&key);
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Watches a directory that will be read; false when it cannot be.
    fn begin(&mut self, key: Key, fd: &OwnedFd) -> bool {
        if self.inotify.is_none() {
            self.inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        }
        let Some(queue) = &self.inotify else { return false };
        let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::ONLYDIR;
        // Watched before it is read, so no change is missed; a change that is both read and reported is harmless.
        let Ok(watch) = inotify::add_watch(queue, format!("/proc/self/fd/{}", fd.as_raw_fd()), changes)
        else {
            return false;
        };
        let directory = Directory { watch, used: self.tick, news: Some(Vec::new()), ..Directory::default() };
        self.watches.insert(watch, key);
        self.directories.insert(key, directory);
        true
    }

    /// Stores the names read since [`Inner::begin`] at `tick`, and applies the changes meanwhile; false when the
    /// directory is not cached. `None`: it has too many names for the cache.
    fn finish(&mut self, key: Key, tick: u64, read: VfsResult<Option<Directory>>) -> VfsResult<bool> {
        self.catch_up();
        // Meanwhile the entry may have been removed, or events lost, and another search may have added it again.
        let ours = |d: &&mut Directory| d.used == tick && d.news.is_some();
        let Some(directory) = self.directories.get_mut(&key).filter(ours) else {
            return read.map(|_| false);
        };
        let Ok(Some(read)) = read else {
            self.forget(key);
            if read?.is_none() {
                if self.large.len() >= DIRECTORIES_MAX {
                    self.large.clear();
                }
                self.large.insert(key, AGAIN);
            }
            return Ok(false);
        };
        (directory.names, directory.count) = (read.names, read.count);
        for (came, name) in directory.news.take().unwrap_or_default() {
            if came { directory.add(&name) } else { directory.remove(&name) }
        }
        self.total += directory.count;
        while self.total > self.limit || self.directories.len() > DIRECTORIES_MAX {
            let oldest = self.directories.iter().filter(|d| *d.0 != key).min_by_key(|d| d.1.used);
            let Some(oldest) = oldest.map(|d| *d.0) else { break };
            self.forget(oldest);
        }
        if self.total > self.limit {
            self.forget(key); // with the names added meanwhile, this directory alone exceeds the limit
        }
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

    /// Applies the events in the kernel's queue.
    fn catch_up(&mut self) {
        let Some(queue) = self.inotify.take() else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&queue, &mut buffer);
        let (mut lost, mut overrun) = (false, None);
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
                // The directory was removed, which also ends its watch.
                self.watches.remove(&event.wd());
                if let Some(directory) = self.directories.remove(&key) {
                    self.total -= directory.count;
                }
                continue;
            }
            let Some(name) = event.file_name().and_then(|n| n.to_str().ok()) else { continue };
            let Some(directory) = self.directories.get_mut(&key) else { continue };
            let before = directory.count;
            let came = event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
            let went = event.events().intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
            if let Some(news) = &mut directory.news {
                if came || went {
                    news.push((came, name.to_owned()));
                }
                if news.len() > self.limit {
                    overrun = Some(key);
                }
                continue;
            }
            if came {
                directory.add(name);
            } else if went {
                directory.remove(name);
            }
            self.total = self.total - before + directory.count;
        }
        if lost {
            // Events were lost: clear the cache, and use a new queue.
            let large = std::mem::take(&mut self.large);
            *self = Inner { tick: self.tick, limit: self.limit, large, ..Inner::default() };
        } else {
            self.inotify = Some(queue);
            overrun.into_iter().for_each(|key| self.forget(key));
            if self.total > self.limit {
                let largest = self.directories.iter().max_by_key(|d| d.1.count).map(|d| *d.0);
                largest.into_iter().for_each(|key| self.forget(key));
            }
        }
    }
}

impl Directory {
    /// The names of the directory `fd`; `None` when they are more than `limit`.
    fn read(fd: &OwnedFd, limit: usize) -> VfsResult<Option<Directory>> {
        let mut directory = Directory::default();
        each_name(fd, |name| {
            directory.add(name);
            directory.count <= limit
        })?;
        Ok((directory.count <= limit).then_some(directory))
    }

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

/// The name on the disk whose short name is `short`; `None` unless exactly one name has it.
pub(super) fn find_short(fd: &OwnedFd, short: &str) -> VfsResult<Option<String>> {
    let mut found: SmallVec<[String; 1]> = SmallVec::new();
    each_name(fd, |disk| {
        let made = visible::shown(disk.as_bytes()).and_then(|shown| short_name(&shown));
        if made.is_some_and(|made| made.eq_ignore_ascii_case(short)) && !is_store(disk) {
            found.push(disk.to_owned());
        }
        found.len() < 2
    })?;
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// The exact name if it is in `same`, otherwise the first in byte order, so that the choice does not depend on the
/// order of the directory.
fn choose<'a>(same: impl Iterator<Item = &'a String> + Clone, name: &str) -> Option<&'a String> {
    let exact = visible::stored(name);
    same.clone().find(|n| **n == exact).or_else(|| same.min())
}

/// Calls `each` with every UTF-8 name of the directory `fd` (opened with `O_PATH`), until it returns false.
fn each_name(fd: &OwnedFd, mut each: impl FnMut(&str) -> bool) -> VfsResult<()> {
    #[cfg(test)]
    tests::READS.with(|n| n.set(n.get() + 1));
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use super::*;
    use crate::hostdir::{HostDirOptions, node};

    thread_local! {
        /// How often this thread has read a directory.
        pub(super) static READS: Cell<usize> = const { Cell::new(0) };
    }

    fn directory(path: &Path) -> (OwnedFd, Statx, Device) {
        let fd =
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("a directory");
        let stat = node::statx(&fd).expect("there");
        let device = Device::of(&fd, &HostDirOptions::default()).expect("known");
        (fd, stat, device)
    }

    fn files(path: &Path, names: std::ops::Range<usize>) {
        names.for_each(|i| std::fs::write(path.join(format!("File{i}")), "").expect("room"));
    }

    /// A directory that is too large is read once for each search, not twice; one that has shrunk is cached again.
    #[test]
    fn too_large_to_keep() {
        let dir = tempfile::tempdir().expect("a directory");
        files(dir.path(), 0..20);
        let (fd, stat, device) = directory(dir.path());
        let names = Names::new(10);
        let find = |name: &str| names.find(&fd, &stat, &device, name).expect("a search");
        let before = READS.get();
        for _ in 0..100 {
            assert_eq!(find("FILE7").as_deref(), Some("File7"));
        }
        assert_eq!(READS.get() - before, 101);
        (10..20).for_each(|i| std::fs::remove_file(dir.path().join(format!("File{i}"))).expect("there"));
        (0..AGAIN).for_each(|_| drop(find("FILE7")));
        let before = READS.get();
        assert_eq!((find("FILE9").as_deref(), find("FILE10")), (Some("File9"), None));
        assert_eq!(READS.get(), before, "it is kept");
    }

    /// Names added and removed while a directory is read are correct afterwards, whether the reading saw them or not.
    #[test]
    fn changed_while_it_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        files(dir.path(), 0..4);
        let (fd, stat, device) = directory(dir.path());
        let (names, key) = (Names::new(10), (device::number(&stat), stat.stx_ino));
        names.inner.lock().tick = 1;
        assert!(names.inner.lock().begin(key, &fd));
        std::fs::remove_file(dir.path().join("File0")).expect("there");
        files(dir.path(), 4..5);
        let read = Directory::read(&fd, 10);
        std::fs::remove_file(dir.path().join("File1")).expect("there");
        std::fs::rename(dir.path().join("File2"), dir.path().join("File6")).expect("free");
        files(dir.path(), 5..6);
        let find = |name: &str| names.find(&fd, &stat, &device, name).expect("a search").is_some();
        let there = ["FILE0", "FILE1", "FILE2", "FILE3", "FILE4", "FILE5", "FILE6"];
        let right = [false, false, false, true, true, true, true];
        assert_eq!(there.map(find), right, "on the disk");
        let tick = names.inner.lock().directories[&key].used;
        assert_eq!(names.inner.lock().finish(key, tick, read), Ok(true));
        let before = READS.get();
        assert_eq!(there.map(find), right, "in the map");
        assert_eq!(READS.get(), before);
    }
}
