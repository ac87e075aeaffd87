//! The attachments that a server restores after a restart: `attachments.json` in the directory `server.state`, replaced
//! as a whole with each change. Without that directory attachments end with the server.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use pool::{PoolId, SpaceId};
use serde::{Deserialize, Serialize};

use crate::control::storage::Attach;
use crate::daemon::identity::replace;

const FILE: &str = "attachments.json";

/// See the module.
pub(super) struct StoredAttachments {
    folder: Option<PathBuf>,
    all: Mutex<Vec<StoredAttachment>>,
}

/// The attachment of a virtual disk.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredAttachment {
    pool: String,
    space: u32,
    #[serde(flatten)]
    names: Names,
    #[serde(flatten)]
    pub(super) attach: Attach,
}

/// The names when the attachment was made, for messages while the pool is missing.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Names {
    #[serde(default)]
    pub(super) pool_name: String,
    #[serde(default)]
    pub(super) space_name: String,
}

impl StoredAttachment {
    /// The name of the pool, or its identity.
    pub(super) fn pool(&self) -> &str {
        if self.names.pool_name.is_empty() { &self.pool } else { &self.names.pool_name }
    }

    /// The name of the virtual disk, or its number.
    pub(super) fn space(&self) -> String {
        if self.names.space_name.is_empty() { self.space.to_string() } else { self.names.space_name.clone() }
    }
}

impl StoredAttachments {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// The system's, or the file is damaged.
    pub(super) fn open(folder: Option<&Path>) -> io::Result<StoredAttachments> {
        let text = match folder.map(|folder| std::fs::read(folder.join(FILE))) {
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Some(Ok(text)) => text,
            _ => b"[]".to_vec(),
        };
        let all = Mutex::new(serde_json::from_slice(&text)?);
        Ok(StoredAttachments { folder: folder.map(Path::to_owned), all })
    }

    /// The attachments of a pool.
    pub(super) fn of(&self, pool: PoolId) -> Vec<(SpaceId, Attach)> {
        let (all, pool) = (self.all.lock(), pool.to_string());
        all.iter().filter(|e| e.pool == pool).map(|e| (SpaceId(e.space), e.attach.clone())).collect()
    }

    /// The attachments of pools for which `is_known` returns false; its argument is the identity of the pool.
    pub(super) fn of_others(&self, is_known: impl Fn(&str) -> bool) -> Vec<StoredAttachment> {
        self.all.lock().iter().filter(|e| !is_known(&e.pool)).cloned().collect()
    }

    /// Stores the attachment of a virtual disk, replacing an earlier one. Durable on return.
    ///
    /// # Errors
    /// The system's: the file is unchanged.
    pub(super) async fn set(
        &self,
        pool: PoolId,
        space: SpaceId,
        names: Names,
        attach: Attach,
    ) -> io::Result<()> {
        let (pool, space) = (pool.to_string(), space.0);
        self.replace(&pool, space, Some(StoredAttachment { pool: pool.clone(), space, names, attach })).await
    }

    /// Removes the attachment of a virtual disk. Durable on return.
    ///
    /// # Errors
    /// The system's: the file is unchanged.
    pub(super) async fn remove(&self, pool: PoolId, space: SpaceId) -> io::Result<()> {
        self.replace(&pool.to_string(), space.0, None).await
    }

    /// [`StoredAttachments::remove`] for an attachment of a pool that is missing.
    ///
    /// # Errors
    /// The system's: the file is unchanged.
    pub(super) async fn remove_entry(&self, entry: &StoredAttachment) -> io::Result<()> {
        self.replace(&entry.pool, entry.space, None).await
    }

    async fn replace(&self, pool: &str, space: u32, entry: Option<StoredAttachment>) -> io::Result<()> {
        let entries = {
            let mut all = self.all.lock();
            all.retain(|e| (e.pool.as_str(), e.space) != (pool, space));
            all.extend(entry);
            all.clone()
        };
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        let write = move || replace(&folder, &folder.join(FILE), &serde_json::to_vec(&entries)?);
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_attachment_is_kept_until_it_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pool, other) = (PoolId([1; 16]), PoolId([2; 16]));
        let attach = |nbd: &str| Attach { nbd: Some(nbd.into()), ublk: false, read_only: true };
        let stored = StoredAttachments::open(Some(folder.path())).expect("none yet");
        let names = || Names { pool_name: "tank".to_owned(), space_name: "vm".to_owned() };
        stored.set(pool, SpaceId(1), names(), attach("/first")).await.expect("room");
        stored.set(pool, SpaceId(1), names(), attach("/second")).await.expect("room");
        stored.set(other, SpaceId(1), Names::default(), attach("/other")).await.expect("room");
        let again = StoredAttachments::open(Some(folder.path())).expect("it can be read");
        let found = again.of(pool);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1.nbd.as_deref()), (SpaceId(1), Some(Path::new("/second"))));
        let named = |known: PoolId| {
            let others = again.of_others(|id| id == known.to_string());
            others.iter().map(|e| format!("{}/{}", e.pool(), e.space())).collect::<Vec<_>>()
        };
        assert_eq!(named(other), ["tank/vm"]);
        assert_eq!(named(pool), [format!("{other}/1")], "a file of an earlier version has no names");
        again.remove(pool, SpaceId(1)).await.expect("room");
        let again = StoredAttachments::open(Some(folder.path())).expect("it can be read");
        assert_eq!((again.of(pool).len(), again.of(other).len()), (0, 1));
        again.remove_entry(&again.of_others(|_| false)[0]).await.expect("room");
        assert_eq!(again.of(other).len(), 0);
        std::fs::write(folder.path().join(FILE), "damaged").expect("room");
        assert!(StoredAttachments::open(Some(folder.path())).is_err());
    }
}
