//! Changes of a share that other programs make (`Vfs::watch`).
//!
//! The backend reports the server's own changes, too. So each report is delayed by [`DELAY`], until the server has
//! published its own change. Then:
//!
//! | report of                        | is dropped                                                              |
//! |----------------------------------|-------------------------------------------------------------------------|
//! | a name added, removed or renamed | once for each such change by the server of this name, within [`RECENT`] |
//! | data of an open file             | if the server changed it within [`LAG`], and the check below fails      |
//! | metadata of an open file         | always                                                                  |
//! | data or metadata of another file | if the server changed this name within [`RECENT`]                       |
//!
//! The check compares the file's last write time with the time when the server's last change of its data completed.
//! File systems stamp a write with a time that is not after its completion. So a later time is that of another program.
//! It is not if it is in the future or if a client has set it.
//!
//! Limits:
//! - On a network file system, writes by other programs within [`LAG`] of the server's are missed.
//! - So are those that set the last write time back.
//! - A write by another program is missed if the server changes the data afterwards and before the check, or less than a
//!   time step of the file system (10 ms) before it.
//! - A change of a name by another program is missed if the server has made the same one within [`RECENT`] and the
//!   backend has not reported that: for example, the folder was not watched yet.
//! - A file system whose clock is ahead of this machine's, by no more than the age of the write at the check (about
//!   [`DELAY`]), breaks caching without need.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use env::{Ctx, Env, Moment};
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use smb_wire::msg::CompletionFilter;
use tokio::sync::Notify;
use vfs::{ReportChange, Timestamp, TreeChange, VfsPath, WatchGuard};

use super::{Event, EventKind, Origin};
use crate::Server;
use crate::files::FileState;
use crate::files::caching::Operation;
use crate::share::Share;

/// How long a report waits for the server to publish the same change.
const DELAY: Duration = Duration::from_millis(100);
/// For how long a report about a name counts as the server's own change.
const RECENT: Duration = Duration::from_secs(2);
/// How long after a change of data by the server its report may arrive.
const LAG: Duration = Duration::from_millis(500);
/// How often a file is checked after a doubtful report while the server changes it: at intervals of [`DELAY`].
const CHECKS_MAX: usize = 20;
/// The most names remembered.
const NAMES_MAX: usize = 4096;
/// The most pending reports; beyond that, all watches overflow.
const REPORTS_MAX: usize = 4096;
/// Folders of cached files that stay watched when their last file is closed: those used last.
const FOLDERS_MAX: usize = 16;

/// Changes of one share by other programs.
pub(crate) struct ExternalChanges {
    env: Env,
    queue: Arc<ReportQueue>,
    /// One callback for all watches, so that a change is reported once.
    report: ReportChange,
    /// Names that the server has changed lately, by their hash.
    own_changes: Mutex<HashMap<u64, OwnChanges>>,
    /// Watches of the folders of cached files, the latest at the end.
    folders: Mutex<VecDeque<(VfsPath, Arc<WatchGuard>)>>,
}

/// The server's changes of one name.
struct OwnChanges {
    /// The time of the last one.
    at: Moment,
    /// How many were not reported yet, by [`NameChange`].
    unreported: [u32; 2],
}

#[derive(Clone, Copy)]
enum NameChange {
    Added,
    Removed,
}

#[derive(Default)]
struct ReportQueue {
    /// Reports with their time of arrival.
    reports: Mutex<Vec<(Moment, TreeChange)>>,
    arrived: Notify,
}

impl ExternalChanges {
    /// Watches a directory of a share: changes after this are reported. Returns `None` for a snapshot, which never
    /// changes.
    pub(crate) async fn watch(
        server: &Arc<Server>,
        share: &Arc<Share>,
        path: &VfsPath,
        tree: bool,
    ) -> Option<WatchGuard> {
        if share.is_snapshot {
            return None;
        }
        let external = share.external_changes.get_or_init(|| ExternalChanges::start(server, share));
        share.vfs()?.watch(path, tree, &external.report).wait().await
    }

