//! Sessions that expire, and SMB Direct channels that break, behind a relay to a real server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arena::{Class, sg_to_vec};
use parking_lot::Mutex;
use smb_client::{
    Client, File, Lost, NtStatus, OpenOptions, RequestError, SigningAlgorithm, TransportChoice,
    TransportKind, WhyNotRdma,
};
use smb_server::Protection;
use smb_wire::{Command, Header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::exercise::{pattern, sg, status, tree_of};
use crate::peer::{Peer, Settings};
use crate::tampering::{Forging, Tamper, relay};

/// What the relay makes expire next, and what it observed.
#[derive(Default)]
pub struct Expiry {
    /// The next answer to this command becomes STATUS_NETWORK_SESSION_EXPIRED.
    pub next: Mutex<Option<Command>>,
    /// Number of log-ons of an existing session.
    pub renewals: AtomicU32,
    /// Whether such log-ons fail.
    pub refuse: AtomicBool,
}

impl Expiry {
    pub fn tamper(self: &Arc<Self>) -> Tamper {
        let expiry = Arc::clone(self);
        let session = AtomicU64::new(0);
        Arc::new(move |from_client, header: &Header, message: &mut Vec<u8>| {
            let known = session.load(Ordering::Relaxed);
            match (from_client, header.command) {
                (true, Command::SESSION_SETUP) if known != 0 && header.session_id == known => {
                    expiry.renewals.fetch_add(1, Ordering::Relaxed);
                }
                (false, Command::SESSION_SETUP) if known != 0 && expiry.refuse.load(Ordering::Relaxed) => {
                    fail(message, NtStatus::LOGON_FAILURE);
                }
                (false, Command::SESSION_SETUP) if header.status == NtStatus::SUCCESS => {
                    session.store(header.session_id, Ordering::Relaxed);
                }
                // Does not replace an interim response: the final response would follow without a request.
                (false, command)
                    if header.status != NtStatus::PENDING && *expiry.next.lock() == Some(command) =>
                {
                    *expiry.next.lock() = None;
                    fail(message, NtStatus::NETWORK_SESSION_EXPIRED);
                }
                _ => {}
            }
        })
    }

    /// Sends every kind of request once, each with an expired session.
    pub async fn everything(&self, client: &Client, share: &str) {
        let expire = |command| *self.next.lock() = Some(command);
        let data = pattern(100_000);
        expire(Command::TREE_CONNECT);
        let tree = client.tree(share).await.expect("the share");
        expire(Command::CREATE);
        let file = tree.open("expiring", OpenOptions::create()).await.expect("created");
        expire(Command::WRITE);
        assert_eq!(file.write_at(0, sg(&data)).await.expect("written"), 100_000);
        expire(Command::READ);
        assert!(sg_to_vec(&file.read_at(0, 100_000).await.expect("read")) == data);
        expire(Command::QUERY_INFO);
        assert_eq!(file.metadata().await.expect("metadata").size, 100_000);
        // Several concurrent failures need one log-on.
        let before = self.renewals.load(Ordering::Relaxed);
        expire(Command::READ);
        let calls: Vec<_> = (0..10).map(|i| file.submit_read(i * 10_000, 10_000)).collect();
        for (i, call) in calls.into_iter().enumerate() {
            assert!(sg_to_vec(&call.await.expect("read")) == data[i * 10_000..][..10_000]);
        }
        // Two messages per log-on: NTLM's first and last.
        assert_eq!(self.renewals.load(Ordering::Relaxed), before + 2);
        assert_eq!(before, 10);
        let buffers = tree.client().arena().alloc_sg(5000, Class::Payload).await;
        expire(Command::READ);
        let (buffers, n) = file.read_into(7, buffers, 5000).await.expect("read");
        let got: Vec<u8> = buffers.iter().flat_map(|b| b.to_vec()).collect();
        assert!(n == 5000 && got == data[7..5007]);
        file.close().await.expect("closed");
    }
}

/// Turns a response into an unsigned error without a body.
fn fail(message: &mut Vec<u8>, status: NtStatus) {
    message.truncate(64);
    message[16] &= !8;
    message[8..12].copy_from_slice(&status.0.to_le_bytes());
    message.extend([9, 0, 0, 0, 0, 0, 0, 0, 0]);
}

/// MS-SMB2 3.2.5.1.6: the client authenticates the session again and repeats the request.
#[tokio::test]
async fn a_session_expires() {
    for dialect in [0x0210, 0x0302, 0x0311] {
        let peer = Peer::start(Settings { signing: Protection::Enabled, ..Settings::default() }).await;
        let expiry = Arc::new(Expiry::default());
        let mut options = peer.options(TransportChoice::Tcp);
        options.port = relay(peer.address, expiry.tamper()).await.port();
        // The relay could not modify signed messages.
        options.require_signing = false;
        options.dialect_max = dialect;
        let client = peer.connect(options).await.expect("a session");
        expiry.everything(&client, "ram").await;

        // A second expiry in a row fails the request; if the log-on fails, the session has ended.
        let tree = tree_of(&client).await;
        let file = tree.open("expiring", OpenOptions::read()).await.expect("opened");
        expiry.refuse.store(true, Ordering::Relaxed);
        *expiry.next.lock() = Some(Command::READ);
        assert_eq!(status(file.read_at(0, 10).await), NtStatus::LOGON_FAILURE);
        assert!(matches!(file.read_at(0, 10).await, Err(RequestError::Lost(Lost::Closed))));
    }
}

/// A byte relay for the iWARP port whose connections can be cut.
struct Cable {
    address: SocketAddr,
    cut: Arc<tokio::sync::Notify>,
    /// Number of bytes that the client may still send before the cut.
    left: Arc<AtomicU64>,
    connections: Arc<AtomicU32>,
}

impl Cable {
    async fn to(server: SocketAddr) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (cut, left) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicU64::new(u64::MAX)));
        let connections = Arc::new(AtomicU32::new(0));
        let cable = Cable {
            address,
            cut: Arc::clone(&cut),
            left: Arc::clone(&left),
            connections: Arc::clone(&connections),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(server).await.expect("the server");
                let (cut, left) = (Arc::clone(&cut), Arc::clone(&left));
                tokio::spawn(async move {
                    let (mut client_in, mut client_out) = client.into_split();
                    let (mut server_in, mut server_out) = server.into_split();
                    let up = async {
                        let mut buf = vec![0; 8192];
                        while let Ok(n @ 1..) = client_in.read(&mut buf).await {
                            if left.load(Ordering::Relaxed) < n as u64 {
                                return left.store(u64::MAX, Ordering::Relaxed);
                            }
                            if left.load(Ordering::Relaxed) != u64::MAX {
                                left.fetch_sub(n as u64, Ordering::Relaxed);
                            }
                            if server_out.write_all(&buf[..n]).await.is_err() {
                                return;
                            }
                        }
                    };
                    let down = tokio::io::copy(&mut server_in, &mut client_out);
                    tokio::select! { () = up => {}, _ = down => {}, () = cut.notified() => {} }
                });
            }
        });
        cable
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let done = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), done).await.is_ok(), "never: {what}");
}

