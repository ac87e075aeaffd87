//! A pool's virtual disks for a share: the interface of the backend `spaces`.
//!
//! Every call looks up the pool by its name, so a share can exist before its pool is open. Reads of the pool's state
//! and I/O run on the calling thread. Changes run on the storage thread and complete there, even if the caller stops
//! waiting.

use std::sync::{Arc, Weak};

use env::BoxFuture;
use parking_lot::Mutex;
use pool::{CommitError, InvalidOp, SpaceId, SpaceRecord, State};
use pool_local::LocalError;
use vfs::{
    OpenDisk, Space, SpaceFiles, Spaces, SpacesOptions, Vfs, VfsError, VfsResult, VirtualDisk, VirtualDisks,
};

use super::attach::Attachments;
use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::{KnownPool, Pools};
use super::{Storage, spaces};
use crate::config::ShareSection;
use crate::control::storage::{NewSpace, ProvisioningSetting, ResiliencySetting};

/// See the module.
pub(super) struct PoolShare {
    /// Itself, for futures that may live longer than a call.
    this: Weak<PoolShare>,
    storage: Arc<Storage>,
    /// The name of the share.
    pub(super) name: String,
    pub(super) pool: String,
    /// The virtual disk of a new file, without its name.
    new: NewSpace,
    /// Why the pool was not open at the last request; this is logged once.
    closed: Mutex<Option<String>>,
}

/// An open file of a share. While it exists, its virtual disk cannot be destroyed or resized, nor its pool exported.
struct InUse {
    attachments: Arc<Attachments>,
    space: SpaceId,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.attachments.unshare(self.space);
    }
}

impl Storage {
    /// The backend of a share of a pool's virtual disks.
    pub(in crate::daemon) fn share(self: &Arc<Storage>, section: &ShareSection, pool: &str) -> Arc<dyn Vfs> {
        let disks = Arc::new_cyclic(|this| PoolShare {
            this: Weak::clone(this),
            storage: Arc::clone(self),
            name: section.name.clone(),
            pool: pool.to_owned(),
            new: new_space(section),
            closed: Mutex::default(),
        });
        self.pools.shares.lock().push(Arc::downgrade(&disks));
        let files = || SpaceFiles::new(self.pools.env.clone(), self.pools.arena.clone());
        let files = Arc::clone(self.files.lock().entry(pool.to_owned()).or_insert_with(files));
        let options = SpacesOptions {
            label: section.name.clone(),
            volume: volume(pool),
            allow_delete: section.allow_delete,
        };
        Spaces::new(disks, files, options)
    }

    /// Checks a new share of a pool.
    ///
    /// # Errors
    /// There is no such pool, or it has too few disks for the files that clients would create. A pool that is not open,
    /// or has absent disks, is not examined.
    pub(in crate::daemon) async fn check_share(&self, section: &ShareSection) -> Result<(), StorageError> {
        let new = new_space(section);
        let is_read_only = section.read_only;
        self.run_on_thread(move |pools| async move {
            let KnownPool::Open(open) = pools.find(&new.pool)?.1 else { return Ok(()) };
            open.pool.read(|s| {
                let is_complete = s.disks.keys().all(|disk| s.is_present(*disk));
                if is_complete && !is_read_only {
                    let (record, _) = spaces::shape(s, &new)?;
                    s.check_shape(&record).map_err(CommitError::Invalid)?;
                }
                Ok(())
            })
        })
        .await
    }
}

impl PoolShare {
    fn pool(&self) -> VfsResult<Arc<OpenPool>> {
        let open = self.storage.pools.open_pool(&self.pool).map_err(|e| self.refused(&e))?;
        *self.closed.lock() = None;
        Ok(open)
    }

    /// Logs an error, and returns the nearest one for clients.
    fn refused(&self, error: &StorageError) -> VfsError {
        let text = error.to_string();
        let is_closed = matches!(error, StorageError::NotOpen { .. } | StorageError::NoPool(_));
        let repeated = is_closed && self.closed.lock().replace(text.clone()).as_ref() == Some(&text);
        if !repeated {
            let (pool, share) = (&self.pool, &self.name);
            tracing::warn!(pool, share, "a request to a share of the virtual disks failed: {text}");
        }
        for_clients(error)
    }

    /// Runs a change on the storage thread.
    fn change<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Pools>, Arc<OpenPool>) -> F + Send + 'static,
    ) -> BoxFuture<VfsResult<T>>
    where
        F: Future<Output = Result<T, StorageError>> + Send + 'static,
    {
        let (share, name) = (self.this.upgrade(), self.pool.clone());
        Box::pin(async move {
            let share = share.ok_or(VfsError::Stale)?;
            let call = |pools: Arc<Pools>| async move {
                let open = pools.pool_to_change(&name)?;
                work(pools, open).await
            };
            share.storage.run_on_thread(call).await.map_err(|e| share.refused(&e))
        })
    }
}

