//! Watches directories for changes by any program: inotify, one instance and one thread for each tree.
//!
//! The thread starts with the first watch and ends with the last: users may have few inotify instances
//! (`fs.inotify.max_user_instances`). A watch begins in the call that makes it, on the caller's thread, and is complete
//! when that returns: later changes are reported. The thread reads the events, and ends watches. A watch of a whole tree
//! is one inotify watch for each directory in it, at most [`WATCHES_MAX`] for all watches of the tree: directories
//! beyond that are not watched, which is reported as lost changes. So is a directory that cannot be watched. Later
//! directories are added when their creation event is read. Symbolic links are not followed. On file systems that other
//! machines change (NFS, …) only this machine's changes are seen.
//!
//! Invariants:
//! 1. An inotify watch is added, and entered into `directories`, with the state locked: its events are handled after that.
//! 2. The state is not locked during calls that may wait for a disk: a walk of a tree locks it once for each directory.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::resolve::beneath;
use super::{Tree, visible};
use crate::{Kind, ReportChange, TreeChange, VfsPath};

/// The most directories that watches of whole trees may include. It does not limit watches of single directories.
const WATCHES_MAX: usize = 65_536;
/// How long events are collected before the thread reads them.
const MERGE_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// The prefix of the names of this backend's own files.
const OWN_PREFIX: &str = ".causeway-";

const WATCHED_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// The watches of a tree, and their thread.
pub(super) struct Changes(Arc<Watcher>);

/// A request to the thread.
enum Command {
    Remove { id: u64 },
    End,
}

/// One watch; ends when dropped.
pub(super) struct Guard {
    changes: Arc<Changes>,
    id: u64,
}

struct Watcher {
    tree: Weak<Tree>,
    queue: OwnedFd,
    /// Wakes the thread for `commands`.
    wake: OwnedFd,
    commands: Mutex<Vec<Command>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    watches: HashMap<u64, Watched>,
    directories: HashMap<i32, Directory>,
    /// The warning that a directory cannot be watched was logged.
    has_warned: bool,
}

struct Watched {
    tree: bool,
    report: ReportChange,
    /// One of its directories is not watched; this was reported as lost changes.
    is_partial: bool,
}

/// A directory with an inotify watch.
#[derive(Clone)]
struct Directory {
    /// Its path as clients see it.
    path: Vec<String>,
    /// The watches that it belongs to.
    watches: Vec<u64>,
}

/// Why a directory is not watched.
enum NotWatched {
    Removed,
    Failed(String),
}

/// An event of inotify, copied out of its buffer.
struct Event {
    directory: i32,
    flags: ReadFlags,
    cookie: u32,
    name: String,
}

impl Changes {
    /// Starts the thread; `None` when the system has no free inotify instance.
    pub(super) fn start(tree: &Arc<Tree>) -> Option<Changes> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let queue = queue
            .inspect_err(|e| tracing::warn!("changes by other programs are not seen: inotify failed: {e}"))
            .ok()?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let watcher = Arc::new(Watcher {
            tree: Arc::downgrade(tree),
            queue,
            wake,
            commands: Mutex::default(),
            state: Mutex::default(),
        });
        let theirs = Arc::clone(&watcher);
        std::thread::Builder::new().name("vfs-changes".into()).spawn(move || theirs.work()).ok()?;
        Some(Changes(watcher))
    }

    /// Begins a watch. Opens the directory, and with `recursive` all directories below it.
    pub(super) fn watch(
        self: &Arc<Self>,
        tree: &Tree,
        directory: &VfsPath,
        recursive: bool,
        report: &ReportChange,
    ) -> Guard {
        let id = {
            let mut state = self.0.state.lock();
            state.next_id += 1;
            let id = state.next_id;
            let watched = Watched { tree: recursive, report: Arc::clone(report), is_partial: false };
            state.watches.insert(id, watched);
            id
        };
        let guard = Guard { changes: Arc::clone(self), id };
        self.0.add(tree, id, directory.components().to_vec(), recursive, None);
        guard
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.0.send(Command::End);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.changes.0.send(Command::Remove { id: self.id });
    }
}

