//! Watched directories of a share, and the events of each open's watch (MS-FSA 2.1.5.11, MS-SMB2 3.3.1.3).
//!
//! The first CHANGE_NOTIFY on an open creates a watch, which exists until the open is closed or its directory is
//! deleted. Filter, depth and the size of its buffer are those of the first request. Events are buffered while no
//! request waits. When they exceed the buffer they are all dropped, and the next request is answered with
//! [`Report::Overflow`]: the client must list the directory.
//!
//! Invariants:
//! 1. A watch is in `by_path` under its `path` exactly while it is in `by_open`; `count` is their number.
//! 2. A watch has events, or an overflow, only while no request waits for it.
//! 3. `bytes` is the sum of the buffers, at most [`BYTES_MAX`].

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use smb_wire::NtStatus;
use smb_wire::fscc::notify::NotifyAction;
use smb_wire::msg::CompletionFilter;
use tokio::sync::oneshot;
use vfs::{VfsPath, WatchGuard};

use super::event::Notice;

/// The largest buffer of one watch, in bytes.
const BUFFER_MAX: usize = 64 << 10;
/// All buffers of one share together, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of an entry before its name (MS-FSCC 2.7.1).
const ENTRY_FIXED: usize = 12;

/// The watched directories of one share.
#[derive(Default)]
pub(crate) struct Watches {
    /// Number of watches: while it is zero, a change needs no further check.
    count: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    by_open: HashMap<u64, Watch>,
    by_path: HashMap<VfsPath, SmallVec<[u64; 2]>>,
    bytes: usize,
    next_request: u64,
}

/// One open's watch.
struct Watch {
    path: VfsPath,
    filter: CompletionFilter,
    tree: bool,
    capacity: usize,
    events: Vec<(NotifyAction, String)>,
    /// Bytes of `events` in the response.
    bytes: usize,
    overflowed: bool,
    /// Requests in the order in which they came.
    waiting: VecDeque<(u64, oneshot::Sender<Report>)>,
    /// Makes the backend report changes by other programs.
    _external_watch: Option<WatchGuard>,
}

/// The scope of a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) filter: CompletionFilter,
    /// The whole tree below the directory.
    pub(crate) tree: bool,
    /// The most bytes of events to keep.
    pub(crate) buffer: usize,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Actions and names, from the watched directory.
    Events(Vec<(NotifyAction, String)>),
    /// Events were lost: the client must list the directory.
    Overflow,
    /// The watch has ended: STATUS_NOTIFY_CLEANUP, STATUS_DELETE_PENDING.
    Ended(NtStatus),
}

/// A request's place in the queue of its watch.
pub(crate) struct ChangeWait<'w> {
    watches: &'w Watches,
    open: u64,
    request: u64,
    report: oneshot::Receiver<Report>,
}

impl Watches {
    /// Whether anything is watched: false costs a load.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether an open has a watch.
    pub(crate) fn has(&self, open: u64) -> bool {
        self.any() && self.inner.lock().by_open.contains_key(&open)
    }

