//! Further channels of a session (MS-SMB2 3.3.5.5.2): which connections may bind, and what remains when a channel is
//! lost.

use std::sync::Arc;

use env::Env;
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_client::{ConnectOptions, OpenOptions, TransportKind};
use smb_server::Limits;
use smb_wire::header::OFFSET_SIGNATURE;
use smb_wire::msg::{OplockBreak, OplockLevel};
use smb_wire::{AccessMask, Command, Decode, HeaderFlags, NtStatus};
use tokio::io::AsyncWriteExt;

use crate::raw::{Binding, Raw};
use crate::world::{World, credentials};

fn world() -> World {
    World::new(Env::real(), 64 << 20, Limits::default())
}

fn to(first: &Raw) -> Binding {
    Binding { session_id: first.session_id, key: first.key.clone() }
}

/// The status of a binding by a connection with this dialect and GUID.
async fn bind(world: &World, dialect: u16, guid: u8, user: &str, binding: Binding) -> NtStatus {
    let mut second = Raw::new(world.dial().await.0);
    second.negotiate(dialect, guid).await;
    second.log_on(user, Some(binding)).await
}

#[tokio::test]
async fn two_tcp_channels() {
    for dialect in [0x0300, 0x0302, 0x0311] {
        let world = world();
        let (stream, first_serving) = world.dial().await;
        let mut first = Raw::new(stream);
        first.negotiate(dialect, 1).await;
        assert_eq!(first.log_on("alice", None).await, NtStatus::SUCCESS);
        first.tree("null").await;
        let file = first.open("f").await;
        let (stream, second_serving) = world.dial().await;
        let mut second = Raw::new(stream);
        second.negotiate(dialect, 1).await;
        assert_eq!(second.log_on("alice", Some(to(&first))).await, NtStatus::SUCCESS);
        let sessions = world.server.sessions();
        assert_eq!((sessions.len(), sessions[0].channels.len()), (1, 2));

        // Trees and opens are the session's: the other channel uses them. Each channel signs with its own key, and
        // the session's first key is not the second channel's.
        second.tree_id = first.tree_id;
        second.signs = true;
        assert_eq!(second.read_status(file).await, Some(NtStatus::END_OF_FILE));
        let own = second.key.replace(first.key.clone().expect("logged on"));
        let foreign = second.read_status(file).await;
        // (3.0 and 3.0.2 derive from the log-on's session key alone, which differs too.)
        assert_eq!(foreign, Some(NtStatus::ACCESS_DENIED));
        second.key = own;

        // The first connection breaks: the session and its opens stay.
        drop(first);
        first_serving.await.expect("served");
        let sessions = world.server.sessions();
        assert_eq!((sessions.len(), sessions[0].channels.len(), sessions[0].opens), (1, 1, 1));
        assert_eq!(second.read_status(file).await, Some(NtStatus::END_OF_FILE));
        drop(second);
        second_serving.await.expect("served");
        assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    }
}

#[tokio::test]
async fn who_may_not_bind() {
    let world = world();
    let mut first = Raw::session(world.dial().await.0).await;
    first.tree("null").await;
    let file = first.open("f").await;
    let right = to(&first);
    let nobody = Binding { key: None, ..right.clone() };
    let forger = Binding {
        key: Some(Arc::new(SigningKey::new(SigningAlgorithm::AesCmac, &[5; 16]))),
        ..right.clone()
    };
    let lost = Binding { session_id: right.session_id ^ 1, ..right.clone() };
    assert_eq!(bind(&world, 0x0302, 1, "alice", right.clone()).await, NtStatus::INVALID_PARAMETER);
    assert_eq!(bind(&world, 0x0210, 1, "alice", right.clone()).await, NtStatus::REQUEST_NOT_ACCEPTED);
    assert_eq!(bind(&world, 0x0311, 1, "bob", right.clone()).await, NtStatus::ACCESS_DENIED);
    assert_eq!(bind(&world, 0x0311, 1, "alice", nobody).await, NtStatus::INVALID_PARAMETER);
    assert_eq!(bind(&world, 0x0311, 1, "alice", forger).await, NtStatus::ACCESS_DENIED);
    assert_eq!(bind(&world, 0x0311, 1, "alice", lost).await, NtStatus::USER_SESSION_DELETED);
    // A connection can be a channel of a session only once.
    assert_eq!(first.log_on("alice", Some(right.clone())).await, NtStatus::REQUEST_NOT_ACCEPTED);
    // None of them affected the session.
    first.signs = false;
    assert_eq!(first.read_status(file).await, Some(NtStatus::END_OF_FILE));
    assert_eq!(world.server.sessions()[0].channels.len(), 1);
    assert_eq!(bind(&world, 0x0311, 1, "alice", right.clone()).await, NtStatus::SUCCESS);
    // The client shows that it has the session's key: another ClientGuid does not matter, as with Windows.
    assert_eq!(bind(&world, 0x0311, 2, "alice", right).await, NtStatus::SUCCESS);
}

