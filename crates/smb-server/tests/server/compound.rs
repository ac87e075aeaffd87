//! Compounds (MS-SMB2 3.3.5.2.7), CANCEL (3.3.5.16), and the capabilities in NEGOTIATE (3.3.5.4).

use env::Env;
use smb_server::{FileJournal, Limits};
use smb_wire::header::{RELATED_SESSION_ID, RELATED_TREE_ID};
use smb_wire::ioctl::{ReparseBuffer, ReparseTag, SymlinkReparse};
use smb_wire::msg::{
    CancelRequest, Capabilities, CloseRequest, CreateDisposition, CreateRequest, Dialects, FlushRequest,
    FsctlCode, ImpersonationLevel, IoctlFlags, IoctlRequest, LockElement, LockElements, LockFlags,
    LockRequest, NegotiateRequest, NegotiateResponse, ReadRequest, SecurityMode, TreeConnectRequest,
};
use smb_wire::{
    AccessMask, Command, Decode, Encode, FileId, Guid, HeaderFlags, NtStatus, ShareAccess, Utf16Buf,
};
use tokio::io::AsyncWriteExt;

use crate::raw::{Raw, message};
use crate::world::World;

fn world() -> World {
    World::new(Env::real(), 64 << 20, Limits::default())
}

async fn session(world: &World) -> Raw {
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("ram").await;
    raw
}

/// One message of framed requests.
fn together(requests: &[Vec<u8>]) -> Vec<u8> {
    let mut m = Vec::new();
    smb_wire::chain(&mut m, requests.iter().map(|r| &r[4..]));
    let mut framed = (m.len() as u32).to_be_bytes().to_vec();
    framed.extend(m);
    framed
}

/// Sends a compound; the statuses of all its replies.
async fn statuses(raw: &mut Raw, requests: &[Vec<u8>]) -> Vec<NtStatus> {
    raw.stream.write_all(&together(requests)).await.expect("sent");
    let mut statuses = Vec::new();
    while statuses.len() < requests.len() {
        let (_, m) = message(&mut raw.stream).await.expect("an answer");
        for item in smb_wire::compound::split(&m) {
            let (header, _) = item.expect("sound");
            raw.take_credits(&header);
            if header.status != NtStatus::PENDING {
                statuses.push(header.status);
            }
        }
    }
    statuses
}

fn create(raw: &mut Raw, name: &str) -> Vec<u8> {
    let name = Utf16Buf::from(name);
    let body = CreateRequest {
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_ALL_ACCESS,
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        create_disposition: CreateDisposition::OPEN_IF,
        name: name.as_utf16(),
        ..CreateRequest::default()
    };
    raw.encode(Command::CREATE, 1, &body, &[])
}

/// A related request with these values in SessionId and TreeId.
fn related(raw: &mut Raw, session: u64, tree: u32, command: Command, body: &impl Encode) -> Vec<u8> {
    let own = (raw.session_id, raw.tree_id, raw.flags);
    (raw.session_id, raw.tree_id, raw.flags) = (session, tree, HeaderFlags::RELATED);
    let m = raw.encode(command, 1, body, &[]);
    (raw.session_id, raw.tree_id, raw.flags) = own;
    m
}

fn close(file_id: FileId) -> CloseRequest {
    CloseRequest { file_id, ..CloseRequest::default() }
}

const OTHER: FileId = FileId { persistent: 77, volatile: 78 };

/// MS-SMB2 3.3.5.2.7.2: session, tree and open are those of the previous operation, whatever the fields contain; the
/// compound closes an open that it made.
#[tokio::test]
async fn related_operations_inherit_whatever_their_fields_say() {
    let world = world();
    let mut raw = session(&world).await;
    for (session, tree, id) in [
        (RELATED_SESSION_ID, RELATED_TREE_ID, FileId::NONE),
        (0, 0, FileId::NONE),
        (raw.session_id, raw.tree_id, OTHER),
        (raw.session_id ^ 5, raw.tree_id ^ 5, OTHER),
    ] {
        let requests = [create(&mut raw, "f"), related(&mut raw, session, tree, Command::CLOSE, &close(id))];
        assert_eq!(statuses(&mut raw, &requests).await, [NtStatus::SUCCESS; 2], "{session:#x} {tree:#x}");
        assert!(world.server.opens().is_empty(), "{session:#x} {tree:#x}");
    }
}

/// MS-SMB2 3.3.4.1.3: each response of a compound fills whole units of 8 bytes, the last one too.
#[tokio::test]
async fn responses_are_padded() {
    let world = world();
    let mut raw = session(&world).await;
    let file = raw.open("f").await;
    let m = raw.write(file, 0, b"123");
    raw.stream.write_all(&m).await.expect("sent");
    assert_eq!(raw.answer().await.expect("an answer").0.status, NtStatus::SUCCESS);
    let body = ReadRequest { file_id: file, length: 3, ..ReadRequest::default() };
    let requests = [create(&mut raw, "f"), related(&mut raw, 0, 0, Command::READ, &body)];
    raw.stream.write_all(&together(&requests)).await.expect("sent");
    let (_, m) = message(&mut raw.stream).await.expect("an answer");
    let last = smb_wire::compound::split(&m).last().expect("two").expect("sound").1;
    assert_eq!(m[last][smb_wire::HEADER_LEN + 16..], *b"123\0\0\0\0\0");
}

