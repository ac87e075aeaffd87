//! The operations of one client, chosen by its seed, until the time is up.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::Env;
use smb_wire::context::{
    CreateContextsBuf, CreateRequestContext, DurableFlags, DurableReconnectV2, DurableRequestV2, Lease,
    LeaseFlags, LeaseV2,
};
use smb_wire::fscc::{FileInfoClass, FileRenameInformation};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CloseRequest, CompletionFilter, CreateDisposition, CreateOptions,
    CreateRequest, CreateResponse, ImpersonationLevel, InfoType, LeaseState, LockElement, LockElements,
    LockFlags, LockRequest, OplockLevel, ReadRequest, ReadResponse, SetInfoRequest, WriteRequest,
};
use smb_wire::{AccessMask, Command, Decode, Encode, FileId, Guid, NtStatus, ShareAccess, Utf16Buf};

use super::Workers;
use super::peer::{Peer, Ticket};

const SHARES: [&str; 2] = ["ram", "dir"];
/// The files of each share that all clients work on.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const BLOCK: u32 = 8192;
const BLOCKS: u64 = 8;
/// How long the server keeps a durable open whose client does not reclaim it, in ms.
const DURABLE_MS: u32 = 2000;

/// The number of operations of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Did {
    opened: usize,
    written: usize,
    waited_for_lock: usize,
    cancelled: usize,
    read: usize,
    renamed: usize,
    deleted: usize,
    notified: usize,
    breaks: usize,
    lost: usize,
    reclaimed: usize,
}

impl Did {
    fn each(&mut self) -> [&mut usize; 11] {
        let Did {
            opened,
            written,
            waited_for_lock,
            cancelled,
            read,
            renamed,
            deleted,
            notified,
            breaks,
            lost,
            reclaimed,
        } = self;
        [
            opened,
            written,
            waited_for_lock,
            cancelled,
            read,
            renamed,
            deleted,
            notified,
            breaks,
            lost,
            reclaimed,
        ]
    }

    pub fn assert_all_happened(mut self) {
        assert!(self.each().iter().all(|n| **n > 0), "{self:?}");
    }
}

impl AddAssign for Did {
    fn add_assign(&mut self, mut other: Did) {
        for (sum, n) in self.each().into_iter().zip(other.each()) {
            *sum += *n;
        }
    }
}

/// See the module.
pub struct Client {
    workers: Arc<Workers>,
    env: Env,
    number: u8,
    random: u64,
    /// Source of unique names and data.
    counter: u64,
    did: Did,
}

/// The client's session.
struct Session {
    peer: Peer,
    trees: Vec<u32>,
    watch: Option<(FileId, Ticket)>,
}

/// A file that it has open.
#[derive(Clone, Copy)]
struct Open {
    id: FileId,
    share: usize,
    /// The name in the CREATE; the file may have another name by now.
    name: &'static str,
    /// The CreateGuid, and the lease key, if it has one.
    create: Guid,
    leased: bool,
}

/// How it opens a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Oplock,
    Lease,
    Durable,
}

impl Client {
    pub fn new(workers: Arc<Workers>, env: Env, number: u8) -> Client {
        let random = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Client { workers, env, number, random, counter: 0, did: Did::default() }
    }

    pub async fn run(mut self, until: Instant) -> Did {
        let mut session = self.log_on().await;
        while self.env.now() < until {
            self.watch(&mut session).await;
            match self.pick(10) {
                0..=3 => self.write(&mut session).await,
                4 | 5 => self.read(&mut session).await,
                6 => self.rename(&mut session).await,
                7 => self.delete(&mut session).await,
                _ => session = self.lose(session).await,
            }
        }
        self.leave(session).await;
        self.did
    }

