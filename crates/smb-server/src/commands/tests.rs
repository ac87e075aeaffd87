//! The handlers without a connection: a server on a RAM tree, requests made by hand.

mod closing;
mod creating;
mod directory_leases;
mod information;
mod links;
mod listing;
mod locking;
mod mac;
mod notifying;
mod owners;
mod permissions;
mod persistent;
mod posix;
mod quotas;
mod racing;
mod renaming;
mod reparse;
mod snapshots;
mod streams;
mod times;
mod trips;
mod watched;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arena::{Arena, IoBuf};
use env::Env;
use smb_auth::mechanism::{Account, UserLookup};
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_wire::context::CreateContextsBuf;
use smb_wire::msg::{
    CloseRequest, CreateDisposition, CreateOptions, CreateRequest, CreateResponse, FlushRequest,
    ImpersonationLevel, InfoType, LockElement, LockElements, LockFlags, LockRequest, OplockLevel,
    QueryInfoRequest, QueryInfoResponse, SetInfoRequest,
};
use smb_wire::security::Sid;
use smb_wire::{
    AccessMask, Decode, Encode, FileAttributes, FileId, Guid, Header, MessageBuilder, NtStatus, ShareAccess,
    Utf16Buf,
};
use vfs::{RamFs, RamOptions};

use crate::identity::User;
use crate::request::{Cancel, ConnectionFacts, Pending, Reply, Request};
use crate::session::{BindingFacts, Session};
use crate::share::Tree;
use crate::{
    Interface, Interfaces, Limits, OpenJournal, Protection, Server, ServerConfig, ShareConfig, TransportKind,
};

/// All rights that an open may request.
pub(super) const ALL: AccessMask = AccessMask::FILE_ALL_ACCESS;
pub(super) const SHARE_ALL: ShareAccess =
    ShareAccess::READ.union(ShareAccess::WRITE).union(ShareAccess::DELETE);

#[derive(Debug)]
struct Nobody;

impl UserLookup for Nobody {
    fn lookup(&self, _: &str, _: &str) -> Option<Account> {
        None
    }
}

impl Interfaces for Nobody {
    fn list(&self, _: SocketAddr) -> Vec<Interface> {
        Vec::new()
    }
}

/// A server with one share, and a user connected to it.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    facts: Arc<ConnectionFacts>,
    pub(super) session: Arc<Session>,
    tree: Arc<Tree>,
}

pub(crate) fn user(rid: u32) -> User {
    let sid = |authority, sub: &[u32]| Sid::new(authority, sub).expect("short");
    User {
        name: format!("user{rid}"),
        workstation: "TEST".into(),
        sid: sid(5, &[21, 1, 2, 3, rid]),
        groups: vec![Sid::EVERYONE, Sid::AUTHENTICATED_USERS, Sid::BUILTIN_USERS],
    }
}

impl World {
    pub(crate) fn new() -> World {
        let env = Env::simulated(7);
        let vfs = RamFs::new(&env, RamOptions::default()).expect("address space");
        World::on(env, ShareConfig::new("files", vfs), None, 1)
    }