/// AES-GMAC binds to AES-GMAC only; the other algorithms may differ between channels (smb2.session.bind_negative_smb3sign*
/// show what Windows does).
#[tokio::test]
async fn channels_may_sign_differently() {
    use SigningAlgorithm::{AesCmac, AesGmac, HmacSha256};
    let world = world();
    for (session, channel, expected) in [
        (AesCmac, HmacSha256, NtStatus::SUCCESS),
        (HmacSha256, AesCmac, NtStatus::SUCCESS),
        (AesGmac, AesGmac, NtStatus::SUCCESS),
        (AesGmac, AesCmac, NtStatus::REQUEST_OUT_OF_SEQUENCE),
        (AesGmac, HmacSha256, NtStatus::REQUEST_OUT_OF_SEQUENCE),
        (AesCmac, AesGmac, NtStatus::NOT_SUPPORTED),
        (HmacSha256, AesGmac, NtStatus::NOT_SUPPORTED),
    ] {
        let mut first = Raw::new(world.dial().await.0);
        first.algorithm = Some(session);
        first.negotiate(0x0311, 1).await;
        assert_eq!(first.log_on("alice", None).await, NtStatus::SUCCESS);
        let mut second = Raw::new(world.dial().await.0);
        second.algorithm = Some(channel);
        second.negotiate(0x0311, 1).await;
        assert_eq!(second.log_on("alice", Some(to(&first))).await, expected, "{session:?} and {channel:?}");
    }
}

/// A session has 32 channels at most.
#[tokio::test]
async fn channels_are_bounded() {
    let world = world();
    let first = Raw::session(world.dial().await.0).await;
    let mut channels = Vec::new();
    for n in 2..=33 {
        let mut raw = Raw::new(world.dial().await.0);
        raw.negotiate(0x0311, 1).await;
        let expected = if n <= 32 { NtStatus::SUCCESS } else { NtStatus::INSUFFICIENT_RESOURCES };
        assert_eq!(raw.log_on("alice", Some(to(&first))).await, expected, "channel {n}");
        channels.push(raw);
    }
}

/// MS-SMB2 3.3.5.5.3: a failed re-authentication ends the session on all its channels; a failed binding leaves it as it was.
#[tokio::test]
async fn a_failed_reauthentication_ends_the_session() {
    let world = world();
    let mut first = Raw::session(world.dial().await.0).await;
    first.tree("null").await;
    let file = first.open("f").await;
    assert_eq!(bind(&world, 0x0311, 1, "mallory", to(&first)).await, NtStatus::LOGON_FAILURE);
    assert_eq!(first.read_status(file).await, Some(NtStatus::END_OF_FILE));
    let mut second = Raw::new(world.dial().await.0);
    second.negotiate(0x0311, 1).await;
    assert_eq!(second.log_on("alice", Some(to(&first))).await, NtStatus::SUCCESS);
    second.signs = true;
    assert_eq!(second.log_on("mallory", None).await, NtStatus::LOGON_FAILURE);
    assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    assert_eq!(first.read_status(file).await, Some(NtStatus::USER_SESSION_DELETED));
}

/// A session whose client has authenticated again anonymously keeps its opens, and cannot open files until its account
/// logs on again; no other account may take it (smb2.session.reauth2 shows what Windows does).
#[tokio::test]
async fn anonymous_reauthentication() {
    let world = world();
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("null").await;
    let file = raw.open("f").await;
    raw.signs = true;
    assert_eq!(raw.log_on("bob", None).await, NtStatus::ACCESS_DENIED);
    assert_eq!(raw.log_on_anonymously().await, NtStatus::SUCCESS);
    assert_eq!(raw.read_status(file).await, Some(NtStatus::END_OF_FILE));
    assert_eq!(raw.create("g", AccessMask::READ_DATA).await.0, NtStatus::ACCESS_DENIED);
    assert_eq!(bind(&world, 0x0311, 1, "alice", to(&raw)).await, NtStatus::NOT_SUPPORTED);
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    assert_eq!(raw.create("g", AccessMask::READ_DATA).await.0, NtStatus::SUCCESS);
    // A new session cannot be anonymous.
    let mut raw = Raw::new(world.dial().await.0);
    raw.negotiate(0x0311, 1).await;
    assert_eq!(raw.log_on_anonymously().await, NtStatus::ACCESS_DENIED);
}

