//! The client against our own server, in one process.

mod peer;

use arena::{IoBuf, Sg, sg_to_vec};
use peer::{Peer, Settings};
use smb_client::{
    Client, ConnectError, Download, FileAttributes, NtStatus, OpenOptions, RequestError, ShareType,
    TransportChoice, TransportKind, Tree, Upload, WhyNotRdma,
};
use smb_server::Protection;

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251 + i / 65_536) as u8).collect()
}

fn sg(bytes: &[u8]) -> Sg {
    [IoBuf::from(bytes.to_vec())].into_iter().collect()
}

fn status<T>(result: Result<T, RequestError>) -> NtStatus {
    match result {
        Err(RequestError::Status(s)) => s,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it worked"),
    }
}

/// Everything that a share does, once.
async fn everything(tree: &Tree) {
    let file = tree.open("a.bin", OpenOptions::create_new()).await.expect("created");
    for length in [1usize, 4095, 4096, 65_536, 65_537, 1 << 20, (9 << 20) + 3] {
        let data = pattern(length);
        assert_eq!(file.write_at(0, sg(&data)).await.expect("written"), length as u64);
        let back = file.read_at(0, length as u32).await.expect("read");
        assert!(sg_to_vec(&back) == data, "{length} bytes differ");
    }
    file.flush().await.expect("durable");
    let size = (9u64 << 20) + 3;
    assert_eq!(file.metadata().await.expect("metadata").size, size);
    // Shorter at the end, empty behind it.
    assert_eq!(sg_to_vec(&file.read_at(size - 2, 10_000).await.expect("read")).len(), 2);
    assert!(file.read_at(size, 10).await.expect("read").is_empty());
    let buffers = tree.client().arena().alloc_sg(20_000, arena::Class::Payload).await;
    let (buffers, n) = file.read_into(5, buffers, 20_000).await.expect("read");
    let got: Vec<u8> = buffers.iter().flat_map(|b| b.to_vec()).collect();
    assert_eq!((n, got.len()), (20_000, 20_000));
    assert!(got == pattern(size as usize)[5..20_005]);
    file.set_len(10).await.expect("cut");
    file.set_attributes(FileAttributes::HIDDEN).await.expect("hidden");
    file.close().await.expect("closed");
    let m = tree.stat("a.bin").await.expect("metadata");
    assert_eq!((m.size, m.is_directory()), (10, false));
    assert!(m.attributes.contains(FileAttributes::HIDDEN));

    tree.create_dir("d").await.expect("made");
    assert_eq!(status(tree.create_dir("d").await), NtStatus::OBJECT_NAME_COLLISION);
    for i in 0..300 {
        let name = format!("d/file with a long name, number {i}");
        tree.open(&name, OpenOptions::create()).await.expect("created").close().await.expect("closed");
    }
    let mut dir = tree.read_dir("d", "*").await.expect("opened");
    let entries = dir.all().await.expect("listed");
    assert_eq!(entries.len(), 300);
    assert!(entries.iter().any(|e| e.name == "file with a long name, number 299"));
    drop(dir);
    let mut dir = tree.read_dir("d", "*7").await.expect("opened");
    assert_eq!(dir.all().await.expect("listed").len(), 30);
    drop(dir);
    assert!(tree.read_dir("d", "nothing*").await.expect("opened").all().await.expect("listed").is_empty());
    assert_eq!(status(tree.remove_dir("d").await), NtStatus::DIRECTORY_NOT_EMPTY);
    for i in 0..300 {
        tree.remove_file(&format!(r"d\file with a long name, number {i}")).await.expect("removed");
    }
    tree.remove_dir("d").await.expect("removed");

    tree.open("b", OpenOptions::create()).await.expect("created").close().await.expect("closed");
    assert_eq!(status(tree.rename("a.bin", "b", false).await), NtStatus::OBJECT_NAME_COLLISION);
    tree.rename("a.bin", "b", true).await.expect("replaced");
    assert_eq!(tree.stat("b").await.expect("metadata").size, 10);
    assert_eq!(status(tree.stat("a.bin").await), NtStatus::OBJECT_NAME_NOT_FOUND);
    tree.remove_file("b").await.expect("removed");
    let space = tree.space().await.expect("space");
    assert!(space.total >= space.free && space.total > 0);
}

