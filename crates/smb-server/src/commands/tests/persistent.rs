//! Persistent and resilient opens (MS-SMB2 3.3.5.9.10, 3.3.5.9.12, 3.3.5.15.9, 3.3.7.1): restarts of the server, failing
//! journals, disconnected clients.

mod bounded;
mod breaking;
mod cancelling;
mod counting;
mod expiring;
mod failing;
mod resilient;
mod restoring;
mod scale;

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::poll_immediate;
use smb_wire::context::{
    AppInstanceVersion, CreateRequestContext, CreateResponseContext, DurableFlags, DurableReconnectV2,
    DurableRequestV2, Lease, LeaseFlags, LeaseV2,
};
use smb_wire::fscc::{FileDispositionInformation, FileInfoClass, FileRenameInformation, PosixCreateRequest};
use smb_wire::msg::{
    Capabilities, CreateAction, LeaseBreakAcknowledgment, LeaseBreakFlags, LeaseBreakNotification, LeaseState,
};
use smb_wire::{HEADER_LEN, HeaderFlags};
use vfs::Vfs;

use super::*;
use crate::durable::SessionEnd;
use crate::inbox::{Inbox, Notice};
use crate::journal::memory::MemoryJournal;
use crate::journal::{CachingRecord, OpenRecord};

const R: LeaseState = LeaseState::READ_CACHING;
const RH: LeaseState = R.union(LeaseState::HANDLE_CACHING);
const RWH: LeaseState = RH.union(LeaseState::WRITE_CACHING);
const NONE: LeaseState = LeaseState::empty();

/// An open that deletes its file.
const DELETE_ON_CLOSE: How = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::CREATE };

/// A run of a server with a journal and a continuously available share.
struct Run {
    journal: Arc<MemoryJournal>,
    vfs: Arc<dyn Vfs>,
    w: World,
    boot: u32,
}

/// A client with one connection.
struct Client {
    w: World,
    inbox: Arc<Inbox>,
}

/// The contexts of a CREATE.
#[derive(Clone, Copy)]
struct Ask {
    /// CreateGuid of a persistent open.
    create: Option<u8>,
    timeout_ms: u32,
    lease: Option<(u8, LeaseState)>,
    posix: bool,
    /// AppInstanceId.
    instance: Option<u8>,
    /// AppInstanceVersion, high and low half.
    version: Option<(u64, u64)>,
    replay: bool,
    reconnect: Option<(FileId, u8)>,
}

const PLAIN: Ask = Ask {
    create: None,
    timeout_ms: 60_000,
    lease: None,
    posix: false,
    instance: None,
    version: None,
    replay: false,
    reconnect: None,
};

/// A persistent open, its CreateGuid and lease key made of one byte.
fn persistent(name: u8, lease: LeaseState) -> Ask {
    Ask { create: Some(name), lease: Some((name, lease)), ..PLAIN }
}

/// The reply to a CREATE.
#[derive(Debug)]
struct Opened {
    id: FileId,
    action: CreateAction,
    lease: Option<Lease>,
    durable: bool,
    then: Option<Notice>,
}

impl Opened {
    fn state(&self) -> LeaseState {
        self.lease.expect("a lease").state
    }

    fn epoch(&self) -> u16 {
        self.lease.and_then(|l| l.v2).expect("of version 2").epoch
    }
}

impl Run {
    fn new() -> Run {
        let vfs = RamFs::new(&Env::simulated(7), RamOptions::default()).expect("address space");
        Run::on(Arc::default(), vfs, 1)
    }

    fn on(journal: Arc<MemoryJournal>, vfs: Arc<dyn Vfs>, boot: u32) -> Run {
        let share = ShareConfig { continuous: true, ..ShareConfig::new("files", Arc::clone(&vfs)) };
        let w = World::on(Env::simulated(7), share, Some(Arc::clone(&journal) as Arc<dyn OpenJournal>), boot);
        Run { journal, vfs, w, boot }
    }

    /// Kills the server and starts another with the records on stable storage. Returns it with the number of its opens.
    async fn restarted(&self) -> (Run, usize) {
        let next = Run::on(self.journal.reopened(), Arc::clone(&self.vfs), self.boot + 1);
        let (restored, lost) = next.w.server.restore_opens().await;
        assert_eq!(lost, 0);
        (next, restored)
    }

    /// A connection of the client with this ClientGuid.
    fn client(&self, guid: u8) -> Client {
        let mut w = self.w.another(1000);
        let facts = Arc::make_mut(&mut w.facts);
        facts.client_guid = Guid([guid; 16]);
        facts.server_capabilities =
            (Capabilities::PERSISTENT_HANDLES | Capabilities::LEASING | Capabilities::DIRECTORY_LEASING)
                .bits();
        let inbox = Arc::<Inbox>::default();
        w.server.clients.add(w.facts.client_guid, &inbox);
        Client { w, inbox }
    }
}

impl Client {
    fn create(
        &self,
        path: &str,
        how: How,
        ask: Ask,
    ) -> Pin<Box<dyn Future<Output = Result<Opened, NtStatus>>>> {
        let request = self.creating(path, how, ask);
        Box::pin(async move { opened(super::super::create::handle(request).await) })
    }

