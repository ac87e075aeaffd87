//! Watches directories for changes by any program: inotify, one instance and one thread for each tree.
//!
//! The thread starts with the first watch and ends with the last: users may have few inotify instances
//! (`fs.inotify.max_user_instances`). It owns all state; other threads send it [`Command`]s. A watch of a whole tree is
//! one inotify watch for each directory in it, at most [`WATCHES_MAX`] for all watches of the tree: directories beyond
//! that are not watched, which is reported as lost changes. So is a directory that cannot be watched. Later directories are added when their creation event is read. Symbolic links are not
//! followed. On file systems that other machines change (NFS, …) only this machine's changes are seen.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::place::beneath;
use super::{Tree, visible};
use crate::{Kind, ReportChange, TreeChange, VfsPath};

/// Directories that watches of whole trees have at most; a watch of one directory is not refused for that.
const WATCHES_MAX: usize = 65_536;
/// For how long events are gathered before they are read.
const GATHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// The prefix of the names of this backend's own files.
const OWN_PREFIX: &str = ".causeway-";

const SEEN: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// The handle of a tree's thread.
pub(super) struct Changes {
    mailbox: Arc<Mailbox>,
    next: AtomicU64,
}

struct Mailbox {
    wake: OwnedFd,
    commands: Mutex<Vec<Command>>,
}

enum Command {
    Add { id: u64, directory: VfsPath, tree: bool, report: ReportChange },
    Remove { id: u64 },
    End,
}

/// One watch; ends when dropped.
pub(super) struct Guard {
    changes: Arc<Changes>,
    id: u64,
}

/// The state of the thread.
struct Watcher {
    tree: Weak<Tree>,
    queue: OwnedFd,
    watches: HashMap<u64, Watched>,
    directories: HashMap<i32, Directory>,
    /// That a directory cannot be watched is logged once.
    has_warned: bool,
}

struct Watched {
    tree: bool,
    report: ReportChange,
    /// A directory of it is not watched, which was reported.
    is_partial: bool,
}

/// A directory with an inotify watch.
struct Directory {
    /// Its path as clients see it.
    path: Vec<String>,
    /// The watches that it belongs to.
    watches: Vec<u64>,
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
        let mailbox = Arc::new(Mailbox { wake, commands: Mutex::default() });
        let watcher = Watcher {
            tree: Arc::downgrade(tree),
            queue,
            watches: HashMap::new(),
            directories: HashMap::new(),
            has_warned: false,
        };
        let theirs = Arc::clone(&mailbox);
        std::thread::Builder::new().name("vfs-changes".into()).spawn(move || watcher.work(&theirs)).ok()?;
        Some(Changes { mailbox, next: AtomicU64::new(1) })
    }

    pub(super) fn watch(self: &Arc<Self>, directory: &VfsPath, tree: bool, report: &ReportChange) -> Guard {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (directory, report) = (directory.clone(), Arc::clone(report));
        self.mailbox.send(Command::Add { id, directory, tree, report });
        Guard { changes: Arc::clone(self), id }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.mailbox.send(Command::End);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.changes.mailbox.send(Command::Remove { id: self.id });
    }
}

impl Mailbox {
    /// A watch that ends before the thread has begun it is removed from the queue: so the queue is no longer than the
    /// number of watches.
    fn send(&self, command: Command) {
        let mut commands = self.commands.lock();
        if let Command::Remove { id } = command
            && let Some(at) =
                commands.iter().position(|c| matches!(c, Command::Add { id: i, .. } if *i == id))
        {
            commands.remove(at);
            return;
        }
        commands.push(command);
        drop(commands);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<Command> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.commands.lock())
    }
}