    /// Requests the next events of an open's directory. Only an open's first request uses `scope` and `external_watch`,
    /// which makes the backend report changes of the directory.
    pub(crate) fn request(
        &self,
        open: u64,
        path: VfsPath,
        scope: Scope,
        external_watch: Option<WatchGuard>,
    ) -> ChangeWait<'_> {
        let (send, report) = oneshot::channel();
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.next_request += 1;
        let request = inner.next_request;
        let watch = inner.by_open.entry(open).or_insert_with(|| {
            inner.by_path.entry(path.clone()).or_default().push(open);
            self.count.fetch_add(1, Ordering::AcqRel);
            Watch::new(path, scope, external_watch)
        });
        watch.waiting.push_back((request, send));
        inner.bytes -= watch.deliver();
        ChangeWait { watches: self, open, request, report }
    }

    /// Ends the watch of an open that is being closed (MS-FSA 2.1.5.5).
    pub(crate) fn closed(&self, open: u64) {
        if self.any() {
            self.end(&mut self.inner.lock(), open, NtStatus::NOTIFY_CLEANUP);
        }
    }

    /// Ends the watches of a directory that will be deleted (MS-FSA 2.1.5.15.3).
    pub(crate) fn delete_pending(&self, path: &VfsPath) {
        if self.any() {
            let mut inner = self.inner.lock();
            for open in inner.by_path.get(path).cloned().unwrap_or_default() {
                self.end(&mut inner, open, NtStatus::DELETE_PENDING);
            }
        }
    }

    /// A directory was renamed: updates its watches. No file below it is open.
    pub(super) fn renamed(&self, from: &VfsPath, to: &VfsPath) {
        if self.any() {
            let mut inner = self.inner.lock();
            let Some(opens) = inner.by_path.remove(from) else { return };
            for open in &opens {
                if let Some(watch) = inner.by_open.get_mut(open) {
                    watch.path.clone_from(to);
                }
            }
            inner.by_path.entry(to.clone()).or_default().extend(opens);
        }
    }

    /// Adds events to the watches that they concern, and answers waiting requests. Notices of one call are delivered
    /// together.
    pub(super) fn report(&self, notices: &[Notice<'_>]) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let mut concerned = SmallVec::<[u64; 4]>::new();
        for (action, path, filter) in notices {
            let mut above = path.parent();
            let mut depth = 1;
            while let Some(directory) = above {
                for open in inner.by_path.get(&directory).into_iter().flatten() {
                    let Some(watch) = inner.by_open.get_mut(open) else { continue };
                    if watch.filter.intersects(*filter) && (depth == 1 || watch.tree) {
                        inner.bytes = watch.add(*action, path, inner.bytes);
                        concerned.push(*open);
                    }
                }
                above = directory.parent();
                depth += 1;
            }
        }
        for open in concerned {
            if let Some(watch) = inner.by_open.get_mut(&open) {
                inner.bytes -= watch.deliver();
            }
        }
    }

    /// Events were lost: all watches overflow.
    pub(crate) fn lost(&self) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for watch in inner.by_open.values_mut() {
            inner.bytes -= watch.overflow() + watch.deliver();
        }
    }

    fn end(&self, inner: &mut Inner, open: u64, status: NtStatus) {
        let Some(watch) = inner.by_open.remove(&open) else { return };
        inner.bytes -= watch.bytes;
        self.count.fetch_sub(1, Ordering::AcqRel);
        if let Some(opens) = inner.by_path.get_mut(&watch.path) {
            opens.retain(|o| *o != open);
            if opens.is_empty() {
                inner.by_path.remove(&watch.path);
            }
        }
        for (_, send) in watch.waiting {
            let _ = send.send(Report::Ended(status));
        }
    }
}

impl Watch {
    fn new(path: VfsPath, scope: Scope, _external_watch: Option<WatchGuard>) -> Watch {
        Watch {
            path,
            filter: scope.filter,
            tree: scope.tree,
            capacity: scope.buffer.min(BUFFER_MAX),
            events: Vec::new(),
            bytes: 0,
            overflowed: false,
            waiting: VecDeque::new(),
            _external_watch,
        }
    }

    /// Buffers an event. `total` is the bytes in the buffers of all watches; returns the new total.
    fn add(&mut self, action: NotifyAction, path: &VfsPath, total: usize) -> usize {
        if self.overflowed {
            return total;
        }
        let name = path.components()[self.path.components().len()..].join("\\");
        let bytes = (ENTRY_FIXED + 2 * name.encode_utf16().count()).next_multiple_of(4);
        if self.bytes + bytes > self.capacity || total + bytes > BYTES_MAX {
            return total - self.overflow();
        }
        self.events.push((action, name));
        self.bytes += bytes;
        total + bytes
    }

    /// Drops all events; returns their size in bytes.
    fn overflow(&mut self) -> usize {
        self.events = Vec::new();
        self.overflowed = true;
        std::mem::take(&mut self.bytes)
    }

    /// Answers the oldest request, if there are events or an overflow; returns the bytes taken from the buffer.
    fn deliver(&mut self) -> usize {
        while self.overflowed || !self.events.is_empty() {
            let Some((_, send)) = self.waiting.pop_front() else { return 0 };
            let report = match self.overflowed {
                true => Report::Overflow,
                false => Report::Events(std::mem::take(&mut self.events)),
            };
            self.overflowed = false;
            match send.send(report) {
                Ok(()) => return std::mem::take(&mut self.bytes),
                // The request was dropped: the next one gets the events.
                Err(Report::Events(events)) => self.events = events,
                Err(_) => self.overflowed = true,
            }
        }
        0
    }
}

impl ChangeWait<'_> {
    /// The answer, if it is available already.
    pub(crate) fn ready(&mut self) -> Option<Report> {
        self.report.try_recv().ok()
    }

    /// Waits for the answer.
    pub(crate) async fn report(&mut self) -> Report {
        (&mut self.report).await.unwrap_or(Report::Ended(NtStatus::NOTIFY_CLEANUP))
    }

    /// Removes the request from the queue; false when it was answered already.
    pub(crate) fn withdraw(&self) -> bool {
        let mut inner = self.watches.inner.lock();
        let Some(watch) = inner.by_open.get_mut(&self.open) else { return false };
        let before = watch.waiting.len();
        watch.waiting.retain(|(request, _)| *request != self.request);
        watch.waiting.len() < before
    }
}

impl Drop for ChangeWait<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}
