//! Our own server in this process, for tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::rdma::sim;
use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use smb_auth::mechanism::{Account, UserLookup};
use smb_auth::sid::Sid;
use smb_client::{Client, ConnectOptions, Credentials, NtHash, TransportChoice};
use smb_direct::{SmbDirect, SmbDirectOptions};
use smb_server::{Interface, Interfaces, Limits, Protection, Server, ServerConfig, ShareConfig};
use tokio::net::TcpListener;
use vfs::{RamFs, RamOptions};

pub const USER: &str = "alice";
pub const PASSWORD: &str = "correct horse";

/// A server that listens on loopback.
pub struct Peer {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    pub rdma_address: SocketAddr,
    pub arena: Arena,
    pub env: Env,
}

/// Settings in which a test's server differs from the default.
#[derive(Clone)]
pub struct Settings {
    pub signing: Protection,
    pub encryption: Protection,
    pub dialect_max: u16,
    pub announce_rdma: bool,
    pub max_credits: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            signing: Protection::Required,
            encryption: Protection::Enabled,
            dialect_max: 0x0311,
            announce_rdma: false,
            max_credits: 8192,
        }
    }
}

struct Users;

impl UserLookup for Users {
    fn lookup(&self, user: &str, _domain: &str) -> Option<Account> {
        user.eq_ignore_ascii_case(USER).then(|| Account {
            name: USER.into(),
            nt_hash: NtHash::from_password(PASSWORD),
            sid: Sid::machine([1, 2, 3]).account(1000),
            disabled: false,
        })
    }
}

#[derive(Debug)]
struct Nets(Mutex<Vec<Interface>>);

impl Interfaces for Nets {
    fn list(&self, _reached: SocketAddr) -> Vec<Interface> {
        self.0.lock().clone()
    }
}

impl Peer {
    pub async fn start(settings: Settings) -> Peer {
        let env = Env::real();
        let arena = Arena::new(256 << 20).expect("memory");
        let rdma = rdma::iwarp::Listener::bind(loopback(), env.clone(), rdma::iwarp::Options::default())
            .await
            .expect("a port");
        let rdma_address = rdma.local_addr().expect("bound");
        let interface = Interface {
            index: 1,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            bits_per_second: 1 << 30,
            rss: false,
            rdma: settings.announce_rdma,
        };
        let config = ServerConfig {
            name: "PEER".into(),
            guid: smb_wire::Guid([7; 16]),
            boot: 1,
            journal: None,
            signing: settings.signing,
            encryption: settings.encryption,
            dialect_min: 0x0202,
            dialect_max: settings.dialect_max,
            interfaces: Arc::new(Nets(Mutex::new(vec![interface]))),
            limits: Limits { max_credits: settings.max_credits, ..Limits::default() },
        };
        let server = Server::new(config, Arc::new(Users), arena.clone(), env.clone());
        for (name, encrypt) in [("ram", false), ("secret", true)] {
            server
                .add_share(ShareConfig {
                    comment: format!("the {name} share"),
                    encrypt,
                    ..ShareConfig::new(name, RamFs::new(&env, RamOptions::default()).expect("memory"))
                })
                .expect("a new name");
        }
        let listener = TcpListener::bind(loopback()).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let serving = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&serving).serve_tcp(stream));
            }
        });
        let peer = Peer { server, address, rdma_address, arena, env };
        peer.serve_iwarp(rdma);
        peer
    }

    fn serve_iwarp(&self, listener: rdma::iwarp::Listener) {
        let (server, arena, env) = (Arc::clone(&self.server), self.arena.clone(), self.env.clone());
        let local = self.rdma_address;
        tokio::spawn(async move {
            while let Ok(arriving) = listener.accept().await {
                let (server, arena, env) = (Arc::clone(&server), arena.clone(), env.clone());
                tokio::spawn(async move {
                    let incoming = arriving.request().await.expect("an MPA request");
                    // IRD and ORD, which Linux sends in private data, in network order.
                    assert_eq!(incoming.private_data, [0, 0, 0, 32, 0, 0, 0, 32]);
                    let peer = incoming.peer;
                    let queue_pair = incoming.accept(&[], 32, 32).await.expect("accepted");
                    let options = SmbDirectOptions::default();
                    if let Ok(direct) = SmbDirect::accept(Box::new(queue_pair), arena, env, options).await {
                        server.serve_direct(direct, peer, local).await;
                    }
                });
            }
        });
    }

    /// A queue pair connected to this server over the simulated fabric.
    pub fn queue_pair(&self) -> Box<dyn rdma::QueuePair> {
        self.queue_pair_with(sim::Options::new(self.env.clone()))
    }

    /// A queue pair connected to this server over a simulated fabric with faults.
    pub fn queue_pair_with(&self, options: sim::Options) -> Box<dyn rdma::QueuePair> {
        let (ours, theirs) = sim::pair(options);
        let (server, arena, env) = (Arc::clone(&self.server), self.arena.clone(), self.env.clone());
        let local = self.rdma_address;
        tokio::spawn(async move {
            let options = SmbDirectOptions::default();
            if let Ok(direct) = SmbDirect::accept(Box::new(theirs), arena, env, options).await {
                server.serve_direct(direct, local, local).await;
            }
        });
        Box::new(ours)
    }

    pub fn options(&self, transport: TransportChoice) -> ConnectOptions {
        let mut o = ConnectOptions::new(credentials(PASSWORD));
        o.transport = transport;
        o.port = self.address.port();
        o.rdma_port = self.rdma_address.port();
        o
    }

    pub async fn client(&self, transport: TransportChoice) -> Client {
        self.connect(self.options(transport)).await.expect("a session")
    }

    pub async fn connect(&self, options: ConnectOptions) -> Result<Client, smb_client::ConnectError> {
        Client::connect("127.0.0.1", options, self.arena.clone(), self.env.clone()).await
    }
}

pub fn credentials(password: &str) -> Credentials {
    Credentials {
        user: USER.into(),
        domain: String::new(),
        nt_hash: NtHash::from_password(password),
        workstation: "TEST".into(),
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}