impl Watcher {
    fn work(mut self, mailbox: &Mailbox) {
        loop {
            let mut wait =
                [PollFd::new(&self.queue, PollFlags::IN), PollFd::new(&mailbox.wake, PollFlags::IN)];
            match poll(&mut wait, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!("changes by other programs are no longer seen: {error}");
                    return;
                }
            }
            // While this waits, the kernel merges equal consecutive events, so that few remain of a file that is being
            // written.
            if wait[0].revents().contains(PollFlags::IN) {
                let _ = poll(&mut wait[1..], Some(&GATHER));
            }
            let commands = mailbox.take();
            // What happened before a watch began belongs to the earlier watches of its directory only.
            self.read();
            for command in commands {
                match command {
                    Command::Add { id, directory, tree, report } => {
                        self.watches.insert(id, Watched { tree, report, is_partial: false });
                        self.add(id, directory.components().to_vec(), tree, None);
                    }
                    Command::Remove { id } => self.remove(id),
                    Command::End => return,
                }
            }
        }
    }

    /// Watches a directory, and with `tree` the directories below it. Adds its existing entries to `found`, if given.
    fn add(&mut self, id: u64, path: Vec<String>, tree: bool, mut found: Option<&mut Vec<TreeChange>>) {
        let Some(this) = self.tree.upgrade() else { return };
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            let Ok(place) = this.directory(&path) else { continue };
            let link = format!("/proc/self/fd/{}", place.fd.as_raw_fd());
            let watch = match inotify::add_watch(&self.queue, link, SEEN) {
                Ok(watch) if tree && self.is_beyond(watch) => {
                    let _ = inotify::remove_watch(&self.queue, watch);
                    return self.not_watched(
                        id,
                        &place.disk,
                        &format!("more than {WATCHES_MAX} directories"),
                    );
                }
                Ok(watch) => watch,
                // The directory was removed or replaced meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(Errno::NOSPC) => {
                    return self.not_watched(
                        id,
                        &place.disk,
                        "raise the system's fs.inotify.max_user_watches",
                    );
                }
                Err(error) => return self.not_watched(id, &place.disk, &error.to_string()),
            };
            let directory = self.directories.entry(watch);
            let directory =
                directory.or_insert_with(|| Directory { path: path.clone(), watches: Vec::new() });
            if !directory.watches.contains(&id) {
                directory.watches.push(id);
            }
            if !tree {
                return;
            }
            each_entry(&place.fd, |name, kind| {
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

    fn is_beyond(&self, watch: i32) -> bool {
        self.directories.len() >= WATCHES_MAX && !self.directories.contains_key(&watch)
    }

    /// Changes of a directory, and perhaps of others, are not seen by a watch.
    fn not_watched(&mut self, id: u64, directory: &impl std::fmt::Display, why: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "changes by other programs in {directory} and perhaps other directories are not seen: {why}"
            );
        }
        if let Some(watched) = self.watches.get_mut(&id)
            && !std::mem::replace(&mut watched.is_partial, true)
        {
            self.report(&[id], &TreeChange::Lost);
        }
    }

    fn remove(&mut self, id: u64) {
        self.watches.remove(&id);
        let queue = &self.queue;
        self.directories.retain(|watch, directory| {
            directory.watches.retain(|w| *w != id);
            let used = !directory.watches.is_empty();
            if !used {
                let _ = inotify::remove_watch(queue, *watch);
            }
            used
        });
    }

    /// Reports the events in the kernel's queue.
    fn read(&mut self) {
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
                self.directories.remove(&event.directory);
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
            let all: Vec<u64> = self.watches.keys().copied().collect();
            self.report(&all, &TreeChange::Lost);
        }
    }

    fn happened(&mut self, event: &Event, other: Option<&Event>) {
        let Some(directory) = self.directories.get(&event.directory) else { return };
        if self.is_unnamed(directory, event) {
            return;
        }
        let Some(path) = child(&directory.path, &event.name) else { return };
        let mut watches = directory.watches.clone();
        let kind = match event.flags.contains(ReadFlags::ISDIR) {
            true => Kind::Directory,
            false => Kind::File,
        };
        let target = other.and_then(|o| {
            let directory = self.directories.get(&o.directory)?;
            Some((child(&directory.path, &o.name)?, directory.watches.clone()))
        });
        let change = match target {
            Some((to, more)) => {
                watches.extend(more);
                if kind == Kind::Directory {
                    self.rebase(&path, &to);
                }
                TreeChange::Renamed { from: path, to, kind }
            }
            None if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) => {
                TreeChange::Added(path, kind)
            }
            None if event.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) => {
                if kind == Kind::Directory {
                    self.forget_below(&path);
                }
                TreeChange::Removed(path, kind)
            }
            None if event.flags.contains(ReadFlags::MODIFY) => TreeChange::Data(path),
            None => TreeChange::Metadata(path),
        };
        self.report(&watches, &change);
        if let TreeChange::Added(path, Kind::Directory) = change {
            self.added(&path, &watches);
        }
    }

    /// Whether an event is of a file that was opened without a name (`O_TMPFILE`), as this backend makes all its files:
    /// the kernel calls it `#` and its inode number, for as long as it is open, even if it has got a name since.
    fn is_unnamed(&self, directory: &Directory, event: &Event) -> bool {
        let named = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let number = event.name.strip_prefix('#');
        if event.flags.intersects(named) || !number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
            return false;
        }
        let place = self.tree.upgrade().and_then(|tree| tree.directory(&directory.path).ok());
        place.is_none_or(|p| beneath(&p.fd, &event.name, OFlags::PATH, Mode::empty()).is_err())
    }

    /// A directory was added: extends the watches of whole trees. Reports its existing entries, some of them perhaps
    /// twice.
    fn added(&mut self, path: &VfsPath, watches: &[u64]) {
        let mut found = Vec::new();
        for id in watches {
            if self.watches.get(id).is_some_and(|w| w.tree) {
                let first = found.is_empty().then_some(&mut found);
                self.add(*id, path.components().to_vec(), true, first);
            }
        }
        for change in found {
            self.report(watches, &change);
        }
    }

    /// A directory was renamed: updates the paths below it.
    fn rebase(&mut self, from: &VfsPath, to: &VfsPath) {
        for directory in self.directories.values_mut() {
            if let Some(rest) = directory.path.strip_prefix(from.components()) {
                directory.path = to.components().iter().chain(rest).cloned().collect();
            }
        }
    }

    fn forget_below(&mut self, path: &VfsPath) {
        let queue = &self.queue;
        self.directories.retain(|watch, directory| {
            let below = directory.path.starts_with(path.components());
            if below {
                let _ = inotify::remove_watch(queue, *watch);
            }
            !below
        });
    }

    /// Calls the callback of each of these watches once.
    fn report(&self, watches: &[u64], change: &TreeChange) {
        let mut called: Vec<&ReportChange> = Vec::new();
        for watched in watches.iter().filter_map(|id| self.watches.get(id)) {
            if !called.iter().any(|r| Arc::ptr_eq(r, &watched.report)) {
                (watched.report)(change.clone());
                called.push(&watched.report);
            }
        }
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
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{HostDir, HostDirOptions, Vfs};

    fn path(text: &str) -> VfsPath {
        VfsPath::parse(text).expect("legal")
    }

    struct Seen(mpsc::Receiver<TreeChange>);

    impl Seen {
        fn on(vfs: &HostDir, at: &str, tree: bool) -> (Seen, crate::WatchGuard) {
            let (send, receive) = mpsc::channel();
            let report: ReportChange = Arc::new(move |change| {
                let _ = send.send(change);
            });
            let guard = vfs.watch(&path(at), tree, &report).expect("there is inotify");
            (Seen(receive), guard)
        }

        /// The next change that is not one of metadata or data.
        fn next(&self) -> TreeChange {
            loop {
                match self.0.recv_timeout(Duration::from_secs(20)).expect("something happens") {
                    TreeChange::Data(_) | TreeChange::Metadata(_) => {}
                    change => return change,
                }
            }
        }
    }

    /// Waits until the thread has taken all commands.
    fn settle(vfs: &HostDir, at: &std::path::Path, seen: &Seen) {
        for i in 0.. {
            std::fs::write(at.join(format!("probe{i}")), "").expect("written");
            if seen.0.recv_timeout(Duration::from_millis(50)).is_ok() {
                break;
            }
        }
        let _ = vfs;
        while seen.0.recv_timeout(Duration::from_millis(200)).is_ok() {}
    }

    #[test]
    fn another_program_changes_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let vfs = HostDir::open(dir.path(), HostDirOptions::default()).expect("opens");
        std::fs::create_dir(dir.path().join("Sub")).expect("made");
        let (seen, guard) = Seen::on(&vfs, "sub", false);
        let at = dir.path().join("Sub");
        settle(&vfs, &at, &seen);
        std::fs::write(at.join("f"), "x").expect("written");
        assert_eq!(seen.next(), TreeChange::Added(path("sub\\f"), Kind::File));
        std::fs::rename(at.join("f"), at.join("g")).expect("renamed");
        let (from, to, kind) = (path("sub\\f"), path("sub\\g"), Kind::File);
        assert_eq!(seen.next(), TreeChange::Renamed { from, to, kind });
        std::fs::rename(at.join("g"), dir.path().join("g")).expect("moved out");
        assert_eq!(seen.next(), TreeChange::Removed(path("sub\\g"), Kind::File));
        std::fs::create_dir_all(at.join("d\\e")).expect("a name that clients see otherwise");
        assert!(matches!(seen.next(), TreeChange::Added(_, Kind::Directory)));
        drop(guard);
        assert!(seen.0.recv_timeout(Duration::from_secs(20)).is_err(), "the report is dropped");
    }

    /// A file created without a name and named later is reported with its final name only.
    #[test]
    fn a_file_without_a_name() {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;

        let dir = tempfile::tempdir().expect("a directory");
        let vfs = HostDir::open(dir.path(), HostDirOptions::default()).expect("opens");
        let (seen, _guard) = Seen::on(&vfs, "", false);
        settle(&vfs, dir.path(), &seen);
        let flags = OFlags::TMPFILE.bits() as i32;
        let file = std::fs::File::options().write(true).custom_flags(flags).open(dir.path());
        let mut file = file.expect("a file system with O_TMPFILE");
        file.write_all(b"x").expect("written");
        let proc = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(
            rustix::fs::CWD,
            proc,
            rustix::fs::CWD,
            dir.path().join("named"),
            rustix::fs::AtFlags::SYMLINK_FOLLOW,
        )
        .expect("linked");
        file.write_all(b"y").expect("written");
        std::fs::write(dir.path().join("#17"), "").expect("a file that looks alike");
        let mut paths = Vec::new();
        while let Ok(change) = seen.0.recv_timeout(Duration::from_millis(500)) {
            match change {
                TreeChange::Added(path, _) | TreeChange::Data(path) | TreeChange::Metadata(path) => {
                    paths.push(path)
                }
                other => panic!("{other:?}"),
            }
        }
        paths.dedup();
        assert_eq!(paths, [path("named"), path("#17")]);
    }

    #[test]
    fn a_tree_grows() {
        let dir = tempfile::tempdir().expect("a directory");
        let vfs = HostDir::open(dir.path(), HostDirOptions::default()).expect("opens");
        let (seen, _guard) = Seen::on(&vfs, "", true);
        settle(&vfs, dir.path(), &seen);
        std::fs::create_dir(dir.path().join("a")).expect("made");
        std::fs::write(dir.path().join("a/f"), "").expect("written");
        assert_eq!(seen.next(), TreeChange::Added(path("a"), Kind::Directory));
        assert_eq!(seen.next(), TreeChange::Added(path("a\\f"), Kind::File));
        while seen.0.recv_timeout(Duration::from_millis(200)).is_ok() {}
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).expect("renamed");
        std::fs::write(dir.path().join("b/g"), "").expect("written");
        let (from, to, kind) = (path("a"), path("b"), Kind::Directory);
        assert_eq!(seen.next(), TreeChange::Renamed { from, to, kind });
        assert_eq!(seen.next(), TreeChange::Added(path("b\\g"), Kind::File));
    }
}
