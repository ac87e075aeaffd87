//! Persistent opens on stable storage (MS-SMB2 3.3.1.10 Open.IsPersistent): the opens that survive a crash of the
//! server.
//!
//! [`OpenRecord`] is the complete state of a persistent open. An [`OpenJournal`] has the record on stable storage
//! before the reply of the CREATE, LOCK, lease acknowledgement or SET_INFO that changed it; READs and WRITEs write no
//! record. A CLOSE removes the record without waiting for that: after a crash at that moment the file has one more open
//! until its timeout.
//!
//! [`FileJournal`] is a file on this machine. A cluster needs another implementation, which moves with the owner of the
//! file system.

mod file;
#[cfg(test)]
pub(crate) mod memory;

pub use file::FileJournal;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::BoxFuture;
use serde::{Deserialize, Serialize};
use smb_wire::msg::{CreateAction, LeaseState, OplockLevel};
use smb_wire::security::Sid;
use smb_wire::{AccessMask, Guid, NtStatus, ShareAccess};
use vfs::{FileKey, Kind, OpenRequest, Opened, Rights, StreamName, VfsPath};

use crate::Server;
use crate::breaks::LeasedFile;
use crate::durable::{Durability, Durable};
use crate::files::caching::{HolderId, LeaseId, LeaseVersion, RestoredHolder, level_of, state_of};
use crate::files::locks::LockRange;
use crate::files::share_mode::ShareMode;
use crate::files::{AccessClass, FileState, Member};
use crate::open::{
    AppInstance, Created, FIRST_DISCONNECTION, FileOpen, LockSequences, Open, OpenTarget, Sequence,
};
use crate::share::Share;

/// The error says why a record could not be stored.
pub type JournalResult = Result<(), std::io::Error>;

/// Completes when a record is removed from stable storage.
pub(crate) type RecordRemoval = BoxFuture<JournalResult>;

/// Stable storage for the records of persistent opens.
pub trait OpenJournal: Send + Sync + std::fmt::Debug {
    /// Stores a record in place of the one with the same id; completes once it is on stable storage. The call itself
    /// begins the work: dropping the future does not stop it.
    fn put(&self, record: &OpenRecord) -> BoxFuture<JournalResult>;

    /// Removes a record; completes once that is on stable storage. As with [`OpenJournal::put`] the call itself begins
    /// the work. Changes reach stable storage in the order of the calls.
    fn remove(&self, id: u64) -> BoxFuture<JournalResult>;

    /// All records, as they were when the journal was opened. Only the first call returns them.
    fn take_all(&self) -> Vec<OpenRecord>;
}

/// The state of a persistent open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRecord {
    /// The persistent half of its FileId.
    pub id: u64,
    /// The share's name.
    pub share: String,
    /// The path in the share, with backslashes.
    pub path: String,
    /// The path that a rename is about to give it: the file has one of the two paths.
    #[serde(default)]
    pub renamed_to: Option<String>,
    /// The stream's name.
    pub stream: Option<String>,
    /// FileKey: volume and file, as hexadecimal numbers.
    pub file: (String, String),
    /// It is an open of a directory.
    pub directory: bool,
    /// ClientGuid of the connection that created it.
    pub client: [u8; 16],
    /// CreateGuid of the CREATE.
    pub create_guid: [u8; 16],
    /// The user's SID.
    pub user: Vec<u8>,
    /// AppInstanceId.
    pub app_instance: Option<[u8; 16]>,
    /// AppInstanceVersion, high and low half.
    pub app_version: Option<(u64, u64)>,
    /// DesiredAccess of the CREATE.
    pub desired_access: u32,
    /// Granted access.
    pub access: u32,
    /// ShareAccess of the CREATE.
    pub share_access: u32,
    /// CreateOptions of the CREATE.
    pub options: u32,
    /// CreateAction of its answer.
    pub action: u32,
    /// How long it survives without a connection, in ms.
    pub timeout_ms: u64,
    /// Closing it deletes its file or stream.
    pub delete_on_close: bool,
    /// Its file is marked for deletion at the last close.
    #[serde(default)]
    pub delete_pending: bool,
    /// It has POSIX extensions.
    #[serde(default)]
    pub posix: bool,
    /// The client's caching rights: a lease, or the oplock level.
    pub caching: Option<CachingRecord>,
    /// Byte-range locks: offset, length, exclusive; in order.
    pub locks: Vec<(u64, u64, bool)>,
    /// Numbers of the LOCK requests carried out (MS-SMB2 3.3.1.10 LockSequenceArray).
    pub lock_sequences: Vec<u8>,
}

