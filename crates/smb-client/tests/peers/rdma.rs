//! The client against our own server, over SMB Direct: iWARP on loopback and the simulated fabric.

use arena::sg_to_vec;
use smb_client::{Client, ConnectError, OpenOptions, TransportChoice, TransportKind, WhyNotRdma};

use crate::exercise::{everything, pattern, sg, transfers, tree_of};
use crate::peer::{Peer, Settings};

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
    // Every registration was invalidated, by the server's Send as in 3.1.1.
    assert_eq!(counters.remote_invalidations + counters.local_invalidations, counters.rdma_registrations);
    assert!(counters.remote_invalidations > counters.local_invalidations);
    assert_eq!(counters.memory_regions, 0);
    let totals = peer.server.totals();
    assert!(totals.read_bytes_rdma > 20 << 20 && totals.written_bytes_rdma > 20 << 20);
    // Encrypted payload is sent in messages, because RDMA payload would be plaintext. It stays below the fragmented
    // size.
    let before = peer.server.totals();
    everything(&client.tree("secret").await.expect("the share")).await;
    let after = peer.server.totals();
    assert_eq!(after.read_bytes_rdma, before.read_bytes_rdma);
    assert!(after.read_bytes > before.read_bytes);
    client.logoff().await.expect("logged off");
}

/// 3.0 has no remote invalidation: the client invalidates each steering tag before its I/O completes.
#[tokio::test]
async fn rdma_with_local_invalidation() {
    let peer = Peer::start(Settings { dialect_max: 0x0300, ..Settings::default() }).await;
    let client = peer.client(TransportChoice::Rdma).await;
    let tree = tree_of(&client).await;
    everything(&tree).await;
    let counters = client.counters().expect("SMB Direct");
    assert_eq!((counters.remote_invalidations, counters.memory_regions), (0, 0));
    assert_eq!(counters.local_invalidations, counters.rdma_registrations);
    // SMB Direct needs 3.0 or later.
    let mut options = peer.options(TransportChoice::Rdma);
    options.dialect_max = 0x0210;
    match peer.connect(options).await {
        Err(ConnectError::NoRdma(why)) => assert_eq!(*why, WhyNotRdma::Dialect(0x0210)),
        other => panic!("{:?}", other.err()),
    }
}

/// Connects by TCP first; then the announced interface becomes a second channel of the session.
#[tokio::test]
async fn rdma_as_a_second_channel() {
    for dialect_max in [0x0300, 0x0302, 0x0311] {
        let peer = Peer::start(Settings { announce_rdma: true, dialect_max, ..Settings::default() }).await;
        let client = peer.client(TransportChoice::Auto).await;
        let report = client.transport();
        assert_eq!((report.kind, report.why_not_rdma), (TransportKind::Rdma, None));
        let sessions = peer.server.sessions();
        assert_eq!((sessions.len(), sessions[0].channels.len()), (1, 2));
        client.reauthenticate().await.expect("by the second channel");
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
    // The announced port belongs to another protocol.
    options.encrypt = false;
    options.rdma_port = peer.address.port();
    let client = peer.connect(options).await.expect("a session");
    match client.transport().why_not_rdma {
        Some(WhyNotRdma::ConnectFailed { address, .. }) => assert_eq!(address.port(), peer.address.port()),
        other => panic!("{other:?}"),
    }
    everything(&tree_of(&client).await).await;
}

/// Over the simulated fabric: as the only connection, and as a second channel.
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

/// When the SMB Direct connection breaks, outstanding requests continue over TCP, and no memory stays exposed.
#[tokio::test]
async fn tcp_is_the_fallback() {
    let peer = Peer::start(Settings::default()).await;
    for cut in [40, 61, 83, 140] {
        let client = peer.client(TransportChoice::Tcp).await;
        let tree = tree_of(&client).await;
        let data = pattern(64 << 10);
        let file = tree.open("f", OpenOptions::create()).await.expect("created");
        file.write_at(0, sg(&data)).await.expect("written");
        let options =
            ::rdma::sim::Options { cut_at: Some(cut), ..::rdma::sim::Options::new(peer.env.clone()) };
        client.join_over(peer.queue_pair_with(options)).await.expect("a second channel");
        while client.transport().kind == TransportKind::Rdma {
            let calls: Vec<_> = (0..8u64).map(|i| file.submit_read(i * 8192, 8192)).collect();
            for (i, call) in calls.into_iter().enumerate() {
                assert!(sg_to_vec(&call.await.expect("read")) == data[i * 8192..][..8192]);
            }
        }
        assert!(matches!(client.transport().why_not_rdma, Some(WhyNotRdma::Lost(_))));
        // The file belongs to the session, so it is still open.
        assert!(sg_to_vec(&file.read_at(0, 64 << 10).await.expect("read over TCP")) == data);
        file.close().await.expect("closed");
        client.logoff().await.expect("logged off");
    }
    assert_eq!(peer.arena.usage().waiting, 0);
}

/// A server that cannot fetch a WRITE's payload refuses that WRITE; the connection continues.
#[tokio::test]
async fn a_write_that_cannot_be_fetched() {
    let peer = Peer::start(Settings::default()).await;
    let client = peer.client(TransportChoice::Tcp).await;
    let file = tree_of(&client).await.open("f", OpenOptions::create()).await.expect("created");
    let data = pattern(8192);
    file.write_at(0, sg(&data)).await.expect("written by TCP");
    let options = ::rdma::sim::Options { ord: 0, ..::rdma::sim::Options::new(peer.env.clone()) };
    client.join_over(peer.queue_pair_with(options)).await.expect("a second channel");
    for _ in 0..3 {
        let refused = file.write_at(0, sg(&data)).await;
        assert_eq!(crate::exercise::status(refused), smb_client::NtStatus::INSUFFICIENT_RESOURCES);
    }
    assert!(sg_to_vec(&file.read_at(0, 8192).await.expect("read")) == data);
    assert_eq!(client.transport().kind, TransportKind::Rdma);
    assert_eq!(peer.server.totals().read_bytes_rdma, 8192);
}