    fn pick(&mut self, n: u64) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % n) as usize
    }

    fn guid(&mut self) -> Guid {
        self.counter += 1;
        let mut guid = [self.number; 16];
        guid[..8].copy_from_slice(&self.counter.to_le_bytes());
        Guid(guid)
    }

    async fn log_on(&mut self) -> Session {
        let lines = 1 + usize::from(self.number.is_multiple_of(3));
        let signs = self.number.is_multiple_of(2);
        let (peer, trees) = Peer::log_on(&self.workers, self.number, lines, signs, &SHARES).await;
        Session { peer, trees, watch: None }
    }

    /// Closes its opens, and waits for the replies to all requests.
    async fn leave(&mut self, mut session: Session) {
        if let Some((id, ticket)) = session.watch.take() {
            session.peer.cancel(ticket, session.trees[1]).await;
            let status = session.peer.reply(ticket).await.0.status;
            let allowed = [NtStatus::CANCELLED, NtStatus::SUCCESS, NtStatus::NOTIFY_ENUM_DIR];
            assert!(allowed.contains(&status), "{status:?}");
            let body = CloseRequest { file_id: id, ..CloseRequest::default() };
            assert_eq!(self.call(&mut session, 1, Command::CLOSE, &body, &[]).await.0, NtStatus::SUCCESS);
        }
        session.peer.look(Duration::from_millis(1)).await;
        session.peer.assert_nothing_waits();
        self.did.breaks += session.peer.breaks;
    }

    async fn call(
        &mut self,
        session: &mut Session,
        share: usize,
        command: Command,
        body: &impl Encode,
        payload: &[u8],
    ) -> (NtStatus, Vec<u8>) {
        let line = self.pick(session.peer.lines() as u64);
        let ticket = session.peer.send(line, session.trees[share], command, body, payload).await;
        let (header, message) = session.peer.reply(ticket).await;
        (header.status, message)
    }

    /// Sends a CHANGE_NOTIFY on the root of a share.
    async fn watch(&mut self, session: &mut Session) {
        let id = match session.watch {
            Some((_, ticket)) if !session.peer.is_answered(ticket) => return,
            Some((id, ticket)) => {
                let status = session.peer.reply(ticket).await.0.status;
                assert!([NtStatus::SUCCESS, NtStatus::NOTIFY_ENUM_DIR].contains(&status), "{status:?}");
                self.did.notified += 1;
                id
            }
            None => {
                let body = CreateRequest {
                    impersonation_level: ImpersonationLevel::IMPERSONATION,
                    desired_access: AccessMask::GENERIC_READ,
                    share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
                    create_disposition: CreateDisposition::OPEN,
                    create_options: CreateOptions::DIRECTORY_FILE,
                    ..CreateRequest::default()
                };
                let (status, message) = self.call(session, 1, Command::CREATE, &body, &[]).await;
                assert_eq!(status, NtStatus::SUCCESS, "the root of a share");
                CreateResponse::decode(&message).expect("sound").file_id
            }
        };
        let body = ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: 4096,
            file_id: id,
            completion_filter: CompletionFilter::FILE_NAME | CompletionFilter::LAST_WRITE,
        };
        let line = self.pick(session.peer.lines() as u64);
        let ticket = session.peer.send(line, session.trees[1], Command::CHANGE_NOTIFY, &body, &[]).await;
        session.watch = Some((id, ticket));
    }

    /// Opens one of the files; `None` when another client is deleting it.
    async fn open(&mut self, session: &mut Session, how: How) -> Option<Open> {
        let (share, name, create) = (self.pick(2), NAMES[self.pick(NAMES.len() as u64)], self.guid());
        let mut contexts = CreateContextsBuf::new();
        if matches!(how, How::Lease | How::Durable) {
            contexts.request(&CreateRequestContext::Lease(lease(create))).expect("it fits");
        }
        if how == How::Durable {
            let durable = DurableRequestV2 {
                timeout_ms: DURABLE_MS,
                flags: DurableFlags::empty(),
                create_guid: create,
            };
            contexts.request(&CreateRequestContext::DurableV2(durable)).expect("it fits");
        }
        let path = Utf16Buf::from(name);
        let body = CreateRequest {
            oplock_level: match how {
                How::Plain => OplockLevel::NONE,
                How::Oplock => OplockLevel::BATCH,
                How::Lease | How::Durable => OplockLevel::LEASE,
            },
            contexts: contexts.as_contexts(),
            ..create_request(&path)
        };
        let (status, message) = self.call(session, share, Command::CREATE, &body, &[]).await;
        if status != NtStatus::SUCCESS {
            assert!(
                [NtStatus::DELETE_PENDING, NtStatus::SHARING_VIOLATION].contains(&status),
                "CREATE: {status:?}"
            );
            return None;
        }
        self.did.opened += 1;
        let response = CreateResponse::decode(&message).expect("sound");
        Some(Open {
            id: response.file_id,
            share,
            name,
            create,
            leased: response.oplock_level == OplockLevel::LEASE,
        })
    }

    async fn open_somehow(&mut self, session: &mut Session) -> Option<Open> {
        let how = [How::Plain, How::Plain, How::Oplock, How::Lease, How::Durable][self.pick(5)];
        self.open(session, how).await
    }

    async fn close(&mut self, session: &mut Session, open: Open) {
        let body = CloseRequest { file_id: open.id, ..CloseRequest::default() };
        let (status, _) = self.call(session, open.share, Command::CLOSE, &body, &[]).await;
        assert_eq!(status, NtStatus::SUCCESS, "CLOSE");
    }

    /// Locks a block, waiting or not; returns whether it was granted.
    async fn lock(&mut self, session: &mut Session, open: Open, block: u64) -> bool {
        let waits = self.pick(2) == 0;
        let flags = if waits { LockFlags::empty() } else { LockFlags::FAIL_IMMEDIATELY };
        let elements = element(block, LockFlags::EXCLUSIVE_LOCK | flags);
        let body = lock_request(open, &elements);
        let (line, tree) = (self.pick(session.peer.lines() as u64), session.trees[open.share]);
        let ticket = session.peer.send(line, tree, Command::LOCK, &body, &[]).await;
        if waits {
            session.peer.look(Duration::from_millis(2)).await;
            self.did.waited_for_lock += usize::from(!session.peer.is_answered(ticket));
            if !session.peer.is_answered(ticket) && self.pick(3) == 0 {
                session.peer.cancel(ticket, tree).await;
            }
        }
        match session.peer.reply(ticket).await.0.status {
            NtStatus::SUCCESS => true,
            NtStatus::LOCK_NOT_GRANTED if !waits => false,
            NtStatus::CANCELLED if waits => {
                self.did.cancelled += 1;
                false
            }
            status => panic!("LOCK: {status:?}"),
        }
    }

    /// Writes a block under a lock and reads it back.
    async fn write_locked(&mut self, session: &mut Session, open: Open, block: u64) -> Option<Vec<u8>> {
        if !self.lock(session, open, block).await {
            return None;
        }
        self.counter += 1;
        let word = self.counter << 16 | block << 8 | u64::from(self.number);
        let data: Vec<u8> = word.to_le_bytes().repeat(BLOCK as usize / 8);
        let body = WriteRequest {
            data_offset: WriteRequest::HEAD_LEN as u16,
            length: BLOCK,
            offset: block * u64::from(BLOCK),
            file_id: open.id,
            ..WriteRequest::default()
        };
        let (status, _) = self.call(session, open.share, Command::WRITE, &body, &data).await;
        assert_eq!(status, NtStatus::SUCCESS, "a WRITE under a lock");
        self.did.written += 1;
        self.assert_reads(session, open, block, &data).await;
        Some(data)
    }

    async fn assert_reads(&mut self, session: &mut Session, open: Open, block: u64, data: &[u8]) {
        let (status, message) =
            self.call(session, open.share, Command::READ, &read_request(open, block), &[]).await;
        assert_eq!(status, NtStatus::SUCCESS, "a READ under a lock");
        let found = ReadResponse::decode(&message).expect("sound").data(&message).expect("there");
        assert!(found == data, "block {block}: {:x?} instead of {:x?}", &found[..8], &data[..8]);
    }

    async fn unlock(&mut self, session: &mut Session, open: Open, block: u64) {
        let elements = element(block, LockFlags::UNLOCK);
        let (status, _) =
            self.call(session, open.share, Command::LOCK, &lock_request(open, &elements), &[]).await;
        assert_eq!(status, NtStatus::SUCCESS, "unlock");
    }

    async fn write(&mut self, session: &mut Session) {
        let Some(open) = self.open_somehow(session).await else { return };
        for _ in 0..=self.pick(3) {
            // One lock at a time: two clients that wait for each other's would wait for ever.
            let block = self.pick(BLOCKS) as u64;
            if self.write_locked(session, open, block).await.is_none() {
                continue;
            }
            // Closing releases a lock, too.
            if self.pick(4) == 0 {
                break;
            }
            self.unlock(session, open, block).await;
        }
        self.close(session, open).await;
    }

    /// Reads several blocks at once, without locks: each word was written to this block by one of the clients.
    async fn read(&mut self, session: &mut Session) {
        let Some(open) = self.open_somehow(session).await else { return };
        let mut tickets = Vec::new();
        for block in 0..BLOCKS {
            let (line, tree) = (self.pick(session.peer.lines() as u64), session.trees[open.share]);
            tickets.push(session.peer.send(line, tree, Command::READ, &read_request(open, block), &[]).await);
        }
        for (block, ticket) in (0..BLOCKS).zip(tickets) {
            let (header, message) = session.peer.reply(ticket).await;
            match header.status {
                NtStatus::SUCCESS => {
                    let data = ReadResponse::decode(&message).expect("sound").data(&message).expect("there");
                    for word in data.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight")))
                    {
                        assert!(word == 0 || word >> 8 & 0xFF == block, "{word:x} in block {block}");
                    }
                    self.did.read += 1;
                }
                NtStatus::END_OF_FILE | NtStatus::FILE_LOCK_CONFLICT => {}
                status => panic!("READ: {status:?}"),
            }
        }
        self.close(session, open).await;
    }

    async fn set(
        &mut self,
        session: &mut Session,
        open: Open,
        class: FileInfoClass,
        buffer: &[u8],
    ) -> NtStatus {
        let body = SetInfoRequest {
            info_type: InfoType::FILE,
            info_class: class.0,
            file_id: open.id,
            buffer,
            ..SetInfoRequest::default()
        };
        self.call(session, open.share, Command::SET_INFO, &body, &[]).await.0
    }

    async fn rename(&mut self, session: &mut Session) {
        let Some(open) = self.open_somehow(session).await else { return };
        let name = Utf16Buf::from(NAMES[self.pick(NAMES.len() as u64)]);
        let to = FileRenameInformation {
            replace_if_exists: self.pick(2) == 0,
            root_directory: 0,
            name: name.as_utf16(),
        };
        let mut buffer = Vec::new();
        to.encode(&mut buffer).expect("it fits");
        match self.set(session, open, FileInfoClass::RENAME, &buffer).await {
            NtStatus::SUCCESS => self.did.renamed += 1,
            NtStatus::OBJECT_NAME_COLLISION
            | NtStatus::ACCESS_DENIED
            | NtStatus::SHARING_VIOLATION
            | NtStatus::DELETE_PENDING => {}
            status => panic!("rename: {status:?}"),
        }
        self.close(session, open).await;
    }

    async fn delete(&mut self, session: &mut Session) {
        let Some(open) = self.open_somehow(session).await else { return };
        match self.set(session, open, FileInfoClass::DISPOSITION, &[1]).await {
            NtStatus::SUCCESS => self.did.deleted += 1,
            NtStatus::DELETE_PENDING => {}
            status => panic!("delete: {status:?}"),
        }
        self.close(session, open).await;
    }

    /// Loses all connections while it holds a lock through a durable open, and reconnects the open over others: the
    /// data that it has written is still there. Another client may have caused the open to be closed in between.
    async fn lose(&mut self, mut session: Session) -> Session {
        let Some(open) = self.open(&mut session, How::Durable).await else { return session };
        let block = self.pick(BLOCKS) as u64;
        let Some(data) = self.write_locked(&mut session, open, block).await else {
            self.close(&mut session, open).await;
            return session;
        };
        self.did.breaks += session.peer.breaks;
        self.did.lost += 1;
        drop(session);
        let mut session = self.log_on().await;
        for _ in 0..5 {
            if let Some(open) = self.reclaim(&mut session, open).await {
                self.did.reclaimed += 1;
                self.assert_reads(&mut session, open, block, &data).await;
                self.close(&mut session, open).await;
                break;
            }
            // The server may not have noticed the loss yet.
            session.peer.look(Duration::from_millis(5)).await;
        }
        session
    }

    async fn reclaim(&mut self, session: &mut Session, open: Open) -> Option<Open> {
        let mut contexts = CreateContextsBuf::new();
        let again =
            DurableReconnectV2 { file_id: open.id, create_guid: open.create, flags: DurableFlags::empty() };
        contexts.request(&CreateRequestContext::DurableReconnectV2(again)).expect("it fits");
        if open.leased {
            contexts.request(&CreateRequestContext::Lease(lease(open.create))).expect("it fits");
        }
        let name = Utf16Buf::from(open.name);
        let oplock_level = if open.leased { OplockLevel::LEASE } else { OplockLevel::NONE };
        let body = CreateRequest { oplock_level, contexts: contexts.as_contexts(), ..create_request(&name) };
        let (status, message) = self.call(session, open.share, Command::CREATE, &body, &[]).await;
        match status {
            NtStatus::SUCCESS => {
                Some(Open { id: CreateResponse::decode(&message).expect("sound").file_id, ..open })
            }
            // MS-SMB2 3.3.5.9.12: also a lease of a file that has another name by now.
            NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::INVALID_PARAMETER => None,
            status => panic!("reconnecting: {status:?}"),
        }
    }
}