/// Caching rights in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CachingRecord {
    /// An oplock of this level.
    Oplock(u8),
    /// A lease.
    Lease {
        /// LeaseKey.
        key: [u8; 16],
        /// LeaseState.
        state: u32,
        /// Version 2: epoch and ParentLeaseKey.
        v2: Option<(u16, Option<[u8; 16]>)>,
    },
}

impl Open {
    /// The record of a persistent open; `None` for others.
    pub(crate) fn record(&self) -> Option<OpenRecord> {
        let durable = *self.durable.lock();
        let f = self.file()?;
        if durable.durability != Durability::Persistent {
            return None;
        }
        let (share, path) = f.file.place_of(self.persistent)?;
        let key = f.file.id();
        let app = self.created.app_instance;
        Some(OpenRecord {
            id: self.persistent,
            share: share.name.clone(),
            path: path.to_string(),
            renamed_to: f.file.renamed_to().map(|path| path.to_string()),
            stream: f.file.stream_of(self.persistent).map(|name| name.as_str().to_owned()),
            file: (format!("{:x}", key.volume), format!("{:x}", key.file)),
            directory: f.node.kind() == Kind::Directory,
            client: self.created.client.0,
            create_guid: self.created.create_guid.unwrap_or_default().0,
            user: self.created.user.map(encoded).unwrap_or_default(),
            app_instance: app.map(|a| a.id.0),
            app_version: app.and_then(|a| a.version),
            desired_access: self.created.desired_access,
            access: self.access,
            share_access: self.created.share_access,
            options: self.created.options,
            action: self.created.action.0,
            timeout_ms: durable.timeout.as_millis() as u64,
            delete_on_close: f.file.deletes_on_close(self.persistent) || f.stream.is_deleting(),
            delete_pending: f.file.is_path_marked(self.persistent),
            posix: f.posix,
            caching: f.holder.and_then(|id| caching_record(id, f)),
            locks: f.stream.locks_held_by(self.persistent),
            lock_sequences: self.lock_sequences.lock().bytes().to_vec(),
        })
    }
}

fn encoded(sid: Sid) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sid.len());
    sid.encode(&mut bytes);
    bytes
}

fn caching_record(id: HolderId, f: &FileOpen) -> Option<CachingRecord> {
    let held = f.file.held(id)?;
    Some(match id {
        HolderId::Oplock(_) => CachingRecord::Oplock(level_of(held.state).0),
        HolderId::Lease(lease) => CachingRecord::Lease {
            key: lease.key.0,
            state: held.state.bits(),
            v2: match held.version {
                LeaseVersion::V1 => None,
                LeaseVersion::V2 { parent, epoch } => Some((epoch, parent.map(|p| p.0))),
            },
        },
    })
}

impl Server {
    /// Stores the current state of a persistent open, before its request is answered; does nothing for other opens.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when it cannot be stored (the log has the reason).
    pub(crate) async fn store_open(&self, open: &Open) -> Result<(), NtStatus> {
        let Some(journal) = &self.config.journal else { return Ok(()) };
        let put = {
            // One at a time: the record stored last is the latest state, and no record is stored of a closed open.
            let record_removed = open.record_removed.lock();
            if *record_removed {
                return Ok(());
            }
            let Some(record) = open.record() else { return Ok(()) };
            journal.put(&record)
        };
        put.await.map_err(|e| {
            tracing::error!("a persistent open cannot be stored: {e}");
            NtStatus::INSUFFICIENT_RESOURCES
        })
    }

    /// Stores all opens of a file, after a change of their shared state: its name, or whether it is marked for
    /// deletion.
    ///
    /// # Errors
    /// Those of [`Server::store_open`].
    pub(crate) async fn store_opens_of(&self, file: &FileState) -> Result<(), NtStatus> {
        if self.config.journal.is_none() {
            return Ok(());
        }
        for open in file.opens().into_iter().filter_map(|id| self.opens.find(id)) {
            self.store_open(&open).await?;
        }
        Ok(())
    }