impl Watcher {
    fn send(&self, command: Command) {
        self.commands.lock().push(command);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn work(&self) {
        loop {
            let mut wait = [PollFd::new(&self.queue, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut wait, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!("changes by other programs are no longer seen: {error}");
                    return;
                }
            }
            // While this waits, the kernel merges equal consecutive events, so that a file that is being written causes
            // few of them.
            if wait[0].revents().contains(PollFlags::IN) {
                let _ = poll(&mut wait[1..], Some(&MERGE_DELAY));
            }
            self.read();
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            let commands = std::mem::take(&mut *self.commands.lock());
            for command in commands {
                match command {
                    Command::Remove { id } => self.remove(id),
                    Command::End => return,
                }
            }
        }
    }

    /// Watches a directory, and with `recursive` the directories below it. Adds its existing entries to `found`, if
    /// given.
    fn add(
        &self,
        tree: &Tree,
        id: u64,
        path: Vec<String>,
        recursive: bool,
        mut found: Option<&mut Vec<TreeChange>>,
    ) {
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            let Ok(directory) = tree.directory(&path) else { continue };
            match self.add_one(id, &path, &directory.fd, recursive) {
                Ok(()) => {}
                // The directory was removed or replaced meanwhile.
                Err(NotWatched::Removed) => continue,
                Err(NotWatched::Failed(why)) => return self.not_watched(id, &directory.disk, &why),
            }
            if !recursive {
                return;
            }
            each_entry(&directory.fd, |name, kind| {
                let Some(path) = child(&path, name) else { return };
                if kind == Kind::Directory {
                    waiting.push(path.components().to_vec());
                }
                if let Some(found) = &mut found {
                    found.push(TreeChange::Added(path, kind));
                }
            });
        }
    }