    fn start(server: &Arc<Server>, share: &Arc<Share>) -> ExternalChanges {
        let (env, queue) = (server.env.clone(), Arc::<ReportQueue>::default());
        env.spawn(Arc::clone(&queue).run(env.clone(), Arc::downgrade(server), Arc::downgrade(share)));
        let (theirs, clock) = (Arc::clone(&queue), env.clone());
        let report: ReportChange = Arc::new(move |change| theirs.put(clock.moment(), change));
        ExternalChanges { env, queue, report, own_changes: Mutex::default(), folders: Mutex::default() }
    }

    /// Watches the folder of a file that is cached. One watch serves all files of a folder, also files that are opened
    /// later.
    pub(super) async fn watch_folder(
        server: &Arc<Server>,
        share: &Arc<Share>,
        folder: &VfsPath,
    ) -> Option<Arc<WatchGuard>> {
        let external = share.external_changes.get_or_init(|| ExternalChanges::start(server, share));
        let known = |folders: &VecDeque<(VfsPath, Arc<WatchGuard>)>| {
            folders.iter().find(|(path, _)| path == folder).map(|(_, guard)| Arc::clone(guard))
        };
        let watched = known(&external.folders.lock());
        if watched.is_some() {
            return watched;
        }
        let guard = Arc::new(ExternalChanges::watch(server, share, folder, false).await?);
        let mut folders = external.folders.lock();
        let watched = known(&folders);
        if watched.is_some() {
            return watched;
        }
        if folders.len() >= FOLDERS_MAX {
            folders.pop_front();
        }
        folders.push_back((folder.clone(), Arc::clone(&guard)));
        Some(guard)
    }

    /// The server has published this change of its own.
    pub(super) fn note_own_change(&self, event: &Event<'_>) {
        use NameChange::{Added, Removed};

        let (first, second) = match event.event_kind {
            EventKind::Added(_) | EventKind::Replaced => ((event.path, Some(Added)), None),
            EventKind::Removed(_) => ((event.path, Some(Removed)), None),
            EventKind::Renamed { to, .. } => ((event.path, Some(Removed)), Some((to, Some(Added)))),
            EventKind::Modified(_) => ((event.path, None), None),
        };
        let now = self.env.moment();
        let mut own_changes = self.own_changes.lock();
        if own_changes.len() >= NAMES_MAX {
            own_changes.retain(|_, own| is_recent(own.at, now));
        }
        if own_changes.len() >= NAMES_MAX {
            return;
        }
        for (name, name_change) in [Some(first), second].into_iter().flatten() {
            let own = own_changes.entry(hash(name)).or_insert(OwnChanges { at: now, unreported: [0; 2] });
            if !is_recent(own.at, now) {
                own.unreported = [0; 2];
            }
            own.at = now;
            if let Some(name_change) = name_change {
                own.unreported[name_change as usize] += 1;
            }
        }
    }

    /// Whether a report is of the server's own change, as far as the name tells. Each own change of a name excuses one
    /// report.
    fn is_own(&self, change: &TreeChange) -> bool {
        let now = self.env.moment();
        let mut own_changes = self.own_changes.lock();
        let mut take = |name: &VfsPath, name_change: NameChange| match own_changes.get_mut(&hash(name)) {
            Some(own) if is_recent(own.at, now) && own.unreported[name_change as usize] > 0 => {
                own.unreported[name_change as usize] -= 1;
                true
            }
            _ => false,
        };
        match change {
            TreeChange::Added(path, _) => take(path, NameChange::Added),
            TreeChange::Removed(path, _) => take(path, NameChange::Removed),
            TreeChange::Renamed { from, to, .. } => {
                let both = (take(from, NameChange::Removed), take(to, NameChange::Added)) == (true, true);
                // A rename over a name that differs in case only makes a second report, of a change of case.
                both || hash(from) == hash(to)
                    && own_changes.get(&hash(to)).is_some_and(|own| is_recent(own.at, now))
            }
            TreeChange::Data(path) | TreeChange::Metadata(path) => {
                own_changes.get(&hash(path)).is_some_and(|own| is_recent(own.at, now))
            }
            TreeChange::Lost => false,
        }
    }
}