    /// A CREATE.
    fn creating(&self, path: &str, how: How, ask: Ask) -> Request {
        let mut contexts = CreateContextsBuf::new();
        let mut posix = Vec::new();
        PosixCreateRequest { mode: 0o644 }.encode(&mut posix);
        let all = [
            ask.create.map(|name| {
                CreateRequestContext::DurableV2(DurableRequestV2 {
                    timeout_ms: ask.timeout_ms,
                    flags: DurableFlags::PERSISTENT,
                    create_guid: Guid([name; 16]),
                })
            }),
            ask.lease.map(|(key, state)| {
                let v2 = LeaseV2 { parent_lease_key: Guid::default(), epoch: 0 };
                let flags = LeaseFlags::empty();
                CreateRequestContext::Lease(Lease { key: Guid([key; 16]), state, flags, v2: Some(v2) })
            }),
            ask.reconnect.map(|(file_id, name)| {
                CreateRequestContext::DurableReconnectV2(DurableReconnectV2 {
                    file_id,
                    create_guid: Guid([name; 16]),
                    flags: DurableFlags::PERSISTENT,
                })
            }),
            ask.instance.map(|id| CreateRequestContext::AppInstanceId(Guid([id; 16]))),
            ask.version.map(|(high, low)| {
                let structure_size = AppInstanceVersion::LEN as u16;
                CreateRequestContext::AppInstanceVersion(AppInstanceVersion { structure_size, high, low })
            }),
            ask.posix.then_some(CreateRequestContext::Posix(&posix)),
        ];
        for context in all.into_iter().flatten() {
            contexts.request(&context).expect("it fits");
        }
        let oplock = if ask.lease.is_some() { OplockLevel::LEASE } else { OplockLevel::NONE };
        let mut request = self.w.create_request(path, how, oplock, &contexts);
        request.header.command = smb_wire::Command::CREATE;
        request.header.flags.set(HeaderFlags::REPLAY, ask.replay);
        request
    }

    /// Reconnects a persistent open by its FileId.
    async fn reconnect(&self, path: &str, before: FileId, ask: Ask) -> Result<Opened, NtStatus> {
        let name = ask.create.expect("a persistent open");
        let ask = Ask { create: None, reconnect: Some((before, name)), ..ask };
        self.create(path, How::OPEN, ask).await
    }

    /// Its connection is lost.
    async fn lose_connection(&self) {
        self.w.server.clients.remove(self.w.facts.client_guid, &self.inbox);
        self.inbox.close();
        self.w.server.end_session(&self.w.session, SessionEnd::Disconnected).await;
    }

    async fn lock(&self, id: FileId, offset: u64, number: u32, unlock: bool) -> NtStatus {
        super::super::lock::handle(self.locking(id, offset, number, unlock)).await.status
    }

    /// A LOCK of ten bytes, with this LockSequence.
    fn locking(&self, file_id: FileId, offset: u64, lock_sequence: u32, unlock: bool) -> Request {
        let flags = match unlock {
            true => LockFlags::UNLOCK,
            false => LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY,
        };
        let mut bytes = Vec::new();
        LockElement { offset, length: 10, flags }.encode(&mut bytes);
        let locks = LockElements::from_bytes(&bytes).expect("one element");
        self.w.request(&LockRequest { lock_sequence, file_id, locks })
    }

    async fn acknowledge(&self, b: LeaseBreakNotification) -> NtStatus {
        let ack = LeaseBreakAcknowledgment {
            flags: LeaseBreakFlags::empty(),
            lease_key: b.lease_key,
            lease_state: b.new_lease_state,
            lease_duration: 0,
        };
        super::super::oplock::handle(self.w.request(&ack)).await.status
    }

    /// The next break that it was sent.
    fn broken(&self) -> Option<LeaseBreakNotification> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        self.inbox.poll(&mut cx).map(lease_break)
    }

    async fn delete(&self, id: FileId) {
        let mut mark = Vec::new();
        FileDispositionInformation { delete_pending: true }.encode(&mut mark);
        assert_eq!(self.w.set(id, FileInfoClass::DISPOSITION.0, &mark).await, NtStatus::SUCCESS);
    }

    async fn rename(&self, id: FileId, to: &str) {
        let (name, mut bytes) = (Utf16Buf::from(to), Vec::new());
        let q = FileRenameInformation { replace_if_exists: false, root_directory: 0, name: name.as_utf16() };
        q.encode(&mut bytes).expect("fits");
        assert_eq!(self.w.set(id, FileInfoClass::RENAME.0, &bytes).await, NtStatus::SUCCESS);
    }
}

fn lease_break(notice: Notice) -> LeaseBreakNotification {
    match notice {
        Notice::LeaseBreak(b) => b,
        other => panic!("{other:?}"),
    }
}

fn opened(reply: Reply) -> Result<Opened, NtStatus> {
    let a = success::<CreateResponse<'_>>(&reply)?;
    assert!(reply.message.len() > HEADER_LEN);
    let (mut lease, mut durable) = (None, false);
    for context in a.contexts.responses() {
        match context.expect("well-formed") {
            CreateResponseContext::Lease(l) => lease = Some(l),
            CreateResponseContext::DurableV2(d) => durable = d.flags.contains(DurableFlags::PERSISTENT),
            _ => {}
        }
    }
    Ok(Opened {
        id: a.file_id,
        action: a.create_action,
        lease,
        durable,
        then: reply.extra.and_then(|extra| extra.then),
    })
}