async fn transfers(tree: &Tree) {
    let data = pattern((20 << 20) + 17);
    let file = tree.open("big", OpenOptions::create()).await.expect("created");
    let mut up = Upload::new(&file, 0);
    for chunk in data.chunks(700_001) {
        up.push(sg(chunk)).await.expect("taken");
    }
    assert_eq!(up.finish().await.expect("written"), data.len() as u64);
    for start in [0, 3 << 20] {
        let mut down = Download::new(&file, start as u64, u64::MAX);
        let mut got = Vec::new();
        while let Some((offset, piece)) = down.next().await.expect("read") {
            assert_eq!(offset as usize, start + got.len());
            got.extend(sg_to_vec(&piece));
        }
        assert!(got == data[start..], "from {start}");
    }
    file.close().await.expect("closed");
    tree.remove_file("big").await.expect("removed");
}

async fn tree_of(client: &Client) -> Tree {
    client.tree("ram").await.expect("the share")
}

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
    transfers(&tree).await;
    client.logoff().await.expect("logged off");
    assert!(matches!(tree.stat("").await, Err(RequestError::Lost(_))));
    assert!(peer.server.sessions().is_empty());
}

/// Every dialect from 2.1 on, and what each signs with; 3.0 and 3.0.2 also confirm the negotiation (MS-SMB2 3.2.5.5).
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
    // A server without a cipher is refused where encryption is wanted.
    options.encrypt = true;
    assert!(matches!(peer.connect(options).await, Err(ConnectError::Refused(_))));
}

/// A server that demands encryption gets it, and so does a share.
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

/// Credits grow to what was asked for, and a server that grants one at a time is slow, not stuck.
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

/// A name that is dropped while it is being opened leaves nothing open; so does a file.
#[tokio::test]
async fn what_is_dropped_is_closed() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let tree = tree_of(&client).await;
    for i in 0..20 {
        let name = format!("f{i}");
        let mut opening = Box::pin(tree.open(&name, OpenOptions::create()));
        // Polled once: the call is queued. Then dropped at different moments.
        assert!(futures_util::poll!(opening.as_mut()).is_pending());
        for _ in 0..i {
            tokio::task::yield_now().await;
        }
        drop(opening);
    }
    drop(tree.open("kept", OpenOptions::create()).await.expect("created"));
    // Answers come in order, and a CLOSE that was sent before has been handled when the next answer is there.
    for _ in 0..3 {
        tree.stat("").await.expect("metadata");
    }
    let left = tree.stat("kept").await.map(|_| peer.server.opens().len()).expect("metadata");
    assert!(left <= 1, "{left} opens are left"); // stat's own close may be on its way
    client.logoff().await.expect("logged off");
}

/// A session that an administrator ends: whoever waits is told.
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

#[tokio::test]
async fn rdma_without_tcp() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Rdma).await;
    assert_eq!(client.transport().kind, TransportKind::Rdma);
    let tree = tree_of(&client).await;
    everything(&tree).await;
    transfers(&tree).await;
    let counters = client.counters().expect("SMB Direct");
    assert!(counters.rdma_registrations > 20);
    // Every registration died: by the server's Send, as 3.1.1 has it.
    assert_eq!(counters.remote_invalidations + counters.local_invalidations, counters.rdma_registrations);
    assert!(counters.remote_invalidations > counters.local_invalidations);
    assert_eq!(counters.memory_regions, 0);
    let totals = peer.server.totals();
    assert!(totals.read_bytes_rdma > 20 << 20 && totals.written_bytes_rdma > 20 << 20);
    // What is encrypted goes in messages: RDMA payload would be in the clear (and stays below the fragmented size).
    let before = peer.server.totals();
    everything(&client.tree("secret").await.expect("the share")).await;
    let after = peer.server.totals();
    assert_eq!(after.read_bytes_rdma, before.read_bytes_rdma);
    assert!(after.read_bytes > before.read_bytes);
    client.logoff().await.expect("logged off");
}

/// 3.0 has no remote invalidation: each steering tag dies here, before its I/O completes.
#[tokio::test]
async fn rdma_with_local_invalidation() {
    let peer = Peer::start(Settings { dialect_max: 0x0300, ..Settings::default() }).await;
    let client = peer.client(TransportChoice::Rdma).await;
    let tree = tree_of(&client).await;
    everything(&tree).await;
    let counters = client.counters().expect("SMB Direct");
    assert_eq!((counters.remote_invalidations, counters.memory_regions), (0, 0));
    assert_eq!(counters.local_invalidations, counters.rdma_registrations);
    // SMB Direct begins with 3.0.
    let mut options = peer.options(TransportChoice::Rdma);
    options.dialect_max = 0x0210;
    match peer.connect(options).await {
        Err(ConnectError::NoRdma(why)) => assert_eq!(*why, WhyNotRdma::Dialect(0x0210)),
        other => panic!("{:?}", other.err()),
    }
}