    /// A server with this share, in its run number `boot`.
    fn on(env: Env, share: ShareConfig, journal: Option<Arc<dyn OpenJournal>>, boot: u32) -> World {
        let config = ServerConfig {
            name: "TEST".into(),
            guid: Guid([1; 16]),
            boot,
            journal,
            signing: Protection::Enabled,
            encryption: Protection::Enabled,
            dialect_min: 0x0202,
            dialect_max: 0x0311,
            interfaces: Arc::new(Nobody),
            limits: Limits::default(),
        };
        let arena = Arena::new(16 << 20).expect("a small mapping");
        let server = Server::new(config, Arc::new(Nobody), arena, env);
        server.add_share(share).expect("the first of its name");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 445));
        let facts = ConnectionFacts {
            id: 1,
            dialect: 0x0311,
            client_guid: Guid([2; 16]),
            client_capabilities: 0,
            client_security_mode: 1,
            server_capabilities: 0,
            server_security_mode: 1,
            max_io: 8 << 20,
            max_read: 8 << 20,
            send_max: u32::MAX,
            peer: any,
            local: any,
            transport: TransportKind::Tcp,
            multi_credit: false,
            posix: true,
            pipes: Arc::default(),
        };
        let (session, tree) = World::connect(&server, 1, user(1000));
        World { server, facts: Arc::new(facts), session, tree }
    }

    /// The same server with other bounds for opens.
    fn bounded(mut self, opens: usize, opens_per_user: usize) -> World {
        let server = Arc::get_mut(&mut self.server).expect("not shared yet");
        server.config.limits = Limits { opens, opens_per_user, ..server.config.limits };
        self
    }

    fn connect(server: &Arc<Server>, id: u64, user: User) -> (Arc<Session>, Arc<Tree>) {
        let binding = BindingFacts { dialect: 0x0311, client_guid: Guid([2; 16]), cipher: None };
        let key = Arc::new(SigningKey::new(SigningAlgorithm::AesCmac, &[3; 16]));
        let session = Session::new(id, user, binding, key, None, false, false, server.env.now());
        let share = server.share("files").expect("added before");
        let tree = session.add_tree(1, |id| Tree::new(id, share, ALL.bits())).expect("the first");
        (Arc::new(session), tree)
    }

    /// Another session of the server, by this id.
    pub(crate) fn join(&self, id: u64) {
        let (session, _) = World::connect(&self.server, id, user(1000));
        self.server.add_session(session, self.facts.peer);
    }

    /// Another user, connected to the same share.
    pub(super) fn another(&self, rid: u32) -> World {
        let (session, tree) = World::connect(&self.server, u64::from(rid), user(rid));
        World { server: Arc::clone(&self.server), facts: Arc::clone(&self.facts), session, tree }
    }

    pub(crate) fn request(&self, body: &impl Encode) -> Request {
        let mut message = Vec::new();
        let mut m = MessageBuilder::new(&mut message);
        m.push(&Header::default(), body).expect("fits");
        m.finish();
        Request {
            server: Arc::clone(&self.server),
            facts: Arc::clone(&self.facts),
            session: Arc::clone(&self.session),
            tree: Arc::clone(&self.tree),
            header: Header::default(),
            message: IoBuf::from(message),
            inherited: None,
            looked_up: None,
            encrypted: false,
            in_compound: false,
            cancel: Cancel::lasting(),
            pending: Pending { slot: 0, inbox: Arc::default() },
        }
    }

    /// A CREATE with contexts.
    pub(super) fn create_request(
        &self,
        path: &str,
        how: How,
        oplock_level: OplockLevel,
        contexts: &CreateContextsBuf,
    ) -> Request {
        let name = Utf16Buf::from(path);
        self.request(&CreateRequest {
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: how.access,
            share_access: how.share,
            create_disposition: how.disposition,
            create_options: how.options,
            file_attributes: how.attributes,
            oplock_level,
            name: name.as_utf16(),
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        })
    }

    /// The reply of a CREATE with contexts.
    pub(super) async fn create_with(
        &self,
        path: &str,
        how: How,
        oplock_level: OplockLevel,
        contexts: &CreateContextsBuf,
    ) -> Reply {
        super::create::handle(self.create_request(path, how, oplock_level, contexts)).await
    }

    /// The result of QUERY_INFO on an open.
    pub(super) async fn query(
        &self,
        file_id: FileId,
        info_type: InfoType,
        info_class: u8,
    ) -> Result<Vec<u8>, NtStatus> {
        let output_buffer_length = 4096;
        let q = QueryInfoRequest {
            info_type,
            info_class,
            output_buffer_length,
            file_id,
            ..QueryInfoRequest::default()
        };
        let reply = super::query_info::handle(self.request(&q)).await;
        Ok(success::<QueryInfoResponse<'_>>(&reply)?.buffer.to_vec())
    }

    pub(super) async fn try_create(&self, path: &str, how: How) -> Result<Created, NtStatus> {
        let reply = self.create_with(path, how, OplockLevel::NONE, &CreateContextsBuf::new()).await;
        let a = success::<CreateResponse<'_>>(&reply)?;
        Ok(Created { id: a.file_id, action: a.create_action })
    }

    pub(super) async fn create(&self, path: &str, how: How) -> FileId {
        self.try_create(path, how).await.expect("created").id
    }

    pub(super) async fn close(&self, file_id: FileId) {
        let reply =
            super::close::handle(self.request(&CloseRequest { file_id, ..CloseRequest::default() })).await;
        assert_eq!(reply.status, NtStatus::SUCCESS);
    }

    /// SET_INFO of a file class.
    pub(super) async fn set(&self, file_id: FileId, class: u8, buffer: &[u8]) -> NtStatus {
        let q = SetInfoRequest {
            info_type: InfoType::FILE,
            info_class: class,
            file_id,
            buffer,
            ..Default::default()
        };
        super::set_info::handle(self.request(&q)).await.status
    }

    pub(super) fn lock_request(
        &self,
        file_id: FileId,
        offset: u64,
        length: u64,
        flags: LockFlags,
    ) -> Request {
        let mut bytes = Vec::new();
        LockElement { offset, length, flags }.encode(&mut bytes);
        let locks = LockElements::from_bytes(&bytes).expect("one element");
        self.request(&LockRequest { lock_sequence: 0, file_id, locks })
    }

    pub(super) async fn flush(&self, file_id: FileId) -> NtStatus {
        super::flush::handle(self.request(&FlushRequest { file_id })).await.status
    }

    pub(super) async fn exists(&self, path: &str) -> bool {
        match self.try_create(path, How { access: AccessMask::READ_ATTRIBUTES, ..How::OPEN }).await {
            Ok(open) => {
                self.close(open.id).await;
                true
            }
            Err(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND) => false,
            Err(e) => panic!("{path}: {e}"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Created {
    pub(super) id: FileId,
    pub(super) action: smb_wire::msg::CreateAction,
}

/// How to open a file.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) access: AccessMask,
    pub(super) share: ShareAccess,
    pub(super) disposition: CreateDisposition,
    pub(super) options: CreateOptions,
    pub(super) attributes: FileAttributes,
}

impl How {
    pub(super) const OPEN: How = How {
        access: ALL,
        share: SHARE_ALL,
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::empty(),
        attributes: FileAttributes::empty(),
    };
    pub(super) const CREATE: How = How { disposition: CreateDisposition::CREATE, ..How::OPEN };
    pub(super) const OPEN_IF: How = How { disposition: CreateDisposition::OPEN_IF, ..How::OPEN };
    pub(super) const MKDIR: How = How { options: CreateOptions::DIRECTORY_FILE, ..How::CREATE };
}

pub(super) fn success<'a, T: Decode<'a>>(reply: &'a Reply) -> Result<T, NtStatus> {
    if reply.status.is_error() {
        return Err(reply.status);
    }
    Ok(T::decode(&reply.message).expect("our own reply"))
}
