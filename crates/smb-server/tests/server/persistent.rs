//! Persistent opens and breaks of leases, on the wire.

use env::Env;
use smb_client::{ConnectOptions, OpenOptions};
use smb_server::{FileJournal, Limits};
use smb_wire::context::{
    CreateContextsBuf, CreateRequestContext, DurableFlags, DurableReconnectV2, DurableRequestV2, Lease,
    LeaseFlags, LeaseV2,
};
use smb_wire::msg::{
    CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, LeaseBreakAcknowledgment,
    LeaseBreakFlags, LeaseBreakNotification, LeaseState, OplockLevel,
};
use smb_wire::{AccessMask, Command, Decode, FileId, Guid, NtStatus, ShareAccess, Utf16Buf};
use tokio::io::AsyncWriteExt;

use crate::raw::Raw;
use crate::world::{World, credentials};

const RWH: LeaseState =
    LeaseState::READ_CACHING.union(LeaseState::HANDLE_CACHING).union(LeaseState::WRITE_CACHING);
const NAME: Guid = Guid([5; 16]);

/// A server with a journal, and the folder that it is in.
fn world(limits: Limits) -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = FileJournal::open(&folder.path().join("opens.journal")).expect("made");
    (World::with_journal(Env::real(), 64 << 20, limits, Some(journal)), folder)
}

/// A session of the client with this ClientGuid.
async fn connected(world: &World, guid: u8) -> (Raw, tokio::task::JoinHandle<()>) {
    let (stream, serving) = world.dial().await;
    let mut raw = Raw::new(stream);
    raw.negotiate(0x0311, guid).await;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    raw.tree("ram").await;
    (raw, serving)
}

/// This project's client gets a persistent handle where it requests one and the share supports them (MS-SMB2
/// 3.2.4.2.2.2, 3.2.4.3.5).
#[tokio::test]
async fn asked_for_by_our_client() {
    let (world, _folder) = world(Limits::default());
    let client = world.client(ConnectOptions::new(credentials("alice"))).await;
    for (share, asked) in [("ram", true), ("ram", false), ("null", true)] {
        let options = OpenOptions { persistent: asked, ..OpenOptions::open_or_create() };
        let file = client.tree(share).await.expect("the share").open("f", options).await.expect("opened");
        assert_eq!(file.is_persistent(), asked && share == "ram", "{share}, {asked}");
        file.close().await.expect("closed");
    }
}

/// A CREATE of "f", not sent yet.
fn create(raw: &mut Raw, contexts: &CreateContextsBuf, oplock_level: OplockLevel) -> Vec<u8> {
    let name = Utf16Buf::from("f");
    let body = CreateRequest {
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_ALL_ACCESS,
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        create_disposition: CreateDisposition::OPEN_IF,
        oplock_level,
        name: name.as_utf16(),
        contexts: contexts.as_contexts(),
        ..CreateRequest::default()
    };
    raw.encode(Command::CREATE, 1, &body, &[])
}

/// A persistent CREATE with a lease; or the reconnect to it.
fn persistent(raw: &mut Raw, reconnect: Option<FileId>) -> Vec<u8> {
    let mut contexts = CreateContextsBuf::new();
    let flags = DurableFlags::PERSISTENT;
    let durable = match reconnect {
        None => {
            CreateRequestContext::DurableV2(DurableRequestV2 { timeout_ms: 60_000, flags, create_guid: NAME })
        }
        Some(file_id) => {
            CreateRequestContext::DurableReconnectV2(DurableReconnectV2 { file_id, create_guid: NAME, flags })
        }
    };
    contexts.request(&durable).expect("it fits");
    let v2 = Some(LeaseV2 { parent_lease_key: Guid::default(), epoch: 0 });
    let lease = Lease { key: NAME, state: RWH, flags: LeaseFlags::empty(), v2 };
    contexts.request(&CreateRequestContext::Lease(lease)).expect("it fits");
    create(raw, &contexts, OplockLevel::LEASE)
}

/// The next answer to a CREATE: the FileId.
async fn opened(raw: &mut Raw) -> Result<FileId, NtStatus> {
    let (header, m) = raw.answer().await.expect("an answer");
    assert_eq!(header.command, Command::CREATE);
    match header.status {
        NtStatus::SUCCESS => Ok(CreateResponse::decode(&m).expect("sound").file_id),
        status => Err(status),
    }
}

/// Receives a break and acknowledges it.
async fn acknowledge(raw: &mut Raw) {
    let (header, m) = raw.notification().await.expect("a break");
    assert_eq!((header.command, header.message_id), (Command::OPLOCK_BREAK, u64::MAX));
    let broken = LeaseBreakNotification::decode(&m).expect("sound");
    let ack = LeaseBreakAcknowledgment {
        flags: LeaseBreakFlags::empty(),
        lease_key: broken.lease_key,
        lease_state: broken.new_lease_state,
        lease_duration: 0,
    };
    let (header, _) = raw.call(Command::OPLOCK_BREAK, &ack).await.expect("an answer");
    assert_eq!(header.status, NtStatus::SUCCESS);
}

/// A break that a client missed is sent after the reply to its reconnect, on that connection (MS-SMB2 3.3.4.7).
#[tokio::test]
async fn a_missed_break_follows_the_reconnect() {
    let (world, _folder) = world(Limits::default());
    let (mut a, serving) = connected(&world, 1).await;
    let m = persistent(&mut a, None);
    a.stream.write_all(&m).await.expect("sent");
    let file = opened(&mut a).await.expect("made");
    drop(a);
    serving.await.expect("served");
    let (mut b, _serving) = connected(&world, 2).await;
    let m = create(&mut b, &CreateContextsBuf::new(), OplockLevel::NONE);
    b.stream.write_all(&m).await.expect("sent");
    // The break has begun once the server has sent the interim response for the CREATE.
    let (header, _) = crate::raw::message(&mut b.stream).await.expect("an interim response");
    assert_eq!(header.status, NtStatus::PENDING);

    let (mut a, _serving) = connected(&world, 1).await;
    let m = persistent(&mut a, Some(file));
    a.stream.write_all(&m).await.expect("sent");
    assert_eq!(opened(&mut a).await.expect("its own").persistent, file.persistent);
    acknowledge(&mut a).await;
    opened(&mut b).await.expect("opened");
}

/// Waiting CREATEs leave room for the requests that end their wait.
#[tokio::test]
async fn pending_creates_are_bounded() {
    let (world, _folder) = world(Limits { pending_per_connection: 8, ..Limits::default() });
    let (mut a, _serving) = connected(&world, 1).await;
    let m = persistent(&mut a, None);
    a.stream.write_all(&m).await.expect("sent");
    opened(&mut a).await.expect("made");
    let (mut b, _serving) = connected(&world, 2).await;
    for _ in 0..20 {
        let m = create(&mut b, &CreateContextsBuf::new(), OplockLevel::NONE);
        b.stream.write_all(&m).await.expect("sent");
    }
    for _ in 0..12 {
        assert_eq!(opened(&mut b).await, Err(NtStatus::INSUFFICIENT_RESOURCES));
    }
    assert_eq!(b.echo().await, Some(NtStatus::SUCCESS), "others are still answered");
    acknowledge(&mut a).await;
    for _ in 0..8 {
        opened(&mut b).await.expect("opened");
    }
}
