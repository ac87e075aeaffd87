//! A proxy modifies messages between client and server. The client must detect this before it sends anything
//! sensitive (MS-SMB2 3.2.5.2, 3.2.5.3, 3.2.5.5).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use ::rdma::{
    Completion, Done, Down, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Rights, Wr, WrId,
};
use smb_client::{Client, ConnectError, ConnectOptions, Lost, OpenOptions, RequestError, TransportChoice};
use smb_server::Protection;
use smb_wire::{Command, Header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::peer::{Peer, Settings};

/// The modification of each message; arguments: whether it comes from the client, header, bytes.
pub type Tamper = Arc<dyn Fn(bool, &Header, &mut Vec<u8>) + Send + Sync>;

/// Starts a tampering relay to `server`.
pub async fn relay(server: SocketAddr, tamper: Tamper) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.expect("the server");
            let ((client_in, client_out), (server_in, server_out)) =
                (client.into_split(), server.into_split());
            tokio::spawn(pass(client_in, server_out, true, Arc::clone(&tamper)));
            tokio::spawn(pass(server_in, client_out, false, Arc::clone(&tamper)));
        }
    });
    address
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, from_client: bool, tamper: Tamper) {
    let mut frame = [0; 4];
    while from.read_exact(&mut frame).await.is_ok() {
        let mut message = vec![0; u32::from_be_bytes(frame) as usize];
        if from.read_exact(&mut message).await.is_err() {
            return;
        }
        if let Ok(header) = Header::decode(&message) {
            tamper(from_client, &header, &mut message);
        }
        let frame = (message.len() as u32).to_be_bytes();
        if to.write_all(&frame).await.is_err() || to.write_all(&message).await.is_err() {
            return;
        }
    }
}

async fn through(
    peer: &Peer,
    dialect_max: u16,
    tamper: impl Fn(bool, &Header, &mut Vec<u8>) + Send + Sync + 'static,
) -> Result<Client, ConnectError> {
    let mut options: ConnectOptions = peer.options(TransportChoice::Tcp);
    options.port = relay(peer.address, Arc::new(tamper)).await.port();
    options.dialect_max = dialect_max;
    // The test removes the requirement of signatures, which is the client's default.
    options.require_signing = false;
    peer.connect(options).await
}

fn not_authentic(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Request(RequestError::Lost(Lost::NotAuthentic)))
}

#[tokio::test]
async fn an_honest_relay_changes_nothing() {
    let peer = Peer::start(Settings::default()).await;
    for dialect in [0x0210, 0x0300, 0x0302, 0x0311] {
        let client = through(&peer, dialect, |_, _, _| {}).await.expect("a session");
        client.tree("ram").await.expect("the share");
    }
}

/// 3.0 and 3.0.2: a signed request confirms the NEGOTIATE response (MS-SMB2 3.2.5.5).
#[tokio::test]
async fn a_changed_negotiation_of_3_0() {
    let peer = Peer::start(Settings::default()).await;
    for dialect in [0x0300, 0x0302] {
        // Clears the encryption capability, so that the client does not encrypt.
        let without = through(&peer, dialect, |from_client, header, message| {
            if !from_client && header.command == Command::NEGOTIATE {
                message[64 + 24] &= !0x40;
            }
        });
        assert!(matches!(without.await, Err(ConnectError::Tampered(_))));
        // Downgrades to an older dialect than both ends support.
        let older = through(&peer, dialect, |from_client, header, message| {
            if from_client && header.command == Command::NEGOTIATE {
                // The dialects follow the fixed part of 36 bytes: all become 2.1.
                let count = usize::from(u16::from_le_bytes([message[66], message[67]]));
                for d in message[100..100 + 2 * count].chunks_exact_mut(2) {
                    d.copy_from_slice(&0x0210u16.to_le_bytes());
                }
            }
        });
        // The server ends the connection because the FSCTL carries the original values (3.3.5.15.12).
        assert!(matches!(older.await, Err(ConnectError::Tampered(_))));
    }
}

/// 3.1.1: any modification of an earlier message changes the keys (MS-SMB2 3.2.5.3.3).
#[tokio::test]
async fn a_changed_negotiation_of_3_1_1() {
    let peer = Peer::start(Settings::default()).await;
    for at in [64 + 24, 64 + 8 + 5, 64 + 40] {
        // Capabilities, the server's GUID, the server's time.
        let changed = through(&peer, 0x0311, move |from_client, header, message| {
            if !from_client && header.command == Command::NEGOTIATE {
                message[at] ^= 8;
            }
        });
        assert!(not_authentic(&changed.await.err().expect("noticed")), "{at}");
    }
}

/// The final response authenticates the server: the client rejects it if it is unsigned or modified.
#[tokio::test]
async fn a_changed_log_on() {
    let peer = Peer::start(Settings::default()).await;
    for dialect in [0x0300, 0x0302, 0x0311] {
        let unsigned = through(&peer, dialect, |from_client, header, message| {
            if !from_client && header.command == Command::SESSION_SETUP {
                message[16] &= !8;
            }
        });
        assert!(not_authentic(&unsigned.await.err().expect("noticed")));
        // Sets the guest flag, so that signing is off.
        let guest = through(&peer, dialect, |from_client, header, message| {
            if !from_client && header.command == Command::SESSION_SETUP && header.status.is_success() {
                message[66] |= 1;
            }
        });
        assert!(matches!(guest.await, Err(ConnectError::Refused(_))));
    }
}

