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
pub(super) struct Remembered {
    folder: Option<PathBuf>,
    all: Mutex<Vec<Entry>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    pool: String,
    space: u32,
    #[serde(flatten)]
    attach: Attach,
}

impl Remembered {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// The system's, or the file is damaged.
    pub(super) fn open(folder: Option<&Path>) -> io::Result<Remembered> {
        let text = match folder.map(|folder| std::fs::read(folder.join(FILE))) {
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Some(Ok(text)) => text,
            _ => b"[]".to_vec(),
        };
        let all = Mutex::new(serde_json::from_slice(&text)?);
        Ok(Remembered { folder: folder.map(Path::to_owned), all })
    }

    /// Those of a pool.
    pub(super) fn of(&self, pool: PoolId) -> Vec<(SpaceId, Attach)> {
        let (all, pool) = (self.all.lock(), pool.to_string());
        all.iter().filter(|e| e.pool == pool).map(|e| (SpaceId(e.space), e.attach.clone())).collect()
    }

    /// Stores the attachment of a virtual disk, replacing an earlier one; `None` removes it. Durable on return.
    ///
    /// # Errors
    /// The system's: the file is unchanged.
    pub(super) async fn set(&self, pool: PoolId, space: SpaceId, attach: Option<Attach>) -> io::Result<()> {
        let (pool, space) = (pool.to_string(), space.0);
        let entries = {
            let mut all = self.all.lock();
            all.retain(|e| (&e.pool, e.space) != (&pool, space));
            all.extend(attach.map(|attach| Entry { pool, space, attach }));
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
        let remembered = Remembered::open(Some(folder.path())).expect("none yet");
        remembered.set(pool, SpaceId(1), Some(attach("/first"))).await.expect("room");
        remembered.set(pool, SpaceId(1), Some(attach("/second"))).await.expect("room");
        remembered.set(other, SpaceId(1), Some(attach("/other"))).await.expect("room");
        let again = Remembered::open(Some(folder.path())).expect("it can be read");
        let found = again.of(pool);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1.nbd.as_deref()), (SpaceId(1), Some(Path::new("/second"))));
        again.set(pool, SpaceId(1), None).await.expect("room");
        let again = Remembered::open(Some(folder.path())).expect("it can be read");
        assert_eq!((again.of(pool).len(), again.of(other).len()), (0, 1));
        std::fs::write(folder.path().join(FILE), "damaged").expect("room");
        assert!(Remembered::open(Some(folder.path())).is_err());
    }
}
