//! A server on loopback and on the simulated fabric, in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arena::Arena;
use env::Env;
use rdma::QueuePair;
use smb_auth::mechanism::{Account, UserLookup};
use smb_auth::ntlm::NtHash;
use smb_auth::ntlm::initiate::Credentials;
use smb_auth::sid::Sid;
use smb_client::{Client, ConnectOptions, TransportChoice};
use smb_direct::{SmbDirect, SmbDirectOptions};
use smb_server::{Interface, Interfaces, Limits, OpenJournal, Protection, Server, ServerConfig, ShareConfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use vfs::{RamFs, RamOptions, Vfs};

/// Every user's password.
pub const PASSWORD: &str = "correct horse";

#[derive(Debug)]
struct Two;

impl UserLookup for Two {
    fn lookup(&self, user: &str, _domain: &str) -> Option<Account> {
        let rid = match user {
            "alice" => 1000,
            "bob" => 1001,
            _ => return None,
        };
        Some(Account {
            name: user.into(),
            nt_hash: NtHash::from_password(PASSWORD),
            sid: Sid::machine([1, 2, 3]).account(rid),
            disabled: false,
        })
    }
}

impl Interfaces for Two {
    fn list(&self, _reached: SocketAddr) -> Vec<Interface> {
        Vec::new()
    }
}

/// The server, and what its clients need.
pub struct World {
    pub server: Arc<Server>,
    pub arena: Arena,
    pub env: Env,
}

impl World {
    /// A server that signs if the client requests it, with the shares `ram` and `null`.
    pub fn new(env: Env, budget: usize, limits: Limits) -> World {
        World::with_journal(env, budget, limits, None)
    }

    /// Like [`World::new`]; with a journal, `ram` is continuously available.
    pub fn with_journal(
        env: Env,
        budget: usize,
        limits: Limits,
        journal: Option<Arc<dyn OpenJournal>>,
    ) -> World {
        let continuous = journal.is_some();
        let arena = Arena::new(budget).expect("memory");
        let config = ServerConfig {
            name: "WORLD".into(),
            guid: smb_wire::Guid([7; 16]),
            boot: 1,
            journal,
            signing: Protection::Enabled,
            encryption: Protection::Enabled,
            dialect_min: 0x0202,
            dialect_max: 0x0311,
            interfaces: Arc::new(Two),
            limits,
        };
        let server = Server::new(config, Arc::new(Two), arena.clone(), env.clone());
        let ram: Arc<dyn Vfs> = RamFs::new(&env, RamOptions::default()).expect("address space");
        let null: Arc<dyn Vfs> = RamFs::null(&env, "NULL").expect("address space");
        for (name, vfs) in [("ram", ram), ("null", null)] {
            let continuous = continuous && name == "ram";
            let share = ShareConfig { continuous, ..ShareConfig::new(name, vfs) };
            server.add_share(share).expect("a new name");
        }
        World { server, arena, env }
    }

    /// Serves one end of a fabric connection.
    pub fn serve_direct(&self, queue_pair: Box<dyn QueuePair>) -> JoinHandle<()> {
        let (server, arena, env) = (Arc::clone(&self.server), self.arena.clone(), self.env.clone());
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 5445));
        tokio::spawn(async move {
            if let Ok(direct) = SmbDirect::accept(queue_pair, arena, env, SmbDirectOptions::server()).await {
                server.serve_direct(direct, nowhere, nowhere).await;
            }
        })
    }

    /// A queue pair whose other end is served.
    pub fn queue_pair(&self) -> (Box<dyn QueuePair>, JoinHandle<()>) {
        let (ours, theirs) = rdma::sim::pair(rdma::sim::Options::new(self.env.clone()));
        (Box::new(ours), self.serve_direct(Box::new(theirs)))
    }

    /// A client over TCP.
    pub async fn client(&self, mut options: ConnectOptions) -> Client {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        options.port = listener.local_addr().expect("bound").port();
        options.transport = TransportChoice::Tcp;
        let server = Arc::clone(&self.server);
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("accepted");
            server.serve_tcp(stream).await;
        });
        let (arena, env) = (self.arena.clone(), self.env.clone());
        Client::connect("127.0.0.1", options, arena, env).await.expect("a session")
    }
}

/// The credentials of a user.
pub fn credentials(user: &str) -> Credentials {
    Credentials {
        user: user.into(),
        domain: String::new(),
        nt_hash: NtHash::from_password(PASSWORD),
        workstation: "TEST".into(),
    }
}