/// MS-SMB2 3.3.5.2.4: on a session that requires signing, only a signed request authenticates again.
#[tokio::test]
async fn reauthentication_is_signed() {
    let world = world();
    let mut raw = Raw::new(world.dial().await.0);
    raw.requires_signing = true;
    raw.negotiate(0x0311, 1).await;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    assert_eq!(raw.log_on("mallory", None).await, NtStatus::ACCESS_DENIED);
    raw.signs = true;
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS), "the session is as it was");
}

/// A break that was sent, and perhaps lost with its connection, is sent again over another channel of the session (MS-SMB2
/// 3.3.4.6); an acknowledged one is not.
#[tokio::test]
async fn a_break_that_may_be_lost_is_sent_again() {
    for acknowledged in [false, true] {
        let world = world();
        let (stream, first_serving) = world.dial().await;
        let mut first = Raw::session(stream).await;
        first.tree("null").await;
        first.oplock = OplockLevel::BATCH;
        let file = first.open("f").await;
        let mut second = Raw::new(world.dial().await.0);
        second.negotiate(0x0311, 1).await;
        assert_eq!(second.log_on("alice", Some(to(&first))).await, NtStatus::SUCCESS);

        let mut other = Raw::new(world.dial().await.0);
        other.negotiate(0x0311, 2).await;
        assert_eq!(other.log_on("alice", None).await, NtStatus::SUCCESS);
        other.tree("null").await;
        let opening = tokio::spawn(async move { other.open("f").await });
        assert_eq!(first.notification().await.expect("a break").0.command, Command::OPLOCK_BREAK);
        if acknowledged {
            let body = OplockBreak { oplock_level: OplockLevel::LEVEL_II, file_id: file };
            let answer = first.call(Command::OPLOCK_BREAK, &body).await.expect("an answer");
            assert_eq!(answer.0.status, NtStatus::SUCCESS);
        }
        drop(first);
        first_serving.await.expect("served");
        if acknowledged {
            assert_eq!(second.echo().await, Some(NtStatus::SUCCESS), "the next message is no break");
        } else {
            let (header, m) = second.notification().await.expect("a break");
            assert_eq!((header.command, header.message_id), (Command::OPLOCK_BREAK, u64::MAX));
            assert_eq!(OplockBreak::decode(&m).expect("sound").file_id, file);
            drop(second);
        }
        opening.await.expect("opened");
    }
}

/// LOGOFF on one channel ends the session on all (MS-SMB2 3.3.5.6).
#[tokio::test]
async fn logoff_ends_every_channel() {
    let world = world();
    let mut first = Raw::session(world.dial().await.0).await;
    first.tree("null").await;
    let file = first.open("f").await;
    let mut second = Raw::new(world.dial().await.0);
    second.negotiate(0x0311, 1).await;
    assert_eq!(second.log_on("alice", Some(to(&first))).await, NtStatus::SUCCESS);
    let said = second.call(Command::LOGOFF, &smb_wire::msg::LogoffRequest {}).await;
    assert_eq!(said.expect("an answer").0.status, NtStatus::SUCCESS);
    assert!(world.server.sessions().is_empty() && world.server.opens().is_empty());
    assert_eq!(first.read_status(file).await, Some(NtStatus::USER_SESSION_DELETED));
    // A channel that closes later ends nothing else: the next session is unaffected.
    let third = Raw::session(world.dial().await.0).await;
    drop((first, second));
    assert_eq!(world.server.sessions()[0].id, third.session_id);
}

/// SMB Direct as the second channel: it carries the I/O, and the session survives it.
#[tokio::test]
async fn tcp_and_rdma() {
    let world = world();
    let client = world.client(ConnectOptions::new(credentials("alice"))).await;
    let tree = client.tree("null").await.expect("the share");
    let file = tree.open("f", OpenOptions::create()).await.expect("created");
    let (queue_pair, serving) = world.queue_pair();
    client.join_over(queue_pair).await.expect("a second channel");
    assert_eq!(client.transport().kind, TransportKind::Rdma);
    file.set_len(1 << 20).await.expect("sized");
    assert_eq!(arena::sg_len(&file.read_at(0, 1 << 20).await.expect("read")), 1 << 20);
    assert_eq!(world.server.totals().read_bytes_rdma, 1 << 20);
    let sessions = world.server.sessions();
    assert_eq!((sessions.len(), sessions[0].channels.len(), sessions[0].opens), (1, 2, 1));
    // The channel breaks under it.
    serving.abort();
    assert!(serving.await.expect_err("cancelled").is_cancelled());
    let sessions = world.server.sessions();
    assert_eq!((sessions.len(), sessions[0].opens), (1, 1));
}