/// A queue pair that modifies received messages: `forge` gets the header and the bytes of each SMB2 message. It
/// also gets sent messages, but cannot modify them.
pub struct Forging<F> {
    pub inner: Box<dyn QueuePair>,
    pub forge: F,
}

impl<F: Fn(&Header, &mut [u8]) + Send> QueuePair for Forging<F> {
    fn caps(&self) -> QueuePairCaps {
        self.inner.caps()
    }
    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        self.inner.expose(what, rights)
    }
    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)> {
        if let Wr::Send { sg, .. } = &wr {
            let mut bytes = arena::sg_to_vec(sg);
            if bytes.len() > 24
                && let Ok(header) = Header::decode(&bytes[24..])
            {
                (self.forge)(&header, &mut bytes[24..]);
            }
        }
        self.inner.post(id, wr)
    }
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        let ready = self.inner.poll(cx, out);
        for completion in out {
            if let Ok(Done::Recv { buf, .. }) = &mut completion.result
                && buf.len() > 24
                && let Ok(header) = Header::decode(&buf[24..])
            {
                let len = buf.len();
                (self.forge)(&header, &mut buf.space()[24..len]);
            }
        }
        ready
    }
    fn close(&mut self) {
        self.inner.close();
    }
    fn exposed(&self) -> usize {
        self.inner.exposed()
    }
}

/// MS-SMB2 3.2.5.3.3: the response that adds a channel is signed with that channel's key. The client rejects an
/// unsigned response, with or without the guest flag.
#[tokio::test]
async fn a_changed_binding() {
    for (guest, dialect_max) in [(1, 0x0302), (2, 0x0311), (0, 0x0302), (0, 0x0311)] {
        let peer = Peer::start(Settings { dialect_max, ..Settings::default() }).await;
        let client = peer.client(TransportChoice::Tcp).await;
        let forge = move |header: &Header, message: &mut [u8]| {
            if header.command == Command::SESSION_SETUP && header.status.is_success() {
                message[66] |= guest;
                message[16] &= !8;
                message[48..64].fill(0);
            }
        };
        let forging = Forging { inner: peer.queue_pair(), forge };
        let joined = client.join_over(Box::new(forging)).await.expect_err("noticed").to_string();
        let why = if guest == 0 { "signature" } else { "guest access" };
        assert!(joined.contains(why), "{joined}");
        assert_eq!(client.transport().kind, smb_client::TransportKind::Tcp);
    }
}

/// A READ returns only the bytes that the server wrote by RDMA: the memory's earlier content is not returned.
#[tokio::test]
async fn a_read_that_claims_too_much() {
    let peer = Peer::start(Settings { signing: Protection::Enabled, ..Settings::default() }).await;
    let mut options = peer.options(TransportChoice::Tcp);
    options.require_signing = false;
    let client = peer.connect(options).await.expect("a session");
    let claimed = Arc::new(AtomicU32::new(5000));
    let says = Arc::clone(&claimed);
    let forge = move |header: &Header, message: &mut [u8]| {
        if header.command == Command::READ && header.status.is_success() {
            message[72..76].copy_from_slice(&says.load(Ordering::Relaxed).to_le_bytes());
        }
    };
    client.join_over(Box::new(Forging { inner: peer.queue_pair(), forge })).await.expect("a channel");
    let tree = client.tree("ram").await.expect("the share");
    let file = tree.open("short", OpenOptions::create()).await.expect("created");
    let data = [arena::IoBuf::from(vec![1; 5000])].into_iter().collect();
    file.write_at(0, data).await.expect("written");
    assert_eq!(arena::sg_to_vec(&file.read_at(0, 8192).await.expect("read")), [1; 5000]);
    for claim in [5001, 8192] {
        claimed.store(claim, Ordering::Relaxed);
        assert!(matches!(file.read_at(0, 8192).await, Err(RequestError::Malformed(_))));
        let buffers = peer.arena.alloc_sg(8192, arena::Class::Payload).await;
        assert!(matches!(file.read_into(0, buffers, 8192).await, Err(RequestError::Malformed(_))));
    }
    assert_eq!(client.transport().kind, smb_client::TransportKind::Rdma);
}

/// After the log-on every response is signed, and a modified one ends the connection.
#[tokio::test]
async fn a_changed_answer() {
    let peer = Peer::start(Settings::default()).await;
    let client = through(&peer, 0x0311, |from_client, header, message| {
        if !from_client && header.command == Command::READ {
            *message.last_mut().expect("bytes") ^= 1;
        }
    });
    let client = client.await.expect("a session");
    let file =
        client.tree("ram").await.expect("the share").open("f", OpenOptions::create()).await.expect("created");
    let data = [arena::IoBuf::from(vec![1; 100_000])].into_iter().collect();
    file.write_at(0, data).await.expect("written");
    let read = file.read_at(0, 100_000).await;
    assert!(matches!(read, Err(RequestError::Lost(Lost::NotAuthentic))));
}
