//! Tests the client with Samba's smbd, if it is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arena::{Arena, sg_to_vec};
use env::Env;
use rustix::process::{Pid, Signal, kill_process};
use smb_client::{
    Client, ConnectError, ConnectOptions, Credentials, Download, NtHash, NtStatus, OpenOptions,
    TransportChoice, TransportKind, Tree, Upload, WhyNotRdma,
};
use tokio::net::TcpStream;

use crate::exercise::{holes, pattern, sg, status};
use crate::repair::Expiry;
use crate::tampering::relay;

const PASSWORD: &str = "battery staple";

/// A private smbd that writes all its files to one folder.
struct Smbd {
    process: Child,
    folder: PathBuf,
    port: u16,
    user: String,
}

impl Drop for Smbd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.end_pipes();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Smbd {
    /// smbd starts samba-dcerpcd for its pipes. That process outlives smbd, and its helpers end with it.
    fn end_pipes(&self) {
        let Ok(text) = fs::read_to_string(self.folder.join("state/samba-dcerpcd.pid")) else { return };
        let Ok(id) = text.trim().parse() else { return };
        let is_it =
            fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|c| c.starts_with("samba-dcerpcd"));
        if let Some(pid) = Pid::from_raw(id).filter(|_| is_it) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The processes whose command line names `folder`.
fn left_behind(folder: &Path) -> Vec<String> {
    let name = folder.to_str().expect("UTF-8");
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let lines = processes.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    lines.map(|l| String::from_utf8_lossy(&l).replace('\0', " ")).filter(|l| l.contains(name)).collect()
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/usr/bin"]).map(|d| Path::new(d).join(name)).find(|p| p.is_file())
}

impl Smbd {
    /// Starts smbd. Prints a notice and returns `None` if it is not installed.
    async fn start(settings: &str) -> Option<Smbd> {
        let (Some(smbd), Some(smbpasswd)) = (program("smbd"), program("smbpasswd")) else {
            eprintln!("SKIPPED: smbd and smbpasswd are not installed (Debian: apt install samba)");
            return None;
        };
        let env = Env::real();
        let folder = std::env::temp_dir().join(format!("smb-client-{:016x}", env.random_u64()));
        for sub in ["private", "state", "files"] {
            fs::create_dir_all(folder.join(sub)).expect("a folder");
        }
        fs::set_permissions(folder.join("private"), fs::Permissions::from_mode(0o700)).expect("ours");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let user =
            String::from_utf8(Command::new("id").arg("-un").output().expect("id").stdout).expect("a name");
        let user = user.trim().to_owned();
        let f = folder.display();
        let text = format!(
            "[global]\nnetbios name = SMBD\nworkgroup = TEST\nserver role = standalone\ndisable netbios = yes\n\
             smb ports = {port}\ninterfaces = 127.0.0.1\nbind interfaces only = yes\nprivate dir = {f}/private\n\
             lock directory = {f}/state\nstate directory = {f}/state\ncache directory = {f}/state\n\
             pid directory = {f}/state\nncalrpc dir = {f}/state/ncalrpc\nload printers = no\nprinting = bsd\n\
             disable spoolss = yes\nmap to guest = never\nserver min protocol = SMB2_02\n{settings}\n\
             [files]\npath = {f}/files\nread only = no\ncomment = The files\n\
             [secret]\npath = {f}/files\nread only = no\nsmb encrypt = required\n"
        );
        let config = folder.join("smb.conf");
        fs::write(&config, text).expect("written");
        let secret = format!("{PASSWORD}\n{PASSWORD}\n");
        let mut add = Command::new(smbpasswd);
        add.arg("-c")
            .arg(&config)
            .args(["-L", "-s", "-a", &user])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut add = add.spawn().expect("smbpasswd");
        std::io::Write::write_all(&mut add.stdin.take().expect("piped"), secret.as_bytes()).expect("taken");
        assert!(add.wait().expect("it ends").success(), "smbpasswd failed");
        let process = Command::new(smbd)
            .args(["--foreground", "--no-process-group", "--debug-stdout"])
            .arg(format!("--configfile={}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("smbd");
        let smbd = Smbd { process, folder, port, user };
        // smbd reports that it is ready before it listens: connects until it accepts.
        let listening = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), listening)
            .await
            .expect("smbd starts within half a minute");
        Some(smbd)
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new(Credentials {
            user: self.user.clone(),
            domain: String::new(),
            nt_hash: NtHash::from_password(PASSWORD),
            workstation: "TEST".into(),
        });
        options.port = self.port;
        options
    }
}

async fn connect(options: ConnectOptions) -> Result<Client, ConnectError> {
    Client::connect("127.0.0.1", options, Arena::new(128 << 20).expect("memory"), Env::real()).await
}

async fn everything(tree: &Tree, folder: &Path) {
    holes(tree).await;
    let data = pattern((12 << 20) + 5);
    let file = tree.open("up", OpenOptions::create()).await.expect("created");
    let mut up = Upload::new(&file, 0);
    for chunk in data.chunks(900_000) {
        up.push(sg(chunk)).await.expect("taken");
    }
    assert_eq!(up.finish().await.expect("written"), data.len() as u64);
    file.flush().await.expect("durable");
    // The file as Samba stored it.
    assert!(fs::read(folder.join("up")).expect("on disk") == data);
    let mut down = Download::new(&file, 0, u64::MAX);
    let mut got = Vec::new();
    while let Some((_, piece)) = down.next().await.expect("read") {
        got.extend(sg_to_vec(&piece));
    }
    assert!(got == data);
    drop(down);
    file.set_len(100).await.expect("cut");
    assert_eq!(file.metadata().await.expect("metadata").size, 100);
    assert!(file.read_at(100, 10).await.expect("read").is_empty());
    drop(up);
    file.close().await.expect("closed");

    tree.create_dir("dir").await.expect("made");
    for i in 0..120 {
        fs::write(folder.join(format!("dir/Ünïcode {i}")), b"x").expect("written");
    }
    let mut dir = tree.read_dir("dir", "*").await.expect("opened");
    let mut names: Vec<_> = dir.all().await.expect("listed").into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!((names.len(), names[0].as_str()), (120, "Ünïcode 0"));
    drop(dir);
    for name in &names {
        tree.remove_file(&format!("dir/{name}")).await.expect("removed");
    }
    tree.rename("up", "dir/there", false).await.expect("moved");
    assert_eq!(tree.stat(r"dir\there").await.expect("metadata").size, 100);
    assert_eq!(status(tree.remove_dir("dir").await), NtStatus::DIRECTORY_NOT_EMPTY);
    tree.remove_file("dir/there").await.expect("removed");
    tree.remove_dir("dir").await.expect("removed");
    assert!(!folder.join("dir").exists());
    assert!(tree.space().await.expect("space").total > 0);
}

#[tokio::test]
async fn every_dialect_signed_and_encrypted() {
    let Some(smbd) = Smbd::start("").await else { return };
    for dialect in [0x0210, 0x0300, 0x0302, 0x0311] {
        for encrypt in [false, true] {
            if encrypt && dialect < 0x0300 {
                continue;
            }
            let mut options = smbd.options();
            options.transport = TransportChoice::Tcp;
            options.dialect_max = dialect;
            options.encrypt = encrypt;
            let client = connect(options).await.expect("a session");
            let report = client.transport();
            assert_eq!((report.dialect, report.cipher.is_some()), (dialect, encrypt));
            let tree = client.tree("files").await.expect("the share");
            everything(&tree, &smbd.folder.join("files")).await;
            client.reauthenticate().await.expect("still the same user");
            tree.stat("").await.expect("with the same keys");
            client.logoff().await.expect("logged off");
        }
    }
}

/// The client authenticates an expired session again at Samba, too.
#[tokio::test]
async fn a_session_expires() {
    let Some(smbd) = Smbd::start("").await else { return };
    let expiry = Arc::new(Expiry::default());
    let mut options = smbd.options();
    options.transport = TransportChoice::Tcp;
    options.require_signing = false;
    options.port = relay(([127, 0, 0, 1], smbd.port).into(), expiry.tamper()).await.port();
    let client = connect(options).await.expect("a session");
    expiry.everything(&client, "files").await;
    client.logoff().await.expect("logged off");
}

#[tokio::test]
async fn shares_and_refusals() {
    let Some(smbd) = Smbd::start("server signing = mandatory").await else { return };
    let mut options = smbd.options();
    options.require_signing = false;
    let client = connect(options.clone()).await.expect("a session");
    let report = client.transport();
    // Samba announces its interfaces, none of them with RDMA.
    assert_eq!((report.kind, report.why_not_rdma), (TransportKind::Tcp, Some(WhyNotRdma::NotAnnounced)));
    assert!(report.signing.is_some(), "the server demands it");
    let shares = client.shares().await.expect("listed");
    let files = shares.iter().find(|s| s.name == "files").expect("there");
    assert_eq!(files.comment, "The files");
    let secret = client.tree("secret").await.expect("the share");
    assert!(secret.is_encrypted());
    everything(&secret, &smbd.folder.join("files")).await;
    assert_eq!(status(client.tree("none").await), NtStatus::BAD_NETWORK_NAME);
    client.logoff().await.expect("logged off");
    options.credentials.nt_hash = NtHash::from_password("wrong");
    assert!(matches!(connect(options).await, Err(ConnectError::LogOn(NtStatus::LOGON_FAILURE))));

    // Listing the shares has started smbd's pipe daemon, which must end with the test.
    let folder = smbd.folder.clone();
    assert!(left_behind(&folder).iter().any(|l| l.contains("samba-dcerpcd")));
    drop(smbd);
    let gone = async {
        while !left_behind(&folder).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(10), gone).await;
    assert!(gone.is_ok(), "{:?}", left_behind(&folder));
}
