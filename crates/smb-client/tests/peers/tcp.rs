//! The client against our own server, over TCP.

use arena::sg_to_vec;
use smb_client::{
    Client, ConnectError, NtStatus, OpenOptions, RequestError, ShareType, TransportChoice, TransportKind,
    WhyNotRdma,
};
use smb_server::Protection;

use crate::exercise::{everything, holes, pattern, sg, status, transfers, tree_of};
use crate::peer::{self, Peer, Settings};

#[tokio::test]
async fn tcp_signed() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let report = client.transport();
    assert_eq!((report.kind, report.dialect), (TransportKind::Tcp, 0x0311));
    assert!(report.signing.is_some() && report.cipher.is_none());
    assert_eq!(report.why_not_rdma, Some(WhyNotRdma::TurnedOff));
    let tree = tree_of(&client).await;
    everything(&tree).await;
    holes(&tree).await;
    transfers(&tree).await;
    client.logoff().await.expect("logged off");
    assert!(matches!(tree.stat("").await, Err(RequestError::Lost(_))));
    assert!(peer.server.sessions().is_empty());
}

/// Every dialect from 2.1 on, with its signing algorithm; 3.0 and 3.0.2 also confirm the negotiation (MS-SMB2
/// 3.2.5.5).
#[tokio::test]
async fn every_dialect() {
    let peer = Peer::start(Settings::default()).await;
    for dialect in [0x0210, 0x0300, 0x0302, 0x0311] {
        for encrypt in [false, true] {
            let mut options = peer.options(TransportChoice::Tcp);
            options.dialect_max = dialect;
            options.encrypt = encrypt;
            let connected = peer.connect(options).await;
            if encrypt && dialect < 0x0300 {
                assert!(matches!(connected, Err(ConnectError::Refused(_))));
                continue;
            }
            let client = connected.expect("a session");
            let report = client.transport();
            assert_eq!(report.dialect, dialect);
            assert_eq!((report.cipher.is_some(), report.signing.is_some()), (encrypt, !encrypt));
            everything(&tree_of(&client).await).await;
            client.reauthenticate().await.expect("still the same user");
            tree_of(&client).await.stat("").await.expect("with the same keys");
            client.logoff().await.expect("logged off");
        }
    }
}

#[tokio::test]
async fn neither_signed_nor_encrypted() {
    let settings =
        Settings { signing: Protection::Enabled, encryption: Protection::Off, ..Settings::default() };
    let peer = Peer::start(settings).await;
    let mut options = peer.options(TransportChoice::Tcp);
    options.require_signing = false;
    let client = peer.connect(options.clone()).await.expect("a session");
    let report = client.transport();
    assert!(report.signing.is_none() && report.cipher.is_none());
    everything(&tree_of(&client).await).await;
    // A server without a cipher is refused if encryption is demanded.
    options.encrypt = true;
    assert!(matches!(peer.connect(options).await, Err(ConnectError::Refused(_))));
}

/// The client encrypts if the server or a share demands it.
#[tokio::test]
async fn encryption_on_demand() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let secret = client.tree("secret").await.expect("the share");
    assert!(secret.is_encrypted() && client.transport().cipher.is_none());
    everything(&secret).await;
    transfers(&secret).await;
    let peer = Peer::start(Settings { encryption: Protection::Required, ..Settings::default() }).await;
    let client = peer.client(TransportChoice::Tcp).await;
    assert!(client.transport().cipher.is_some());
    everything(&tree_of(&client).await).await;
    assert_eq!(client.shares().await.expect("listed").len(), 3);
}

#[tokio::test]
async fn shares_are_listed() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let shares = client.shares().await.expect("listed");
    let ram = shares.iter().find(|s| s.name == "ram").expect("there");
    assert_eq!((ram.comment.as_str(), ram.kind, ram.special), ("the ram share", ShareType::DISK, false));
    assert!(shares.iter().any(|s| s.name == "IPC$" && s.kind == ShareType::PIPE && s.special));
    assert_eq!(status(client.tree("none").await), NtStatus::BAD_NETWORK_NAME);
}

