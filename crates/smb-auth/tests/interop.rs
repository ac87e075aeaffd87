//! Log-ons against other implementations: pyspnego as client and as server, impacket as client.
//!
//! The Python interpreter is `CAUSEWAY_PEER_PYTHON`, otherwise the one that `make test` sets up, otherwise
//! `python3`. If a module is missing, its tests print a warning and pass; with `CAUSEWAY_PEERS_REQUIRED` set they
//! fail.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use smb_auth::acceptor::{Acceptor, AcceptorConfig, Step};
use smb_auth::initiator::{Initiator, InitiatorStep};
use smb_auth::mechanism::{AuthError, FileTime};
use smb_auth::ntlm::NtHash;
use smb_auth::ntlm::initiate::{ClientRandom, Credentials};
use smb_auth::users::Table;

const USER: &str = "Älice";
const PASSWORD: &str = "Wönderland 漢字";
const NOW: FileTime = FileTime(134_000_000_000_000_000);

fn python() -> PathBuf {
    if let Some(path) = std::env::var_os("CAUSEWAY_PEER_PYTHON") {
        return path.into();
    }
    let of_make_test = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/python/bin/python3");
    if of_make_test.exists() { of_make_test } else { "python3".into() }
}

/// Whether a Python module is installed.
fn available(module: &str) -> bool {
    let import = format!("import {module}");
    let found = Command::new(python())
        .args(["-c", &import])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        let message = format!("NOT TESTED: Python module {module} is missing (`make test` installs it)");
        assert!(std::env::var_os("CAUSEWAY_PEERS_REQUIRED").is_none(), "{message}");
        eprintln!("\n**** {message} ****\n");
    }
    found
}

/// The other implementation's process.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Token(Vec<u8>),
    Key(Vec<u8>),
    Failed(String),
}

impl Peer {
    fn start(arguments: &[&str], user_file: Option<&Path>) -> Self {
        let mut command = Command::new(python());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer.py")).args(arguments);
        command.env("PYTHONUTF8", "1");
        if let Some(path) = user_file {
            command.env("NTLM_USER_FILE", path);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the interpreter starts");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, to, from }
    }

    fn send(&mut self, token: &[u8]) {
        let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.to, "{hex}").expect("the peer reads");
    }

    fn receive(&mut self) -> Reply {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the peer speaks");
        let (kind, value) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let bytes = || {
            let digits: Vec<u8> = value.chars().map(|c| c.to_digit(16).expect("hex") as u8).collect();
            digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
        };
        match kind {
            "token" => Reply::Token(bytes()),
            "key" => Reply::Key(bytes()),
            _ => Reply::Failed(value.into()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn users() -> Table {
    let mut users = Table::new([1, 2, 3]);
    users.add(USER, NtHash::from_password(PASSWORD), "").unwrap();
    users
}

/// The peer logs on to our acceptor. Returns our session key, after checking that the peer has the same.
fn peer_logs_on(arguments: &[&str]) -> Result<Vec<u8>, AuthError> {
    let mut peer = Peer::start(arguments, None);
    let mut server = Acceptor::new(&AcceptorConfig::new("server"), *b"\x01\x23\x45\x67\x89\xab\xcd\xef", NOW);
    let key = loop {
        let token = match peer.receive() {
            Reply::Token(token) => token,
            other => panic!("the peer stopped: {other:?}"),
        };
        match server.step(&token, &users()) {
            Step::Continue(answer) => peer.send(&answer),
            Step::Done { token, identity, session_key } => {
                assert_eq!(identity.user, USER);
                if !token.is_empty() {
                    peer.send(&token);
                }
                break session_key.to_vec();
            }
            Step::Failed(error) => return Err(error),
        }
    };
    assert_eq!(peer.receive(), Reply::Key(key.clone()));
    Ok(key)
}

/// We log on to the peer. Returns whether both ends agree.
fn we_log_on(password: &str) -> Result<(), String> {
    let path =
        std::env::temp_dir().join(format!("smb-auth-interop-{}-{}", std::process::id(), password.len()));
    std::fs::write(&path, format!("DOMAIN:{USER}:{PASSWORD}\n")).unwrap();
    let mut peer = Peer::start(&["pyspnego-server", "negotiate"], Some(&path));
    let credentials = Credentials {
        user: USER.into(),
        domain: "DOMAIN".into(),
        nt_hash: NtHash::from_password(password),
        workstation: "CLIENT".into(),
    };
    let random = ClientRandom { client_challenge: [0x11; 8], session_key: [0x22; 16] };
    let mut client = Initiator::ntlm(credentials, random, NOW, "cifs/server");
    peer.send(&client.first_token(&[]).unwrap());
    let outcome = loop {
        match peer.receive() {
            Reply::Token(token) => match client.step(&token).map_err(|error| error.to_string()) {
                Ok(InitiatorStep::Continue(answer)) => peer.send(&answer),
                Ok(InitiatorStep::Done { session_key }) => {
                    break match peer.receive() {
                        Reply::Key(key) if key == *session_key => Ok(()),
                        other => Err(format!("{other:?}")),
                    };
                }
                Err(error) => break Err(error),
            },
            Reply::Key(_) => break Err("done without a last token".into()),
            Reply::Failed(reason) => break Err(reason),
        }
    };
    std::fs::remove_file(path).unwrap();
    outcome
}

#[test]
fn pyspnego_client_with_spnego() {
    if available("spnego") {
        peer_logs_on(&["pyspnego-client", "negotiate", USER, PASSWORD]).unwrap();
        let wrong = peer_logs_on(&["pyspnego-client", "negotiate", USER, "wrong"]);
        assert_eq!(wrong, Err(AuthError::WrongPassword));
        let unknown = peer_logs_on(&["pyspnego-client", "negotiate", "mallory", PASSWORD]);
        assert_eq!(unknown, Err(AuthError::UnknownUser));
    }
}

#[test]
fn pyspnego_client_with_bare_ntlm() {
    if available("spnego") {
        peer_logs_on(&["pyspnego-client", "ntlm", &format!("WORKGROUP\\{USER}"), PASSWORD]).unwrap();
    }
}

#[test]
fn pyspnego_server() {
    if available("spnego") {
        we_log_on(PASSWORD).unwrap();
        assert!(we_log_on("wrong").is_err());
    }
}

#[test]
fn impacket_client() {
    if available("impacket") {
        peer_logs_on(&["impacket-client", "ntlm", &format!("WORKGROUP\\{USER}"), PASSWORD]).unwrap();
        let wrong = peer_logs_on(&["impacket-client", "ntlm", USER, "wrong"]);
        assert_eq!(wrong, Err(AuthError::WrongPassword));
    }
}