    /// Removes the record of an open that is closed.
    pub(crate) fn remove_record(&self, open: &Open) -> RecordRemoval {
        if let Some(journal) = &self.config.journal
            && open.durable.lock().durability == Durability::Persistent
        {
            let mut record_removed = open.record_removed.lock();
            *record_removed = true;
            return journal.remove(open.persistent);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    /// Stores the losses of holders of caching rights on a file, before an operation that relies on them: otherwise two
    /// clients could have conflicting caching rights after a restart.
    ///
    /// # Errors
    /// Those of [`Server::store_open`]; the loss stays unstored, and is stored by a later call.
    pub(crate) async fn store_lost_caching(&self, file: &FileState) -> Result<(), NtStatus> {
        if self.config.journal.is_none() {
            return Ok(());
        }
        for lost in file.unstored_losses() {
            for open in file.opens_of(lost.holder).into_iter().filter_map(|id| self.opens.find(id)) {
                self.store_open(&open).await?;
            }
            file.loss_is_stored(lost);
        }
        Ok(())
    }

    /// Restores the persistent opens from the journal. Call it after all shares were added, and before connections are
    /// accepted, so that no other open takes the files first. Returns how many were restored and how many were
    /// not.
    pub async fn restore_opens(self: &Arc<Self>) -> (usize, usize) {
        let Some(journal) = self.config.journal.clone() else { return (0, 0) };
        let (mut restored, mut lost) = (0, 0);
        for record in journal.take_all() {
            match self.restore(&record).await {
                Ok(()) => restored += 1,
                Err(NotRestored::Away) => {
                    lost += 1;
                    tracing::warn!(share = ?record.share, path = ?record.path,
                        "a persistent open cannot be restored: the share's directory is on another file system than \
                         before (is it not mounted yet?); the open is kept for the next start");
                }
                Err(NotRestored::Lost(why)) => {
                    lost += 1;
                    tracing::warn!(share = ?record.share, path = ?record.path,
                        "a persistent open is lost: {why}");
                    drop(journal.remove(record.id));
                }
            }
        }
        (restored, lost)
    }

    async fn restore(self: &Arc<Self>, record: &OpenRecord) -> Result<(), NotRestored> {
        let share = self.share(&record.share).filter(|s| s.continuous);
        let none = "there is no such share, or it is not continuously available";
        let share = share.ok_or(NotRestored::Lost(none))?;
        let opened = open_again(&share, record).await?;
        let access = AccessMask::from_bits_retain(record.access);
        let id = holder_of(record);
        let token = self.opens.number();
        let member = Member {
            open: record.id,
            stream: record.stream.as_deref().and_then(|s| StreamName::new(s).ok()),
            mode: ShareMode { access, share: ShareAccess::from_bits_retain(record.share_access) },
            access_class: AccessClass::of(access),
            holder: None,
            parent_lease: match version_in(record) {
                LeaseVersion::V2 { parent, .. } => parent,
                LeaseVersion::V1 => None,
            },
            posix: record.posix,
            share: Arc::clone(&share),
            path: opened.path.clone(),
            only_link: opened.stat.links <= 1,
            delete_on_close: record.delete_on_close,
        };
        let caching =
            id.map(|id| RestoredHolder { id, token, state: state_in(record), version: version_in(record) });
        let locks = record.locks.iter().filter_map(|(o, l, x)| Some((LockRange::new(*o, *l)?, *x))).collect();
        let joined = self.files.restore(opened.node.id(), member, caching, locks);
        if record.delete_pending {
            joined.file.delete_with_last(record.id);
        }
        if let Some(HolderId::Lease(lease)) = id {
            self.leases.restore(
                lease,
                LeasedFile { file: Arc::clone(&joined.file), stream: Arc::clone(&joined.stream) },
            );
        }
        let options = smb_wire::msg::CreateOptions::from_bits_retain(record.options);
        let target = OpenTarget::File(FileOpen::new(opened.node, Arc::clone(&share), joined, options));
        let created = created_in(record);
        // No client can reconnect to an open without a user: it is counted for Everyone.
        let slot = self.restore_open_slot(created.user.unwrap_or(Sid::EVERYONE));
        let mut open =
            Open::disconnected(record.id, &share, record.access, target, Sequence::new(0), created, slot);
        open.durable =
            Durable { durability: Durability::Persistent, timeout: Duration::from_millis(record.timeout_ms) }
                .into();
        open.counter.set_durability(Durability::Persistent);
        if let Ok(bytes) = record.lock_sequences.as_slice().try_into() {
            open.lock_sequences = LockSequences::from_bytes(bytes).into();
        }
        open.replayable.store(true, Ordering::Relaxed);
        let open = Arc::new(open);
        self.opens.insert(Arc::clone(&open));
        self.creates.restore(&open);
        if let Some(f) = open.file() {
            self.note_cached(&open, f).await;
        }
        // Its timeout starts again: no client could reconnect while the server was down.
        self.expire_later(&open, FIRST_DISCONNECTION, Duration::from_millis(record.timeout_ms));
        Ok(())
    }
}

/// Why an open was not restored.
enum NotRestored {
    /// The share's directory is on another file system now: the open is kept for the next start.
    Away,
    /// The open cannot be restored at a later start either.
    Lost(&'static str),
}

/// Opens a record's file by its path, or by the path that a rename was about to give it, and checks that it is the
/// same file.
async fn open_again(share: &Share, record: &OpenRecord) -> Result<Opened, NotRestored> {
    let mut opened = open_at(share, record, &record.path).await;
    if let (Err(_), Some(other)) = (&opened, &record.renamed_to) {
        opened = open_at(share, record, other).await;
    }
    let why = match opened {
        Ok(opened) => return Ok(opened),
        Err(why) => why,
    };
    let request = OpenRequest::for_metadata(VfsPath::root());
    let root = match share.vfs() {
        Some(vfs) => vfs.open(&env::Ctx::default(), request).wait().await.ok(),
        None => None,
    };
    match root {
        Some(root) if root.node.id().volume == key_of(record).volume => Err(NotRestored::Lost(why)),
        _ => Err(NotRestored::Away),
    }
}

fn key_of(record: &OpenRecord) -> FileKey {
    let number = |text: &str| u128::from_str_radix(text, 16).unwrap_or_default();
    FileKey { volume: number(&record.file.0), file: number(&record.file.1) }
}

async fn open_at(share: &Share, record: &OpenRecord, path: &str) -> Result<Opened, &'static str> {
    let vfs = share.vfs().ok_or("the share has no files")?;
    let parse = if record.posix { VfsPath::parse_posix } else { VfsPath::parse };
    let path = parse(path).map_err(|_| "its path is not valid")?;
    let access = AccessMask::from_bits_retain(record.access);
    let writes = access.intersects(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA) && !record.directory;
    let request = OpenRequest {
        stream: record.stream.as_deref().and_then(|s| StreamName::new(s).ok()),
        kind: Some(if record.directory { Kind::Directory } else { Kind::File }),
        rights: Rights { read: true, write: writes },
        ..OpenRequest::for_metadata(path)
    };
    let opened =
        vfs.open(&env::Ctx::default(), request).wait().await.map_err(|_| "its file cannot be opened")?;
    if opened.node.id() == key_of(record) { Ok(opened) } else { Err("another file now has its name") }
}

fn holder_of(record: &OpenRecord) -> Option<HolderId> {
    Some(match record.caching.as_ref()? {
        CachingRecord::Oplock(_) => HolderId::Oplock(record.id),
        CachingRecord::Lease { key, .. } => {
            HolderId::Lease(LeaseId { client: Guid(record.client), key: Guid(*key) })
        }
    })
}

fn state_in(record: &OpenRecord) -> LeaseState {
    match &record.caching {
        Some(CachingRecord::Oplock(level)) => state_of(OplockLevel(*level)),
        Some(CachingRecord::Lease { state, .. }) => LeaseState::from_bits_retain(*state),
        None => LeaseState::empty(),
    }
}

fn version_in(record: &OpenRecord) -> LeaseVersion {
    match &record.caching {
        Some(CachingRecord::Lease { v2: Some((epoch, parent)), .. }) => {
            LeaseVersion::V2 { parent: parent.map(Guid), epoch: *epoch }
        }
        _ => LeaseVersion::V1,
    }
}

fn created_in(record: &OpenRecord) -> Created {
    Created {
        client: Guid(record.client),
        create_guid: Some(Guid(record.create_guid)),
        app_instance: record.app_instance.map(|id| AppInstance { id: Guid(id), version: record.app_version }),
        desired_access: record.desired_access,
        share_access: record.share_access,
        options: record.options,
        action: CreateAction(record.action),
        user: Sid::decode(&record.user).ok(),
    }
}