fn lease(key: Guid) -> Lease {
    let state = LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING | LeaseState::WRITE_CACHING;
    Lease { key, state, flags: LeaseFlags::empty(), v2: Some(LeaseV2::default()) }
}

fn create_request(name: &Utf16Buf) -> CreateRequest<'_> {
    CreateRequest {
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_ALL_ACCESS,
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        create_disposition: CreateDisposition::OPEN_IF,
        create_options: CreateOptions::NON_DIRECTORY_FILE,
        name: name.as_utf16(),
        ..CreateRequest::default()
    }
}

fn element(block: u64, flags: LockFlags) -> Vec<u8> {
    let mut bytes = Vec::new();
    LockElement { offset: block * u64::from(BLOCK), length: BLOCK.into(), flags }.encode(&mut bytes);
    bytes
}

fn lock_request(open: Open, elements: &[u8]) -> LockRequest<'_> {
    let locks = LockElements::from_bytes(elements).expect("one");
    LockRequest { lock_sequence: 0, file_id: open.id, locks }
}

fn read_request<'a>(open: Open, block: u64) -> ReadRequest<'a> {
    ReadRequest {
        file_id: open.id,
        offset: block * u64::from(BLOCK),
        length: BLOCK,
        ..ReadRequest::default()
    }
}