/// Channels of other connections' sessions count as sessions of this one.
#[tokio::test]
async fn bound_channels_are_bounded() {
    let limits = Limits { sessions_per_connection: 2, ..Limits::default() };
    let world = World::new(Env::real(), 64 << 20, limits);
    let mut firsts = Vec::new();
    for _ in 0..3 {
        firsts.push(Raw::session(world.dial().await.0).await);
    }
    let mut second = Raw::new(world.dial().await.0);
    second.negotiate(0x0311, 1).await;
    assert_eq!(second.log_on("alice", Some(to(&firsts[0]))).await, NtStatus::SUCCESS);
    assert_eq!(second.log_on("alice", Some(to(&firsts[1]))).await, NtStatus::SUCCESS);
    assert_eq!(second.log_on("alice", Some(to(&firsts[2]))).await, NtStatus::INSUFFICIENT_RESOURCES);
    let sessions = world.server.sessions();
    let third = sessions.iter().find(|s| s.id == firsts[2].session_id).expect("it is there");
    assert_eq!(third.channels.len(), 1);
    // A session that ends makes room for another.
    assert!(world.server.close_session(firsts[0].session_id).await);
    assert_eq!(second.log_on("alice", Some(to(&firsts[2]))).await, NtStatus::SUCCESS);
}

/// MS-SMB2 3.3.4.1.1: a refusal before the request is processed is signed as well, if its session is known.
#[tokio::test]
async fn early_refusals_are_signed() {
    let world = world();
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.signs = true;
    let key = raw.key.clone().expect("logged on");
    // An invalid log-on; a related request without a previous one.
    for (command, flags) in [
        (smb_wire::Command::SESSION_SETUP, HeaderFlags::empty()),
        (smb_wire::Command::CREATE, HeaderFlags::RELATED),
    ] {
        raw.flags = flags;
        let (header, m) = raw.call(command, &smb_wire::msg::EchoRequest {}).await.expect("an answer");
        assert_eq!(header.status, NtStatus::INVALID_PARAMETER, "{command:?}");
        assert!(header.flags.contains(HeaderFlags::SIGNED), "{command:?}");
        key.verify(&[&m], header.message_id, true, false).expect("the server's signature");
    }
    // A signature of a session is for clients with its key only: a refusal carries the flag and the signature of its
    // request. A client that requires signed replies never sees the status without the flag.
    let mut stranger = Raw::new(world.dial().await.0);
    stranger.negotiate(0x0311, 2).await;
    (stranger.session_id, stranger.signs) = (raw.session_id, true);
    stranger.key = Some(Arc::new(SigningKey::new(SigningAlgorithm::AesCmac, &[5; 16])));
    let request = stranger.encode(smb_wire::Command::SESSION_SETUP, 1, &smb_wire::msg::EchoRequest {}, &[]);
    stranger.stream.write_all(&request).await.expect("sent");
    let (refused, _) = stranger.answer().await.expect("an answer");
    assert!(refused.flags.contains(HeaderFlags::SIGNED));
    assert_eq!(refused.signature, request[4 + OFFSET_SIGNATURE..][..16]);
}

/// The listed protection of a session is that of its requests.
#[tokio::test]
async fn protection_is_listed_as_it_is() {
    let world = world();
    let listed = || (world.server.sessions()[0].signed, world.server.sessions()[0].encrypted);
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("null").await;
    assert_eq!(listed(), (false, false), "a TREE_CONNECT is signed in any case");
    raw.signs = true;
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS));
    assert_eq!(listed(), (true, false));
    raw.signs = false;
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS));
    assert_eq!(listed(), (false, false));
    assert!(world.server.close_session(raw.session_id).await);
    let mut raw = Raw::new(world.dial().await.0);
    raw.offers = Some(smb_auth::crypt::Cipher::Aes128Gcm);
    raw.negotiate(0x0311, 1).await;
    assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS));
    assert_eq!(listed(), (false, true));
}