impl Drop for ExternalChanges {
    fn drop(&mut self) {
        // Wakes the task, which ends as the share is gone.
        self.queue.arrived.notify_one();
    }
}

fn hash(name: &VfsPath) -> u64 {
    name.folded_hash::<FxHasher>()
}

fn since_1970(t: Timestamp) -> Duration {
    Duration::new(t.seconds.try_into().unwrap_or(0), t.nanoseconds)
}

fn is_recent(at: Moment, now: Moment) -> bool {
    u128::from(now.ns_since(at)) < RECENT.as_nanos()
}

impl ReportQueue {
    fn put(&self, now: Moment, change: TreeChange) {
        let mut reports = self.reports.lock();
        if reports.len() >= REPORTS_MAX {
            reports.clear();
            reports.push((now, TreeChange::Lost));
        } else {
            // Of equal consecutive reports only the last is kept.
            reports.pop_if(|(_, last)| *last == change);
            reports.push((now, change));
        }
        drop(reports);
        self.arrived.notify_one();
    }

    async fn run(self: Arc<Self>, env: Env, server: Weak<Server>, share: Weak<Share>) {
        loop {
            self.arrived.notified().await;
            // Taken before the delay, so that each report waits for the whole delay.
            let reports = std::mem::take(&mut *self.reports.lock());
            env.sleep(DELAY).await;
            let (Some(server), Some(share)) = (server.upgrade(), share.upgrade()) else { return };
            server.publish_external(&share, reports);
        }
    }
}

impl Server {
    fn publish_external(self: &Arc<Self>, share: &Arc<Share>, reports: Vec<(Moment, TreeChange)>) {
        let Some(external) = share.external_changes.get() else { return };
        let content = |c: &TreeChange| matches!(c, TreeChange::Data(_) | TreeChange::Metadata(_));
        // Whether the server made a change of content depends on the open file: checked below.
        let may_be_theirs = |(_, change): &(Moment, TreeChange)| content(change) || !external.is_own(change);
        let reports: Vec<_> = reports.into_iter().filter(may_be_theirs).collect();
        let open = match reports.is_empty() {
            true => HashMap::new(),
            false => self.files.open_paths(share),
        };
        let now = self.env.moment();
        // A network file system sets the time of a write when it is asked for it, so it tells nothing.
        let has_local_times = share.vfs().is_some_and(|vfs| vfs.info().local_times);
        let mut modified = HashSet::new();
        for (arrived, change) in reports {
            let own = match &change {
                // The server publishes its changes of an open file late: compare with the time of the change itself.
                TreeChange::Data(path) => match open.get(path) {
                    Some(file) if file.has_changed_since(arrived, LAG) => {
                        if has_local_times && file.add_doubt() {
                            let (server, share) = (Arc::clone(self), Arc::clone(share));
                            self.env.spawn(server.check_data(share, path.clone(), Arc::clone(file)));
                        }
                        true
                    }
                    Some(_) => false,
                    None => external.is_own(&change),
                },
                TreeChange::Metadata(path) => open.contains_key(path) || external.is_own(&change),
                _ => false,
            };
            if own {
                continue;
            }
            let (path, event_kind) = match &change {
                TreeChange::Lost => {
                    self.publish_lost(share);
                    continue;
                }
                TreeChange::Added(path, kind) => (path, EventKind::Added(*kind)),
                TreeChange::Removed(path, kind) => (path, EventKind::Removed(*kind)),
                TreeChange::Renamed { from, to, kind } => {
                    (from, EventKind::Renamed { to, kind: *kind, replaced: false })
                }
                TreeChange::Data(path) => (path, EventKind::Modified(DATA)),
                TreeChange::Metadata(path) => (path, EventKind::Modified(METADATA)),
            };
            // One event for many writes is enough.
            if content(&change) && !modified.insert(change.clone()) {
                continue;
            }
            match &change {
                TreeChange::Data(path) => {
                    if let Some(file) = open.get(path) {
                        self.send_breaks(file, &file.data_changed_externally(now).notices);
                    }
                }
                // The name is no longer that of the open file: clients must not use cached handles for it.
                TreeChange::Added(name, _) | TreeChange::Removed(name, _) => self.name_changed(&open, name),
                TreeChange::Renamed { from, to, .. } => {
                    [from, to].into_iter().for_each(|name| self.name_changed(&open, name));
                }
                TreeChange::Metadata(_) | TreeChange::Lost => {}
            }
            self.publish(share, &Event { path, event_kind, origin: Origin::OtherProgram });
        }
    }