/// MS-SMB2 3.3.5.2.7.2: an operation on the open of a failed CREATE fails with the CREATE's status; without a previous
/// open an operation fails with an invalid handle, without a tree with an invalid parameter.
#[tokio::test]
async fn related_operations_inherit_a_failure() {
    let world = world();
    let mut raw = session(&world).await;
    let (id, tree) = (raw.session_id, raw.tree_id);
    let requests = [
        create(&mut raw, r"missing\f"),
        related(&mut raw, id, tree, Command::FLUSH, &FlushRequest { file_id: OTHER }),
        related(&mut raw, id, tree, Command::CLOSE, &close(OTHER)),
    ];
    assert_eq!(statuses(&mut raw, &requests).await, [NtStatus::OBJECT_PATH_NOT_FOUND; 3]);

    let requests = [
        raw.encode(Command::ECHO, 1, &smb_wire::msg::EchoRequest {}, &[]),
        related(&mut raw, id, tree, Command::CLOSE, &close(OTHER)),
    ];
    assert_eq!(statuses(&mut raw, &requests).await, [NtStatus::SUCCESS, NtStatus::INVALID_PARAMETER]);

    let mut raw = Raw::new(world.dial().await.0);
    raw.negotiate(0x0302, 1).await;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    let path = Utf16Buf::from(r"\\world\ram");
    let body = TreeConnectRequest { path: path.as_utf16(), ..TreeConnectRequest::default() };
    let requests = [
        raw.encode(Command::TREE_CONNECT, 1, &body, &[]),
        related(&mut raw, 0, 0, Command::CLOSE, &close(OTHER)),
        related(&mut raw, 0, 0, Command::CLOSE, &close(OTHER)),
    ];
    let said = statuses(&mut raw, &requests).await;
    assert_eq!(said, [NtStatus::SUCCESS, NtStatus::INVALID_HANDLE, NtStatus::INVALID_HANDLE]);
}

/// MS-SMB2 3.3.5.2.7.2, 2.2.2.2.1: also if the CREATE stopped at a symbolic link, whose status is a warning. Linux makes a
/// link by a compound of these three.
#[tokio::test]
async fn related_operations_stop_at_a_link() {
    let world = world();
    let mut raw = session(&world).await;
    let (id, tree) = (raw.session_id, raw.tree_id);
    let target = Utf16Buf::from("target");
    let link =
        SymlinkReparse { substitute_name: target.as_utf16(), print_name: target.as_utf16(), relative: true };
    let (mut data, mut buffer) = (Vec::new(), Vec::new());
    link.encode(&mut data).expect("short");
    ReparseBuffer { tag: ReparseTag::SYMLINK, data: &data, ..Default::default() }
        .encode(&mut buffer)
        .expect("short");
    let set = IoctlRequest {
        ctl_code: FsctlCode::SET_REPARSE_POINT,
        file_id: OTHER,
        input: &buffer,
        flags: IoctlFlags::IS_FSCTL,
        ..IoctlRequest::default()
    };
    for status in [NtStatus::SUCCESS, NtStatus::STOPPED_ON_SYMLINK] {
        let requests = [
            create(&mut raw, "link"),
            related(&mut raw, id, tree, Command::IOCTL, &set),
            related(&mut raw, id, tree, Command::CLOSE, &close(OTHER)),
        ];
        assert_eq!(statuses(&mut raw, &requests).await, [status; 3]);
    }
}

/// A lock of the first byte.
fn lock() -> Vec<u8> {
    let mut locks = Vec::new();
    LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE_LOCK }.encode(&mut locks);
    locks
}

/// MS-SMB2 3.3.5.2.7, note 266: the last operation of a compound may wait, and is answered with an interim response and
/// cancelled as any other; one in the middle fails with STATUS_INTERNAL_ERROR, and those after it continue.
#[tokio::test]
async fn only_the_last_of_a_compound_waits() {
    let world = world();
    let mut raw = session(&world).await;
    let locks = lock();
    let locks = LockElements::from_bytes(&locks).expect("one");
    let held = LockRequest { lock_sequence: 0, file_id: raw.open("f").await, locks };
    assert_eq!(raw.call(Command::LOCK, &held).await.expect("an answer").0.status, NtStatus::SUCCESS);

    let wanted = LockRequest { file_id: FileId::NONE, ..held };
    let requests = [
        create(&mut raw, "f"),
        related(&mut raw, RELATED_SESSION_ID, RELATED_TREE_ID, Command::LOCK, &wanted),
        related(&mut raw, RELATED_SESSION_ID, RELATED_TREE_ID, Command::CLOSE, &close(FileId::NONE)),
    ];
    let said = statuses(&mut raw, &requests).await;
    assert_eq!(said, [NtStatus::SUCCESS, NtStatus::INTERNAL_ERROR, NtStatus::SUCCESS]);
    assert_eq!(world.server.opens().len(), 1);

    let requests = [
        create(&mut raw, "f"),
        related(&mut raw, RELATED_SESSION_ID, RELATED_TREE_ID, Command::LOCK, &wanted),
    ];
    raw.stream.write_all(&together(&requests)).await.expect("sent");
    let (created, _) = message(&mut raw.stream).await.expect("an answer");
    let (interim, _) = message(&mut raw.stream).await.expect("an interim response");
    assert_eq!((created.status, interim.status), (NtStatus::SUCCESS, NtStatus::PENDING));
    cancel(&mut raw, interim.message_id).await;
    let (cancelled, _) = message(&mut raw.stream).await.expect("an answer");
    assert_eq!((cancelled.status, cancelled.message_id), (NtStatus::CANCELLED, interim.message_id));
}

