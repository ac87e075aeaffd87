//! The server's identity across restarts: its GUID, which clients compare (MS-SMB2 3.3.1.5 ServerGuid), and
//! the number of its starts, which is part of the ids of open files.
//!
//! They are stored in `server.json` in the directory `server.state`. Without that directory both are new at each start:
//! clients then regard it as another server, and persistent handles are not available.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use env::Env;
use serde::{Deserialize, Serialize};
use smb_server::{FileJournal, OpenJournal};
use smb_wire::Guid;

const FILE: &str = "server.json";
const JOURNAL: &str = "opens.journal";

/// The server's identity.
pub(super) struct Identity {
    pub(super) guid: Guid,
    /// Counts the starts.
    pub(super) boot: u32,
    /// The journal of persistent opens.
    pub(super) journal: Option<Arc<dyn OpenJournal>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    guid: [u8; 16],
    boot: u32,
}

impl Identity {
    /// Reads it from the directory, and counts this start there.
    ///
    /// # Errors
    /// The system's: the directory cannot be read or written.
    pub(super) fn open(state: Option<&Path>, env: &Env) -> io::Result<Identity> {
        let Some(folder) = state else {
            let boot = u32::from_le_bytes(env.random());
            return Ok(Identity { guid: Guid(env.random()), boot, journal: None });
        };
        std::fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let stored: Stored = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Stored { guid: env.random(), boot: 0 },
            Err(e) => return Err(e),
        };
        let now = Stored { boot: stored.boot.wrapping_add(1), ..stored };
        replace(folder, &path, &serde_json::to_vec(&now)?)?;
        let journal = FileJournal::open(&folder.join(JOURNAL))?;
        Ok(Identity { guid: Guid(now.guid), boot: now.boot, journal: Some(journal) })
    }
}

/// Replaces a file: writes a new one beside it durably, and renames it.
pub(super) fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guid_stays_and_the_starts_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let env = Env::real();
        let open = |state| Identity::open(state, &env).map(|i| (i.guid, i.boot, i.journal.is_some()));
        let (first, second) =
            (open(Some(folder.path())).expect("made"), open(Some(folder.path())).expect("there"));
        assert_eq!((first.0, first.1 + 1, true), (second.0, second.1, second.2));
        let (a, b) = (open(None).expect("made"), open(None).expect("made"));
        assert!(a.0 != b.0 && !a.2);
        std::fs::write(folder.path().join(FILE), "not JSON").expect("room");
        assert!(open(Some(folder.path())).is_err());
    }
}