    /// Checks whether another program has written to a file that the server has changed shortly before the report. One
    /// check at a time for each file; a report during the check repeats it.
    async fn check_data(self: Arc<Self>, share: Arc<Share>, path: VfsPath, file: Arc<FileState>) {
        loop {
            let doubts = file.doubts();
            let mut written = None;
            for _ in 0..CHECKS_MAX {
                written = self.is_written_by_others(&file).await;
                if written.is_some() {
                    break;
                }
                self.env.sleep(DELAY).await;
            }
            if written == Some(true) {
                let now = self.env.moment();
                self.send_breaks(&file, &file.data_changed_externally(now).notices);
                let event_kind = EventKind::Modified(DATA);
                self.publish(&share, &Event { path: &path, event_kind, origin: Origin::OtherProgram });
            }
            if file.end_check(doubts) {
                return;
            }
        }
    }

    /// Whether the last write to an open file is later than the server's last change. `None` while that is running, or
    /// has completed within [`DELAY`].
    async fn is_written_by_others(&self, file: &FileState) -> Option<bool> {
        let own = file.changed_at();
        let opens: Vec<_> = file.opens().into_iter().filter_map(|id| self.opens.find(id)).collect();
        let files = || opens.iter().filter_map(|open| open.file());
        if file.has_changed_since(self.env.moment(), DELAY) || files().any(|f| f.is_changing()) {
            return None;
        }
        let node = Arc::clone(&files().next()?.node);
        let Ok(stat) = node.stat(&Ctx::default()).wait().await else { return Some(false) };
        // In this order: a pause between the two calls must not make an own change seem earlier than it was.
        let (moment, now) = (self.env.moment(), self.env.unix_time());
        if file.changed_at() != own {
            return None;
        }
        let own = now.saturating_sub(Duration::from_nanos(moment.ns_since(own)));
        let written = since_1970(stat.written);
        let is_set = files().any(|f| f.fixed_times.lock().written == Some(stat.written));
        Some(own < written && written <= now && !is_set)
    }

    /// Breaks the caching of handles of the file that was opened under a name.
    fn name_changed(self: &Arc<Self>, open: &HashMap<VfsPath, Arc<FileState>>, name: &VfsPath) {
        if let Some(file) = open.get(name) {
            let contention = file.contend(None, None, Operation::Names, self.env.moment());
            self.send_breaks(file, &contention.notices);
        }
    }
}

const DATA: CompletionFilter = CompletionFilter::SIZE.union(CompletionFilter::LAST_WRITE);
/// The system does not report which part of the metadata changed.
const METADATA: CompletionFilter = CompletionFilter::ATTRIBUTES
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::CREATION)
    .union(CompletionFilter::EA)
    .union(CompletionFilter::SECURITY);