impl VirtualDisks for PoolShare {
    fn list(&self) -> VfsResult<Vec<VirtualDisk>> {
        Ok(self.pool()?.pool.read(|s| s.spaces.iter().map(|(id, record)| describe(s, *id, record)).collect()))
    }

    fn get(&self, number: u64) -> VfsResult<VirtualDisk> {
        let space = id(number).map_err(|_| VfsError::Stale)?;
        self.pool()?.pool.read(|s| Ok(describe(s, space, s.spaces.get(&space).ok_or(VfsError::Stale)?)))
    }

    fn space(&self) -> VfsResult<Space> {
        let open = self.pool()?;
        let used: u64 = self.list()?.iter().map(|d| d.allocated).sum();
        let shape = open.pool.read(|s| spaces::shape(s, &self.new));
        let free = shape.map_or(0, |(_, room)| room);
        Ok(Space { total: used + free, free, available: free })
    }

    fn create(&self, name: String) -> BoxFuture<VfsResult<VirtualDisk>> {
        let new = NewSpace { name: name.clone(), ..self.new.clone() };
        self.change(|pools, open| async move {
            pools.create_space_or_empty(new).await?;
            let space = open.space_named(&name).ok_or(StorageError::NoSpace(name))?;
            let found = open.pool.read(|s| s.spaces.get(&space).map(|r| describe(s, space, r)));
            found.ok_or(StorageError::Owner(LocalError::NoSpace(space)))
        })
    }

    fn open(&self, number: u64) -> VfsResult<OpenDisk> {
        let (open, space) = (self.pool()?, id(number).map_err(|_| VfsError::Stale)?);
        let disk = open.space_for_clients(space).map_err(|e| self.refused(&e))?;
        open.attachments.share(space);
        Ok(OpenDisk { disk, guard: Box::new(InUse { attachments: Arc::clone(&open.attachments), space }) })
    }

    fn resize(&self, number: u64, size: u64) -> BoxFuture<VfsResult<()>> {
        self.change(move |_, open| async move {
            let space = id(number)?;
            open.resize_in_use(space, size).await.map(drop)
        })
    }

    fn rename(&self, number: u64, name: String) -> BoxFuture<VfsResult<()>> {
        self.change(move |pools, open| async move { pools.rename_found(&open, id(number)?, &name).await })
    }

    fn remove(&self, number: u64) -> BoxFuture<VfsResult<()>> {
        self.change(move |pools, open| async move { pools.destroy_found(&open, id(number)?).await.map(drop) })
    }
}

fn describe(s: &State, space: SpaceId, record: &SpaceRecord) -> VirtualDisk {
    let allocated = record.allocated_bytes(s.slab_bytes).min(record.size);
    VirtualDisk { number: space.0.into(), name: record.name.clone(), size: record.size, allocated }
}

/// The virtual disk of a new file of a share, without its name.
fn new_space(section: &ShareSection) -> NewSpace {
    NewSpace {
        name: String::new(),
        pool: section.pool.clone().unwrap_or_default(),
        resiliency: section.resiliency.unwrap_or(ResiliencySetting::Mirror),
        size: Some(0),
        columns: section.columns,
        groups: None,
        interleave: None,
        provisioning: ProvisioningSetting::Thin,
        media: Vec::new(),
    }
}

/// # Errors
/// [`StorageError::NoSpace`].
fn id(number: u64) -> Result<SpaceId, StorageError> {
    u32::try_from(number).map(SpaceId).map_err(|_| StorageError::NoSpace(number.to_string()))
}

