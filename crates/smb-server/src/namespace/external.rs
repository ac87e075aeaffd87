//! Changes of a share that other programs make (`Vfs::watch`).
//!
//! The backend reports the server's own changes, too. So each report is delayed by [`DELAY`], until the server has
//! published its own change. A report is dropped if the server has published a change of the same name lately
//! ([`RECENT`]), has changed data of that file shortly before ([`LAG`]), or has the file open whose metadata changed. A
//! change of the same name by another program in that time is missed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use env::{Env, Moment};
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use smb_wire::msg::CompletionFilter;
use tokio::sync::Notify;
use vfs::{ReportChange, TreeChange, VfsPath, WatchGuard};

use super::{Event, EventKind, Origin};
use crate::Server;
use crate::files::FileState;
use crate::files::caching::Operation;
use crate::share::Share;

/// How long a report waits for the server to publish the same change.
const DELAY: Duration = Duration::from_millis(100);
/// For how long a report about a name counts as the server's own change.
const RECENT: Duration = Duration::from_secs(2);
/// How long after a change of data its report may arrive.
const LAG: Duration = Duration::from_millis(500);
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
    own_changes: Mutex<HashMap<u64, Moment>>,
    /// Watches of the folders of cached files, the latest at the end.
    folders: Mutex<VecDeque<(VfsPath, Arc<WatchGuard>)>>,
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

    /// The server has published a change of these names.
    pub(super) fn note_own_changes(&self, names: &[&VfsPath]) {
        let now = self.env.moment();
        let mut own_changes = self.own_changes.lock();
        if own_changes.len() >= NAMES_MAX {
            own_changes.retain(|_, at| is_recent(*at, now));
        }
        if own_changes.len() < NAMES_MAX {
            own_changes.extend(names.iter().map(|n| (hash(n), now)));
        }
    }

    fn is_own(&self, change: &TreeChange) -> bool {
        let now = self.env.moment();
        let own_changes = self.own_changes.lock();
        let own = |name: &VfsPath| own_changes.get(&hash(name)).is_some_and(|at| is_recent(*at, now));
        match change {
            TreeChange::Renamed { from, to, .. } => own(from) || own(to),
            TreeChange::Added(path, _)
            | TreeChange::Removed(path, _)
            | TreeChange::Data(path)
            | TreeChange::Metadata(path) => own(path),
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
        let mut modified = HashSet::new();
        for (arrived, change) in reports {
            let own = match &change {
                // The server publishes its changes of an open file late: compare with the time of the change itself.
                TreeChange::Data(path) => match open.get(path) {
                    Some(file) => file.has_changed_since(arrived, LAG),
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