/// TCP first, then the interface that the server announces, as a second channel of the session.
#[tokio::test]
async fn rdma_as_a_second_channel() {
    for dialect_max in [0x0300, 0x0302, 0x0311] {
        let peer = Peer::start(Settings { announce_rdma: true, dialect_max, ..Settings::default() }).await;
        let client = peer.client(TransportChoice::Auto).await;
        let report = client.transport();
        assert_eq!((report.kind, report.why_not_rdma), (TransportKind::Rdma, None));
        let sessions = peer.server.sessions();
        assert_eq!((sessions.len(), sessions[0].channels.len()), (1, 2));
        let tree = tree_of(&client).await;
        everything(&tree).await;
        transfers(&tree).await;
        assert!(peer.server.totals().read_bytes_rdma > 20 << 20);
        client.logoff().await.expect("logged off");
    }
}

#[tokio::test]
async fn why_it_is_not_rdma() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Auto).await;
    assert_eq!(client.transport().why_not_rdma, Some(WhyNotRdma::NotAnnounced));
    let peer = Peer::start(Settings { announce_rdma: true, ..Settings::default() }).await;
    let mut options = peer.options(TransportChoice::Auto);
    options.dialect_max = 0x0210;
    let client = peer.connect(options.clone()).await.expect("a session");
    assert_eq!(client.transport().why_not_rdma, Some(WhyNotRdma::Dialect(0x0210)));
    options.dialect_max = 0x0311;
    options.encrypt = true;
    let client = peer.connect(options.clone()).await.expect("a session");
    assert_eq!(client.transport().why_not_rdma, Some(WhyNotRdma::Encrypted));
    // The port of another protocol: announced, and yet not there.
    options.encrypt = false;
    options.rdma_port = peer.address.port();
    let client = peer.connect(options).await.expect("a session");
    match client.transport().why_not_rdma {
        Some(WhyNotRdma::ConnectFailed { address, .. }) => assert_eq!(address.port(), peer.address.port()),
        other => panic!("{other:?}"),
    }
    everything(&tree_of(&client).await).await;
}

/// Over the simulated fabric: alone, and as a second channel.
#[tokio::test]
async fn other_fabrics() {
    let peer = Peer::start(Settings::default()).await;
    let options = peer.options(TransportChoice::Rdma);
    let (arena, env) = (peer.arena.clone(), peer.env.clone());
    let client =
        Client::connect_over(peer.queue_pair(), "peer", options, arena, env).await.expect("a session");
    everything(&tree_of(&client).await).await;
    transfers(&tree_of(&client).await).await;

    let client = peer.client(TransportChoice::Tcp).await;
    let tree = tree_of(&client).await;
    client.join_over(peer.queue_pair()).await.expect("a second channel");
    assert_eq!(client.transport().kind, TransportKind::Rdma);
    // A tree connect belongs to the session, not to a channel.
    everything(&tree).await;
    assert!(client.join_over(peer.queue_pair()).await.is_err());
}

/// When the SMB Direct connection breaks, what was in flight fails, nothing stays exposed, and TCP goes on.
#[tokio::test]
async fn tcp_is_the_fallback() {
    let peer = Peer::start(Settings::default()).await;
    for cut in [40, 61, 83, 140] {
        let client = peer.client(TransportChoice::Tcp).await;
        let tree = tree_of(&client).await;
        let data = pattern(64 << 10);
        let file = tree.open("f", OpenOptions::create()).await.expect("created");
        file.write_at(0, sg(&data)).await.expect("written");
        let options = rdma::sim::Options { cut_at: Some(cut), ..rdma::sim::Options::new(peer.env.clone()) };
        client.join_over(peer.queue_pair_with(options)).await.expect("a second channel");
        let mut lost = 0;
        while client.transport().kind == TransportKind::Rdma {
            let calls: Vec<_> = (0..8u64).map(|i| file.submit_read(i * 8192, 8192)).collect();
            for (i, call) in calls.into_iter().enumerate() {
                match call.await {
                    Ok(got) => assert!(sg_to_vec(&got) == data[i * 8192..][..8192]),
                    Err(RequestError::Lost(_)) => lost += 1,
                    Err(e) => panic!("{e}"),
                }
            }
        }
        assert!(lost > 0);
        assert!(matches!(client.transport().why_not_rdma, Some(WhyNotRdma::Lost(_))));
        // The file is the session's, and so still open.
        assert!(sg_to_vec(&file.read_at(0, 64 << 10).await.expect("read over TCP")) == data);
        file.close().await.expect("closed");
        client.logoff().await.expect("logged off");
    }
    assert_eq!(peer.arena.usage().waiting, 0);
}

/// The library is `Send`: calls of one file from several threads at a time.
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

/// A server that takes the connection and says nothing.
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
