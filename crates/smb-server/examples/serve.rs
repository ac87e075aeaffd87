//! A server of directories on TCP: `serve PORT NAME=DIRECTORY… [--journal FILE]`. A `-` before the name of a share,
//! which is not part of the name, enables access-based enumeration. The only user is `alice`, with the password
//! `correct horse 7`. Signing is required, as in the program's default configuration. With a journal clients may have
//! persistent handles.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use arena::Arena;
use env::Env;
use smb_auth::mechanism::{Account, UserLookup};
use smb_auth::ntlm::NtHash;
use smb_auth::sid::Sid;
use smb_auth::users::UserInfo;
use smb_server::{
    FileJournal, Interface, Interfaces, Limits, OpenJournal, Protection, Server, ServerConfig, ShareConfig,
    ShareProtection,
};
use tokio::net::TcpListener;
use vfs::{HostDir, HostDirOptions};

#[derive(Debug)]
struct Alice;

impl UserLookup for Alice {
    fn users(&self) -> Vec<UserInfo> {
        let sid = Sid::machine([1, 2, 3]).account(1000);
        vec![UserInfo { name: "alice".into(), full_name: "Alice Liddell".into(), sid, disabled: false }]
    }

    fn lookup(&self, user: &str, _domain: &str) -> Option<Account> {
        user.eq_ignore_ascii_case("alice").then(|| Account {
            name: "alice".into(),
            nt_hash: NtHash::from_password("correct horse 7"),
            sid: Sid::machine([1, 2, 3]).account(1000),
            disabled: false,
        })
    }
}

impl Interfaces for Alice {
    fn list(&self, reached: SocketAddr) -> Vec<Interface> {
        let address = reached.ip();
        vec![Interface { index: 1, address, bits_per_second: 10_000_000_000, rss: true, rdma: false }]
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut journal: Option<Arc<dyn OpenJournal>> = None;
    if let Some(at) = arguments.iter().position(|a| a == "--journal") {
        let path = arguments.drain(at..).nth(1).expect("--journal FILE");
        journal = Some(FileJournal::open(Path::new(&path))?);
    }
    let continuous = journal.is_some();
    let mut arguments = arguments.into_iter();
    let port = arguments.next().and_then(|p| p.parse().ok()).expect("usage: serve PORT NAME=DIRECTORY…");
    let env = Env::real();
    let config = ServerConfig {
        name: "EXAMPLE".into(),
        guid: smb_wire::Guid(env.random()),
        boot: u32::from_le_bytes(env.random()),
        journal,
        signing: Protection::Required,
        encryption: Protection::Enabled,
        dialect_min: 0x0202,
        dialect_max: 0x0311,
        interfaces: Arc::new(Alice),
        limits: Limits::default(),
    };
    let server = Server::new(config, Arc::new(Alice), Arena::new(256 << 20)?, env);
    for argument in arguments {
        let (name, directory) = argument.split_once('=').expect("a share is NAME=DIRECTORY");
        let vfs = HostDir::open(Path::new(directory), HostDirOptions::default())?;
        let (access_based_enumeration, name) = name.strip_prefix('-').map_or((false, name), |n| (true, n));
        let share = ShareConfig { continuous, ..ShareConfig::new(name, vfs) };
        let protection = ShareProtection { grants: None, access_based_enumeration };
        server.add_protected_share(share, protection).expect("each name once");
    }
    server.restore_opens().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("ready");
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(Arc::clone(&server).serve_tcp(stream));
    }
}