/// The identity of the volume of a pool: the 128-bit FNV-1a hash of its name, which is known before the pool is open.
fn volume(pool: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    pool.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// The nearest error for clients of a share.
fn for_clients(error: &StorageError) -> VfsError {
    match error {
        StorageError::NoSpace(_) | StorageError::Owner(LocalError::NoSpace(_)) => VfsError::Stale,
        StorageError::Name { .. } => VfsError::InvalidName,
        StorageError::Commit(CommitError::Invalid(InvalidOp::NameTaken(_))) => VfsError::Exists,
        StorageError::Commit(CommitError::Invalid(_)) => VfsError::InvalidArgument,
        StorageError::Commit(CommitError::ReadOnly) => VfsError::ReadOnly,
        error if error.is_no_room() => VfsError::NoSpace,
        StorageError::TooFewDisks { .. } | StorageError::CannotGrow { .. } => VfsError::NoSpace,
        StorageError::Attached { .. } | StorageError::Shared(_) => VfsError::Busy,
        _ => VfsError::Io(rustix::io::Errno::NODEV.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arena::Arena;
    use env::Env;
    use pool::PoolId;

    use super::super::pools::tests::one_disk;
    use super::*;
    use crate::config::{Scratch, parse};
    use crate::control::health::FaultStatus;
    use crate::control::storage::{Attach, PoolChange};
    use crate::daemon::events::Events;

    fn storage(state: Option<&Path>) -> Arc<Storage> {
        let (env, arena) = (Env::real(), Arena::new(64 << 20).expect("memory"));
        let section = parse("[storage]\ndevices = []\n", "c.toml").0.storage;
        let events = Arc::new(Events::open(None, &env).expect("no file"));
        let workers = vec![tokio::runtime::Handle::current()];
        Arc::new(Storage::start(&section, &arena, &env, &events, state, [1; 16], workers).expect("a thread"))
    }

    fn section(more: &str) -> ShareSection {
        let text = format!("[[share]]\nname = \"vms\"\nbackend = \"spaces\"\npool = \"tank\"\n{more}");
        let (mut config, ..) = parse(&text, "c.toml");
        config.shares.remove(0)
    }

    async fn missing(storage: &Storage) -> Vec<FaultStatus> {
        let health =
            storage.run_on_thread(|pools| async move { Ok(pools.health().await) }).await.expect("a report");
        health.faults.into_iter().filter(|f| f.fault_type == "StoragePool.NotFound").collect()
    }

    #[tokio::test]
    async fn a_missing_pool_is_a_fault_while_a_share_or_an_attachment_needs_it() {
        let state = Scratch::new("missing");
        let attachment = format!(
            r#"[{{"pool": "{}", "space": 1, "pool_name": "tank", "space_name": "vm", "nbd": "/run/vm.nbd", "ublk": false,
                "read_only": false}}]"#,
            PoolId([7; 16])
        );
        std::fs::write(state.0.join("attachments.json"), attachment).expect("a file");
        let storage = storage(Some(&state.0));
        let share = storage.share(&section(""), "tank");
        let faults = missing(&storage).await;
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.recommended_actions, ["causeway pool import tank"]);
        for part in ["the share vms", "the virtual disk vm (NBD on /run/vm.nbd)", "storage.devices"] {
            assert!(fault.reason.contains(part), "{}", fault.reason);
        }
        drop(share);
        assert!(
            missing(&storage).await.iter().all(|f| !f.reason.contains("vms") && f.reason.contains("vm (NBD"))
        );
        storage
            .run_on_thread(|pools| async move { pools.detach("tank/vm").await })
            .await
            .expect("it is removed");
        assert_eq!(missing(&storage).await, []);
        storage.stop().await;
    }

    #[tokio::test]
    async fn a_stored_attachment_has_the_present_names() {
        let state = Scratch::new("renamed");
        let (storage, new) = (storage(Some(&state.0)), one_disk(&state));
        storage.run_on_thread(|pools| async move { pools.create_pool(new).await }).await.expect("a pool");
        let space = r#"{"name": "vm", "pool": "tank", "resiliency": "simple", "size": 1048576, "provisioning": "thin"}"#;
        let space = serde_json::from_str(space).expect("a request");
        storage
            .run_on_thread(|pools| async move { pools.create_space(space).await })
            .await
            .expect("a virtual disk");
        let attach = Attach { nbd: Some(state.0.join("vm.nbd")), ublk: false, read_only: false };
        storage
            .run_on_thread(|pools| async move { pools.attach("vm", attach).await })
            .await
            .expect("it is attached");
        storage
            .run_on_thread(|pools| async move { pools.rename_space("vm", "db").await })
            .await
            .expect("renamed");
        let change = PoolChange { name: Some("lake".to_owned()), ..PoolChange::default() };
        storage
            .run_on_thread(|pools| async move { pools.change_pool("tank", change).await })
            .await
            .expect("renamed");
        storage.stop().await;
        let storage = self::storage(Some(&state.0));
        let faults = missing(&storage).await;
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.recommended_actions, ["causeway pool import lake"]);
        assert!(fault.reason.contains("the virtual disk db (NBD"), "{}", fault.reason);
        storage.stop().await;
    }

    #[tokio::test]
    async fn a_new_share_needs_a_pool_that_can_hold_its_files() {
        let (scratch, storage) = (Scratch::new("shared"), storage(None));
        let missing = storage.check_share(&section("")).await.expect_err("there is no pool");
        assert_eq!(missing.to_string(), "there is no pool tank");
        assert!(missing.cure().is_some_and(|c| c.contains("causeway pool create")));
        let new = one_disk(&scratch);
        storage.run_on_thread(|pools| async move { pools.create_pool(new).await }).await.expect("a pool");
        let refused = storage.check_share(&section("")).await.expect_err("a mirror needs two disks");
        assert_eq!(refused.to_string(), "2 disks are needed and the pool tank has 1");
        assert!(storage.check_share(&section("resiliency = \"simple\"\ncolumns = 2\n")).await.is_err());
        for fits in ["resiliency = \"simple\"\n", "read_only = true\n"] {
            storage.check_share(&section(fits)).await.expect("it fits");
        }
        storage
            .run_on_thread(|pools| async move { pools.export("tank").await })
            .await
            .expect("it is exported");
        storage.check_share(&section("")).await.expect("a pool that is not open is not examined");
        storage.stop().await;
    }

    /// Test vectors of the reference implementation of FNV.
    #[test]
    fn volume_identities_differ_by_pool_name() {
        assert_eq!(volume(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(volume("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