async fn check(file: &File, data: &[u8]) {
    let piece = data.len() / 16;
    let reads: Vec<_> = (0..16).map(|i| file.submit_read((i * piece) as u64, piece as u32)).collect();
    for (i, read) in reads.into_iter().enumerate() {
        assert!(sg_to_vec(&read.await.expect("read")) == data[i * piece..][..piece], "piece {i}");
    }
}

/// Outstanding requests of the lost channel continue over TCP, and the client restores the channel automatically,
/// in a session that is signed with AES-CMAC.
#[tokio::test]
async fn a_channel_breaks_and_comes_back() {
    let peer =
        Peer::start(Settings { announce_rdma: true, dialect_max: 0x0302, ..Settings::default() }).await;
    let cable = Cable::to(peer.rdma_address).await;
    let mut options = peer.options(TransportChoice::Auto);
    options.rdma_port = cable.address.port();
    let client = peer.connect(options).await.expect("a session");
    let file = tree_of(&client).await.open("f", OpenOptions::create()).await.expect("created");
    let data = pattern(16 * 65_536);
    // Cuts in the middle of a WRITE's payload, in a READ's request, and while the connection is idle.
    for (round, left) in [(1, 300_000), (2, 500), (3, 0)] {
        assert_eq!(client.transport().kind, TransportKind::Rdma, "round {round}");
        cable.left.store(if left == 0 { u64::MAX } else { left }, Ordering::Relaxed);
        let pieces: Vec<_> = (0..16).map(|i| &data[i * 65_536..][..65_536]).collect();
        let writes: Vec<_> =
            pieces.iter().enumerate().map(|(i, p)| file.submit_write(i as u64 * 65_536, sg(p))).collect();
        for write in writes {
            assert_eq!(write.await.expect("written"), 65_536);
        }
        check(&file, &data).await;
        if left == 0 {
            cable.cut.notify_waiters();
        }
        until("the loss is seen", || client.transport().kind == TransportKind::Tcp).await;
        let why = client.transport().why_not_rdma;
        assert!(matches!(why, Some(WhyNotRdma::Lost(_))), "{why:?}");
        check(&file, &data).await;
        until("it is back", || client.transport().kind == TransportKind::Rdma).await;
        assert_eq!(client.transport().why_not_rdma, None);
        assert_eq!(cable.connections.load(Ordering::Relaxed), round + 1);
        let before = peer.server.totals().read_bytes_rdma;
        check(&file, &data).await;
        assert_eq!(peer.server.totals().read_bytes_rdma, before + data.len() as u64);
    }
    let sessions = peer.server.sessions();
    assert_eq!((sessions.len(), sessions[0].channels.len()), (1, 2));
    client.logoff().await.expect("logged off");
    assert_eq!(peer.arena.usage().waiting, 0);
}