    /// Adds an open directory to a watch.
    fn add_one(&self, id: u64, path: &[String], fd: &OwnedFd, recursive: bool) -> Result<(), NotWatched> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut state = self.state.lock();
        let watch = inotify::add_watch(&self.queue, link, WATCHED_EVENTS).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => NotWatched::Removed,
            Errno::NOSPC => NotWatched::Failed("raise the system's fs.inotify.max_user_watches".into()),
            error => NotWatched::Failed(error.to_string()),
        })?;
        let is_beyond = state.directories.len() >= WATCHES_MAX && !state.directories.contains_key(&watch);
        if recursive && is_beyond {
            let _ = inotify::remove_watch(&self.queue, watch);
            return Err(NotWatched::Failed(format!("more than {WATCHES_MAX} directories")));
        }
        let directory = state.directories.entry(watch);
        let directory = directory.or_insert_with(|| Directory { path: path.to_vec(), watches: Vec::new() });
        if !directory.watches.contains(&id) {
            directory.watches.push(id);
        }
        Ok(())
    }

    /// Reports, once for each watch, that changes of a directory and perhaps of others are not detected.
    fn not_watched(&self, id: u64, directory: &impl std::fmt::Display, why: &str) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.has_warned, true) {
            tracing::warn!(
                "changes by other programs in {directory} and perhaps other directories are not seen: {why}"
            );
        }
        let watched = state.watches.get_mut(&id);
        let is_first = watched.is_some_and(|w| !std::mem::replace(&mut w.is_partial, true));
        drop(state);
        if is_first {
            self.report(&[id], &TreeChange::Lost);
        }
    }

    fn remove(&self, id: u64) {
        let mut state = self.state.lock();
        state.watches.remove(&id);
        state.directories.retain(|watch, directory| {
            directory.watches.retain(|w| *w != id);
            let used = !directory.watches.is_empty();
            if !used {
                let _ = inotify::remove_watch(&self.queue, *watch);
            }
            used
        });
    }

    /// Reports the events in the kernel's queue.
    fn read(&self) {
        let mut events = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        let mut lost = false;
        loop {
            match reader.next() {
                Ok(e) if e.events().contains(ReadFlags::QUEUE_OVERFLOW) => lost = true,
                Ok(e) => events.push(Event {
                    directory: e.wd(),
                    flags: e.events(),
                    cookie: e.cookie(),
                    name: e.file_name().and_then(|n| n.to_str().ok()).unwrap_or_default().to_owned(),
                }),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let mut events = events.into_iter().peekable();
        while let Some(event) = events.next() {
            if event.flags.contains(ReadFlags::IGNORED) {
                self.state.lock().directories.remove(&event.directory);
                continue;
            }
            // The two halves of a rename follow each other.
            let moved = event.flags.contains(ReadFlags::MOVED_FROM);
            let other = events.next_if(|next| {
                moved && next.flags.contains(ReadFlags::MOVED_TO) && next.cookie == event.cookie
            });
            self.happened(&event, other.as_ref());
        }
        if lost {
            let all: Vec<u64> = self.state.lock().watches.keys().copied().collect();
            self.report(&all, &TreeChange::Lost);
        }
    }

    fn happened(&self, event: &Event, other: Option<&Event>) {
        let Some(directory) = self.directory(event.directory) else { return };
        if self.is_unnamed(&directory, event) {
            return;
        }
        let from = child(&directory.path, &event.name);
        let mut watches = directory.watches;
        let kind = match event.flags.contains(ReadFlags::ISDIR) {
            true => Kind::Directory,
            false => Kind::File,
        };
        let target = other.and_then(|o| {
            let directory = self.directory(o.directory)?;
            Some((child(&directory.path, &o.name)?, directory.watches))
        });
        let change = match (from, target) {
            (Some(path), Some((to, more))) => {
                watches.extend(more);
                if kind == Kind::Directory {
                    self.rebase(&path, &to);
                }
                TreeChange::Renamed { from: path, to, kind }
            }
            // The former name is hidden: a new directory, for example, gets its name last.
            (None, Some((to, more))) => {
                watches = more;
                TreeChange::Added(to, kind)
            }
            (None, None) => return,
            (Some(path), None) if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) => {
                TreeChange::Added(path, kind)
            }
            (Some(path), None) if event.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) => {
                if kind == Kind::Directory {
                    self.forget_below(&path);
                }
                TreeChange::Removed(path, kind)
            }
            (Some(path), None) if event.flags.contains(ReadFlags::MODIFY) => TreeChange::Data(path),
            (Some(path), None) => TreeChange::Metadata(path),
        };
        self.report(&watches, &change);
        if let TreeChange::Added(path, Kind::Directory) = change {
            self.added(&path, &watches);
        }
    }

    fn directory(&self, watch: i32) -> Option<Directory> {
        self.state.lock().directories.get(&watch).cloned()
    }

    /// Whether an event concerns a file that was created without a name (`O_TMPFILE`), as this backend creates its
    /// files. While such a file is open, the kernel reports it as `#` and its inode number, even after it got a name.
    fn is_unnamed(&self, directory: &Directory, event: &Event) -> bool {
        let named = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let number = event.name.strip_prefix('#');
        if event.flags.intersects(named) || !number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
            return false;
        }
        let opened = self.tree.upgrade().and_then(|tree| tree.directory(&directory.path).ok());
        opened.is_none_or(|p| beneath(&p.fd, &event.name, OFlags::PATH, Mode::empty()).is_err())
    }

    /// A directory was added: extends the watches of whole trees. Reports its existing entries, some of them perhaps
    /// twice.
    fn added(&self, path: &VfsPath, watches: &[u64]) {
        let Some(tree) = self.tree.upgrade() else { return };
        let mut found = Vec::new();
        for id in watches {
            let recursive = self.state.lock().watches.get(id).is_some_and(|w| w.tree);
            if recursive {
                let first = found.is_empty().then_some(&mut found);
                self.add(&tree, *id, path.components().to_vec(), true, first);
            }
        }
        for change in found {
            self.report(watches, &change);
        }
    }

    /// A directory was renamed: updates the paths below it.
    fn rebase(&self, from: &VfsPath, to: &VfsPath) {
        for directory in self.state.lock().directories.values_mut() {
            if let Some(rest) = directory.path.strip_prefix(from.components()) {
                directory.path = to.components().iter().chain(rest).cloned().collect();
            }
        }
    }

    fn forget_below(&self, path: &VfsPath) {
        self.state.lock().directories.retain(|watch, directory| {
            let below = directory.path.starts_with(path.components());
            if below {
                let _ = inotify::remove_watch(&self.queue, *watch);
            }
            !below
        });
    }

    /// Calls the callback of each of these watches once.
    fn report(&self, watches: &[u64], change: &TreeChange) {
        let mut callbacks: Vec<ReportChange> = Vec::new();
        let state = self.state.lock();
        for watched in watches.iter().filter_map(|id| state.watches.get(id)) {
            if !callbacks.iter().any(|r| Arc::ptr_eq(r, &watched.report)) {
                callbacks.push(Arc::clone(&watched.report));
            }
        }
        drop(state);
        callbacks.iter().for_each(|report| report(change.clone()));
    }
}

/// The path of an entry as shown to clients; `None` for hidden entries, and for this backend's own files.
fn child(directory: &[String], disk: &str) -> Option<VfsPath> {
    if disk.is_empty() || disk.starts_with(OWN_PREFIX) {
        return None;
    }
    let name = visible::shown(disk.as_bytes())?;
    VfsPath::from_parts(directory.to_vec()).join(&name).ok()
}

/// Calls `each` with the name and kind of every entry of a directory (opened with `O_PATH`).
fn each_entry(fd: &OwnedFd, mut each: impl FnMut(&str, Kind)) {
    let Ok(fd) = beneath(fd, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) else { return };
    let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(&fd, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        match entry.file_type() {
            FileType::Directory => each(name, Kind::Directory),
            FileType::RegularFile => each(name, Kind::File),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