#[tokio::test]
async fn wrong_passwords_are_refused() {
    let peer = Peer::start(Settings::default()).await;
    let mut options = peer.options(TransportChoice::Tcp);
    options.credentials = peer::credentials("wrong");
    let refused = peer.connect(options).await;
    assert!(matches!(refused, Err(ConnectError::LogOn(NtStatus::LOGON_FAILURE))));
}

/// Credits grow to the requested number. A server that grants one at a time makes the client slow, but not stuck.
#[tokio::test]
async fn few_credits_are_enough() {
    for max_credits in [1, 2, 16] {
        let peer = Peer::start(Settings { max_credits, ..Settings::default() }).await;
        let client = peer.client(TransportChoice::Tcp).await;
        let tree = tree_of(&client).await;
        let file = tree.open("f", OpenOptions::create()).await.expect("created");
        let data = pattern(1 << 20);
        assert_eq!(file.write_at(0, sg(&data)).await.expect("written"), data.len() as u64);
        let calls: Vec<_> = (0..200u64).map(|i| (i, file.submit_read(i * 4096, 4096))).collect();
        for (i, call) in calls {
            let at = i as usize * 4096;
            assert!(sg_to_vec(&call.await.expect("read")) == data[at..at + 4096]);
        }
    }
}

/// A call that is dropped while it opens a file leaves nothing open; neither does a dropped file.
#[tokio::test]
async fn dropped_handles_are_closed() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let tree = tree_of(&client).await;
    for i in 0..20 {
        let name = format!("f{i}");
        let mut opening = Box::pin(tree.open(&name, OpenOptions::create()));
        // Polled once, so the call is queued; then dropped at different times.
        assert!(futures_util::poll!(opening.as_mut()).is_pending());
        for _ in 0..i {
            tokio::task::yield_now().await;
        }
        drop(opening);
    }
    drop(tree.open("kept", OpenOptions::create()).await.expect("created"));
    // Responses arrive in order: an earlier CLOSE has been handled when the next response arrives.
    for _ in 0..3 {
        tree.stat("").await.expect("metadata");
    }
    let left = tree.stat("kept").await.map(|_| peer.server.opens().len()).expect("metadata");
    assert!(left <= 1, "{left} opens are left"); // stat's own close may still be in flight
    client.logoff().await.expect("logged off");
}

/// When an administrator ends the session, every caller is completed.
#[tokio::test]
async fn an_ended_session_fails_everybody() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let tree = tree_of(&client).await;
    let file = tree.open("f", OpenOptions::create()).await.expect("created");
    file.write_at(0, sg(&pattern(100_000))).await.expect("written");
    let session = peer.server.sessions()[0].id;
    assert!(peer.server.close_session(session).await);
    let calls: Vec<_> = (0..50).map(|_| file.submit_read(0, 4096)).collect();
    for call in calls {
        assert!(matches!(call.await, Err(RequestError::Status(_) | RequestError::Lost(_))));
    }
}

/// The types are `Send`: several threads use one file at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_threads() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let tree = tree_of(&client).await;
    let tasks: Vec<_> = (0..4u8)
        .map(|n| {
            let tree = tree.clone();
            tokio::spawn(async move {
                let file = tree.open(&format!("t{n}"), OpenOptions::create()).await.expect("created");
                for i in 0..200u64 {
                    file.write_at(i * 4096, sg(&[n ^ i as u8; 4096])).await.expect("written");
                    let got = sg_to_vec(&file.read_at(i * 4096, 4096).await.expect("read"));
                    assert!(got == [n ^ i as u8; 4096]);
                }
                file.close().await.expect("closed");
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// A server that accepts the connection and never responds.
#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut options = smb_client::ConnectOptions::new(peer::credentials(peer::PASSWORD));
    options.port = silent.local_addr().expect("bound").port();
    options.transport = TransportChoice::Tcp;
    options.connect_timeout = std::time::Duration::from_millis(50);
    let arena = arena::Arena::new(4 << 20).expect("memory");
    let connected = Client::connect("127.0.0.1", options.clone(), arena.clone(), env::Env::real()).await;
    assert!(matches!(connected, Err(ConnectError::TimedOut)));
    drop(silent);
    let connected = Client::connect("127.0.0.1", options, arena, env::Env::real()).await;
    assert!(matches!(connected, Err(ConnectError::Unreachable { .. })));
}