/// MS-SMB2 3.1.4.1: two bindings of a session signed with AES-GMAC would use the same nonces under one key.
#[tokio::test]
async fn a_session_signed_with_gmac_is_joined_once() {
    let peer = Peer::start(Settings { announce_rdma: true, ..Settings::default() }).await;
    let cable = Cable::to(peer.rdma_address).await;
    let mut options = peer.options(TransportChoice::Auto);
    options.rdma_port = cable.address.port();
    let client = peer.connect(options).await.expect("a session");
    let report = client.transport();
    assert_eq!((report.kind, report.signing), (TransportKind::Rdma, Some(SigningAlgorithm::AesGmac)));
    let file = tree_of(&client).await.open("f", OpenOptions::create()).await.expect("created");
    cable.cut.notify_waiters();
    until("the loss is seen", || client.transport().kind == TransportKind::Tcp).await;
    until("the reason", || client.transport().why_not_rdma == Some(WhyNotRdma::BoundOnce)).await;
    assert_eq!(client.join_over(peer.queue_pair()).await, Err(WhyNotRdma::BoundOnce));
    assert_eq!(cable.connections.load(Ordering::Relaxed), 1);
    file.write_at(0, sg(b"by TCP")).await.expect("written");

    // A failed attempt counts once it has sent a signed message, wherever the connection breaks.
    let (mut before, mut within) = (0, 0);
    for cut in 2..30 {
        let client = peer.client(TransportChoice::Tcp).await;
        let cut = ::rdma::sim::Options { cut_at: Some(cut), ..::rdma::sim::Options::new(peer.env.clone()) };
        if client.join_over(peer.queue_pair_with(cut)).await.is_ok() {
            break;
        }
        match client.join_over(peer.queue_pair()).await {
            Ok(()) => before += 1,
            Err(why) => {
                assert_eq!(why, WhyNotRdma::BoundOnce);
                within += 1;
            }
        }
    }
    assert!(before > 0 && within > 0, "{before} breaks before the binding, {within} within");
}

/// MS-SMB2 3.2.7.1: after either channel is lost, later requests carry the new ChannelSequence.
#[tokio::test]
async fn the_first_channel_breaks() {
    let peer = Peer::start(Settings::default()).await;
    let cable = Cable::to(peer.address).await;
    let mut options = peer.options(TransportChoice::Tcp);
    options.port = cable.address.port();
    let client = peer.connect(options).await.expect("a session");
    let sequence = Arc::new(AtomicU32::new(u32::MAX));
    let said = Arc::clone(&sequence);
    let forge = move |header: &Header, _: &mut [u8]| {
        if !header.is_response() && header.command == Command::QUERY_INFO {
            said.store(header.status.0, Ordering::Relaxed);
        }
    };
    client.join_over(Box::new(Forging { inner: peer.queue_pair(), forge })).await.expect("a channel");
    let file = tree_of(&client).await.open("f", OpenOptions::create()).await.expect("created");
    file.metadata().await.expect("by RDMA");
    assert_eq!(sequence.load(Ordering::Relaxed), 0);
    cable.cut.notify_waiters();
    for _ in 0..500 {
        file.metadata().await.expect("still by RDMA");
        if sequence.load(Ordering::Relaxed) != 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..3 {
        file.metadata().await.expect("still by RDMA");
        assert_eq!(sequence.load(Ordering::Relaxed), 1);
    }
}

/// A channel that cannot be restored reports the reason, and does not keep the client alive.
#[tokio::test]
async fn a_channel_that_stays_away() {
    let peer =
        Peer::start(Settings { announce_rdma: true, dialect_max: 0x0302, ..Settings::default() }).await;
    let cable = Cable::to(peer.rdma_address).await;
    let mut options = peer.options(TransportChoice::Auto);
    options.rdma_port = cable.address.port();
    let client = peer.connect(options).await.expect("a session");
    let tree = tree_of(&client).await;
    let file = tree.open("f", OpenOptions::create()).await.expect("created");
    // Cuts each attempt in the middle of its log-on.
    cable.left.store(0, Ordering::Relaxed);
    let left = Arc::clone(&cable.left);
    let cutter = tokio::spawn(async move {
        loop {
            left.store(0, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    file.metadata().await.expect("by TCP");
    until("the reason", || matches!(client.transport().why_not_rdma, Some(WhyNotRdma::ConnectFailed { .. })))
        .await;
    tree.stat("").await.expect("still by TCP");
    client.logoff().await.expect("logged off");
    cutter.abort();
}