/// Sends a CANCEL by MessageId; it uses up no id of its own.
pub async fn cancel(raw: &mut Raw, message_id: u64) {
    let next = raw.swap_next_id(message_id);
    let m = raw.encode(Command::CANCEL, 0, &CancelRequest {}, &[]);
    raw.swap_next_id(next);
    raw.stream.write_all(&m).await.expect("sent");
}

/// MS-SMB2 3.3.5.16: a CANCEL need not be signed, even where every other request must be; a wrong signature is refused.
#[tokio::test]
async fn an_unsigned_cancel_cancels() {
    let world = world();
    let mut raw = Raw::new(world.dial().await.0);
    raw.requires_signing = true;
    raw.negotiate(0x0311, 1).await;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    raw.signs = true;
    raw.tree("ram").await;
    let locks = lock();
    let locks = LockElements::from_bytes(&locks).expect("one");
    let held = LockRequest { lock_sequence: 0, file_id: raw.open("f").await, locks };
    assert_eq!(raw.call(Command::LOCK, &held).await.expect("an answer").0.status, NtStatus::SUCCESS);
    let wanted = LockRequest { file_id: raw.open("f").await, ..held };
    let m = raw.encode(Command::LOCK, 1, &wanted, &[]);
    raw.stream.write_all(&m).await.expect("sent");
    let (interim, _) = message(&mut raw.stream).await.expect("an interim response");
    assert_eq!(interim.status, NtStatus::PENDING);
    raw.take_credits(&interim);

    let right = raw.key.replace(std::sync::Arc::new(smb_auth::sign::SigningKey::new(
        smb_auth::sign::SigningAlgorithm::AesCmac,
        &[5; 16],
    )));
    cancel(&mut raw, interim.message_id).await;
    raw.key = right;
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS), "the lock waits still");

    raw.signs = false;
    cancel(&mut raw, interim.message_id).await;
    let (cancelled, _) = message(&mut raw.stream).await.expect("an answer");
    assert_eq!((cancelled.status, cancelled.message_id), (NtStatus::CANCELLED, interim.message_id));
}

/// MS-SMB2 3.3.5.4: several channels, encryption of 3.0, leases on directories and persistent handles, only for a client
/// that offers them.
#[tokio::test]
async fn capabilities_are_those_that_the_client_offers() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = FileJournal::open(&folder.path().join("opens.journal")).expect("made");
    let with_journal = World::with_journal(Env::real(), 64 << 20, Limits::default(), Some(journal));
    let optional = Capabilities::MULTI_CHANNEL
        | Capabilities::ENCRYPTION
        | Capabilities::DIRECTORY_LEASING
        | Capabilities::PERSISTENT_HANDLES;
    // Persistent handles need a journal.
    for (world, absent) in
        [(with_journal, Capabilities::empty()), (world(), Capabilities::PERSISTENT_HANDLES)]
    {
        for offered in [
            Capabilities::empty(),
            Capabilities::MULTI_CHANNEL,
            Capabilities::ENCRYPTION,
            Capabilities::DIRECTORY_LEASING,
            Capabilities::PERSISTENT_HANDLES,
            optional,
        ] {
            let mut raw = Raw::new(world.dial().await.0);
            let dialects = 0x0302u16.to_le_bytes();
            let body = NegotiateRequest {
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: offered,
                client_guid: Guid([1; 16]),
                dialects: Dialects::from_bytes(&dialects).expect("one"),
                ..NegotiateRequest::default()
            };
            let (_, m) = raw.call(Command::NEGOTIATE, &body).await.expect("an answer");
            let said = NegotiateResponse::decode(&m).expect("sound").capabilities;
            assert_eq!(said & optional, offered & !absent);
        }
    }
}

/// MS-SMB2 3.3.5.2.4: a signed NEGOTIATE is refused.
#[tokio::test]
async fn a_signed_negotiate_is_refused() {
    let world = world();
    let mut raw = Raw::new(world.dial().await.0);
    raw.flags = HeaderFlags::SIGNED;
    let dialects = 0x0302u16.to_le_bytes();
    let dialects = Dialects::from_bytes(&dialects).expect("one");
    let body = NegotiateRequest { dialects, ..NegotiateRequest::default() };
    let (header, _) = raw.call(Command::NEGOTIATE, &body).await.expect("an answer");
    assert_eq!(header.status, NtStatus::INVALID_PARAMETER);
}
