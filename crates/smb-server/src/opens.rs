//! All opens of the server (MS-SMB2 3.3.1.5 GlobalOpenTable), by the persistent half of their FileId.
//!
//! An open is in the table from its CREATE until it is closed, with or without a session: a durable open that has lost
//! its connection stays in it. The table is sharded so that opens of different connections seldom contend for a lock.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use smb_wire::{FileId, Guid};

use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// Parts of the table.
const SHARDS: usize = 64;

/// The keys of the table.
pub(crate) trait Identified {
    /// Its FileId now.
    fn id(&self) -> FileId;
    /// The CreateGuid of the CREATE that created it.
    fn create_guid(&self) -> Option<Guid>;
    /// The AppInstanceId of that CREATE.
    fn instance(&self) -> Option<Guid>;
}

/// See the module. `O` is an open.
pub(crate) struct OpenTable<O> {
    shards: [Mutex<FxHashMap<u64, Arc<O>>>; SHARDS],
    by_create: Index,
    by_instance: Index,
    /// Counts the runs of the server, so that a persistent id is not reused after a restart.
    boot: u32,
    next: AtomicU64,
    next_persistent: AtomicU64,
}

/// The persistent ids of the opens with a GUID.
#[derive(Default)]
struct Index(Mutex<FxHashMap<Guid, SmallVec<[u64; 2]>>>);

impl Index {
    fn insert(&self, name: Option<Guid>, open: u64) {
        if let Some(name) = name {
            self.0.lock().entry(name).or_default().push(open);
        }
    }

    fn remove(&self, name: Option<Guid>, open: u64) {
        let Some(name) = name else { return };
        let mut names = self.0.lock();
        if let Some(opens) = names.get_mut(&name) {
            opens.retain(|o| *o != open);
            if opens.is_empty() {
                names.remove(&name);
            }
        }
    }

    fn find(&self, name: Guid) -> SmallVec<[u64; 2]> {
        self.0.lock().get(&name).cloned().unwrap_or_default()
    }
}

impl<O: Identified> OpenTable<O> {
    /// A table of the server's run number `boot`.
    pub(crate) fn new(boot: u32) -> OpenTable<O> {
        OpenTable {
            shards: std::array::from_fn(|_| Mutex::default()),
            by_create: Index::default(),
            by_instance: Index::default(),
            boot,
            next: AtomicU64::new(1),
            next_persistent: AtomicU64::new(1),
        }
    }

    /// A number that is unique in this run: for the volatile half of a FileId, or the token of a caching holder.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The persistent half of a new open's FileId. After 2^32 opens of one run the numbers wrap around; those in use
    /// are skipped.
    pub(crate) fn persistent_id(&self) -> u64 {
        loop {
            let number = self.next_persistent.fetch_add(1, Ordering::Relaxed) & 0xFFFF_FFFF;
            let id = u64::from(self.boot) << 32 | number;
            if self.find(id).is_none() {
                return id;
            }
        }
    }

    pub(crate) fn insert(&self, open: Arc<O>) {
        let persistent = open.id().persistent;
        self.by_create.insert(open.create_guid(), persistent);
        self.by_instance.insert(open.instance(), persistent);
        self.shard(persistent).lock().insert(persistent, open);
    }

    pub(crate) fn remove(&self, persistent: u64) {
        let removed = self.shard(persistent).lock().remove(&persistent);
        if let Some(open) = removed {
            self.by_create.remove(open.create_guid(), persistent);
            self.by_instance.remove(open.instance(), persistent);
        }
    }

    /// The opens created by CREATEs with this CreateGuid.
    pub(crate) fn find_by_create_guid(&self, create_guid: Guid) -> Vec<Arc<O>> {
        self.by_create.find(create_guid).into_iter().filter_map(|id| self.find(id)).collect()
    }

    /// The opens of this AppInstanceId.
    pub(crate) fn find_by_app_instance(&self, id: Guid) -> Vec<Arc<O>> {
        self.by_instance.find(id).into_iter().filter_map(|id| self.find(id)).collect()
    }

    /// The open with this persistent id, whether it has a session or not.
    pub(crate) fn find(&self, persistent: u64) -> Option<Arc<O>> {
        self.shard(persistent).lock().get(&persistent).cloned()
    }

    /// The open whose FileId has both these halves.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<O>> {
        self.find(id.persistent).filter(|o| o.id() == id)
    }

    /// All opens, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<O>> {
        self.shards.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    fn shard(&self, persistent: u64) -> &Mutex<FxHashMap<u64, Arc<O>>> {
        &self.shards[persistent as usize % SHARDS]
    }
}
