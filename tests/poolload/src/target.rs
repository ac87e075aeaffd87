//! A space, as the pool drives it today or with an owner of its own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arena::{Arena, Sg, SgMut};
use disk::Disk;
use env::{Ctx, Env, IoFlags};
use pool::{DataPath, DiskNumber, Membership, Pool, SpaceRecord};
use pool_seam::{Coordinator, NodeId, Owner};
use space::cache::Budget;
use space::{Settings, Space};

use crate::Failure;

/// Memory for tables of a space with an owner.
const TABLES: usize = 256 << 20;

/// See the module. Clones are the same space.
#[derive(Clone)]
pub enum Target {
    Pooled { path: Arc<DataPath>, space: pool::Space },
    Owned { space: Space, link: Arc<dyn Owner>, size: u64 },
}

impl Target {
    /// Makes a space with an owner in this process.
    pub async fn owned(
        env: &Env,
        arena: &Arena,
        pool: &Pool,
        record: SpaceRecord,
    ) -> Result<Target, Failure> {
        let size = record.size;
        let id = pool.create_owned(record).await?;
        let owner = pool.owner(id).ok_or("it is not there")?;
        pool.opens(owner);
        let view = Coordinator::view(pool, owner, None).wait().await?.ok_or("it has no view")?;
        let disks = pool.clone();
        let open = move |disk: DiskNumber, of: Membership| disks.disk_of(owner, disk, of);
        let settings = Settings {
            env: env.clone(),
            arena: arena.clone(),
            node: NodeId::default(),
            budget: Budget::new(TABLES),
            hang: Duration::from_secs(10),
            coordinator: Arc::new(pool.clone()),
            lease: Arc::new(pool.lease()),
            open: Box::new(open),
        };
        let space = Space::open(settings, view).await?;
        let link: Arc<dyn Owner> = Arc::new(space.clone());
        pool.link(owner, Arc::downgrade(&link) as Weak<dyn Owner>);
        Ok(Target::Owned { space, link, size })
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        match self {
            Target::Pooled { space, .. } => space.info().geometry.size,
            Target::Owned { size, .. } => *size,
        }
    }

    /// `through`: durable when it returns.
    pub async fn write(&self, at: u64, src: Sg, through: bool) -> Result<(), Failure> {
        match self {
            Target::Pooled { space, .. } => {
                let flags = IoFlags { write_through: through, ..IoFlags::default() };
                Ok(space.write(&Ctx { flags, ..Ctx::default() }, at, src).wait().await?)
            }
            Target::Owned { space, .. } => Ok(space.write(at, src, through).wait().await?),
        }
    }

    pub async fn read(&self, at: u64, dst: SgMut) -> (Result<(), Failure>, SgMut) {
        match self {
            Target::Pooled { space, .. } => {
                let (result, dst) = space.read(&Ctx::default(), at, dst).wait().await;
                (result.map_err(Failure::from), dst)
            }
            Target::Owned { space, .. } => {
                let (result, dst) = space.read(at, dst).wait().await;
                (result.map_err(Failure::from), dst)
            }
        }
    }

    pub async fn flush(&self) -> Result<(), Failure> {
        match self {
            Target::Pooled { space, .. } => Ok(space.flush(&Ctx::default()).wait().await?),
            Target::Owned { space, .. } => Ok(space.flush().wait().await?),
        }
    }

    pub async fn close(&self) -> Result<(), Failure> {
        match self {
            Target::Pooled { path, .. } => Ok(path.quiesce().await?),
            Target::Owned { link, .. } => Ok(link.close().wait().await.map(drop)?),
        }
    }

    /// The data path of the pool, which has its jobs.
    ///
    /// # Errors
    /// Jobs of spaces with owners are not begun here.
    pub fn path(&self) -> Result<&Arc<DataPath>, Failure> {
        match self {
            Target::Pooled { path, .. } => Ok(path),
            Target::Owned { .. } => Err("jobs of a space with an owner are not measured".into()),
        }
    }
}
