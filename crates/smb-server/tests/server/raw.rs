//! A client that sends what a test specifies, valid or not: one TCP connection, messages made by hand.

use std::net::Ipv4Addr;
use std::sync::Arc;

use smb_auth::crypt::{Cipher, Opener, Sealer, TRANSFORM_LEN};
use smb_auth::derive::{PreauthHash, Role, Schedule, SessionKeys};
use smb_auth::initiator::{Initiator, InitiatorStep};
use smb_auth::mechanism::FileTime;
use smb_auth::ntlm::initiate::ClientRandom;
use smb_auth::ntlm::{Authenticate, Flags, Negotiate};
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_wire::context::{HashAlgorithm, NegotiateContextsBuf};
use smb_wire::header::{OFFSET_FLAGS, OFFSET_SIGNATURE};
use smb_wire::msg::{
    CancelRequest, Capabilities, CreateDisposition, CreateRequest, CreateResponse, Dialects, EchoRequest,
    ImpersonationLevel, NegotiateRequest, NegotiateResponse, OplockLevel, ReadRequest, SecurityMode,
    SessionSetupFlags, SessionSetupRequest, SessionSetupResponse, TreeConnectRequest, WriteRequest,
};
use smb_wire::{
    AccessMask, Command, Decode, Encode, FileId, Guid, Header, HeaderFlags, MessageBuilder, NtStatus,
    ShareAccess, Utf16Buf,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::world::{World, credentials};

impl World {
    /// A TCP connection to the server, and the task that serves it.
    pub async fn dial(&self) -> (TcpStream, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let serving = tokio::spawn(Arc::clone(&self.server).serve_tcp(theirs.expect("accepted").0));
        (ours.expect("connected"), serving)
    }
}

/// One connection.
pub struct Raw {
    pub stream: TcpStream,
    pub session_id: u64,
    /// Requests are signed with it when `signs`.
    pub key: Option<Arc<SigningKey>>,
    pub signs: bool,
    /// The cipher that NEGOTIATE offers, and the one negotiated.
    pub offers: Option<Cipher>,
    /// The signing algorithm that NEGOTIATE offers; the dialect's own otherwise.
    pub algorithm: Option<SigningAlgorithm>,
    ciphers: Option<(Sealer, Opener)>,
    /// The signing flag of NEGOTIATE and SESSION_SETUP.
    pub requires_signing: bool,
    /// Each SESSION_SETUP is followed by a CANCEL of it, without a session.
    pub cancels_log_on: bool,
    /// MaxReadSize of the server's answer, in bytes.
    pub max_read: u32,
    pub tree_id: u32,
    /// Header flags of the next requests.
    pub flags: HeaderFlags,
    /// The oplock level of CREATE.
    pub oplock: OplockLevel,
    /// ChannelSequence of the next requests.
    pub sequence: u16,
    /// Credits that the server has granted and that were not used.
    pub credits: u32,
    /// Unsolicited messages that arrived while the client waited for an answer.
    pub unsolicited: Vec<Vec<u8>>,
    next_id: u64,
    dialect: u16,
    preauth: PreauthHash,
}

/// How a log-on binds to a session.
#[derive(Clone)]
pub struct Binding {
    pub session_id: u64,
    /// The key that signs the requests; `None`: they are not signed.
    pub key: Option<Arc<SigningKey>>,
}

impl Raw {
    pub fn new(stream: TcpStream) -> Raw {
        Raw {
            stream,
            session_id: 0,
            key: None,
            signs: false,
            offers: None,
            algorithm: None,
            ciphers: None,
            requires_signing: false,
            cancels_log_on: false,
            max_read: 0,
            tree_id: 0,
            flags: HeaderFlags::empty(),
            oplock: OplockLevel::NONE,
            sequence: 0,
            credits: 1,
            unsolicited: Vec::new(),
            next_id: 0,
            dialect: 0,
            preauth: PreauthHash::new(),
        }
    }

    /// The bytes of a request, framed; encrypted once there is a cipher.
    pub fn encode(&mut self, command: Command, charge: u16, body: &impl Encode, payload: &[u8]) -> Vec<u8> {
        assert!(u32::from(charge) <= self.credits, "{command:?} needs {charge} credits of {}", self.credits);
        self.credits -= u32::from(charge);
        let header = Header {
            command,
            credit_charge: charge,
            credits: charge + 64,
            message_id: self.next_id,
            session_id: self.session_id,
            tree_id: self.tree_id,
            flags: self.flags,
            status: NtStatus(self.sequence.into()),
            ..Header::default()
        };
        self.next_id += u64::from(charge);
        let mut m = Vec::new();
        let mut builder = MessageBuilder::new(&mut m);
        builder.push(&header, body).expect("it fits");
        builder.finish();
        m.extend_from_slice(payload);
        if let Some(key) = self.key.as_ref().filter(|_| self.signs) {
            m[OFFSET_FLAGS] |= HeaderFlags::SIGNED.bits() as u8;
            let signature = key.sign(&[&m], header.message_id, false, false).expect("a whole header");
            m[OFFSET_SIGNATURE..OFFSET_SIGNATURE + 16].copy_from_slice(&signature);
        }
        let transform = self.ciphers.as_ref().map(|(sealer, _)| {
            sealer.seal_message(self.session_id, &mut m).expect("a nonce is left").to_vec()
        });
        let transform = transform.unwrap_or_default();
        let mut framed = ((transform.len() + m.len()) as u32).to_be_bytes().to_vec();
        framed.extend(transform);
        framed.extend(m);
        framed
    }

    /// The next answer that is final; `None` when the server has closed.
    pub async fn answer(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            let (header, m) = self.receive().await?;
            // MS-SMB2 3.3.4.6
            if header.message_id == u64::MAX {
                self.unsolicited.push(m);
            } else if header.status != NtStatus::PENDING {
                return Some((header, m));
            }
        }
    }

    /// The next unsolicited message; `None` when the server has closed the connection.
    pub async fn notification(&mut self) -> Option<(Header, Vec<u8>)> {
        if !self.unsolicited.is_empty() {
            let m = self.unsolicited.remove(0);
            return Some((Header::decode(&m).expect("a header"), m));
        }
        let (header, m) = self.receive().await?;
        assert_eq!(header.message_id, u64::MAX);
        Some((header, m))
    }

    async fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let (header, m) = match &self.ciphers {
            None => message(&mut self.stream).await?,
            Some((_, opener)) => {
                let mut m = bytes(&mut self.stream).await?;
                let mut plain = m.split_off(TRANSFORM_LEN);
                let header = m.as_slice().try_into().expect("a transform header");
                opener.open_message(header, &mut plain).expect("the server's tag");
                (Header::decode(&plain).expect("a header"), plain)
            }
        };
        self.take_credits(&header);
        Some((header, m))
    }

    fn security_mode(&self) -> SecurityMode {
        let required =
            if self.requires_signing { SecurityMode::SIGNING_REQUIRED } else { SecurityMode::empty() };
        SecurityMode::SIGNING_ENABLED | required
    }

    pub fn take_credits(&mut self, header: &Header) {
        self.credits += u32::from(header.credits);
    }

    /// The next request's message id.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Sets the next request's message id; returns the former one.
    pub fn swap_next_id(&mut self, id: u64) -> u64 {
        std::mem::replace(&mut self.next_id, id)
    }

    pub async fn call(&mut self, command: Command, body: &impl Encode) -> Option<(Header, Vec<u8>)> {
        let m = self.encode(command, 1, body, &[]);
        self.stream.write_all(&m).await.ok()?;
        self.answer().await
    }

    pub async fn negotiate(&mut self, dialect: u16, guid: u8) {
        let mut contexts = NegotiateContextsBuf::new();
        if dialect == 0x0311 {
            contexts.preauth(&[HashAlgorithm::SHA_512], &[9; 32]).expect("it fits");
            if let Some(cipher) = self.offers {
                contexts.encryption(&[smb_wire::context::Cipher(cipher.to_wire())]).expect("it fits");
            }
            if let Some(algorithm) = self.algorithm {
                let id = smb_wire::context::SigningAlgorithm(algorithm.to_wire());
                contexts.signing(&[id]).expect("it fits");
            }
        }
        let dialects = dialect.to_le_bytes();
        let body = NegotiateRequest {
            security_mode: self.security_mode(),
            capabilities: if dialect < 0x0300 {
                Capabilities::empty()
            } else {
                Capabilities::LARGE_MTU | Capabilities::MULTI_CHANNEL | Capabilities::PERSISTENT_HANDLES
            },
            client_guid: Guid([guid; 16]),
            dialects: Dialects::from_bytes(&dialects).expect("one"),
            contexts: contexts.as_contexts(),
        };
        let m = self.encode(Command::NEGOTIATE, 1, &body, &[]);
        self.stream.write_all(&m).await.expect("sent");
        let (header, answer) = self.answer().await.expect("an answer");
        assert_eq!(header.status, NtStatus::SUCCESS);
        let response = NegotiateResponse::decode(&answer).expect("sound");
        assert_eq!(response.dialect.0, dialect);
        self.max_read = response.max_read_size;
        self.dialect = dialect;
        self.preauth.update(&[&m[4..]]);
        self.preauth.update(&[&answer]);
    }

    /// Logs on, or binds; the status of the answer that ends it.
    pub async fn log_on(&mut self, user: &str, binding: Option<Binding>) -> NtStatus {
        let random =
            ClientRandom { client_challenge: [1; 8], session_key: [2 + u8::from(binding.is_some()); 16] };
        let now = FileTime(133_000_000_000_000_000);
        let mut initiator = Initiator::ntlm(credentials(user), random, now, "cifs/world");
        let mut token = initiator.first_token(&[]).expect("a token");
        let mut preauth = self.preauth;
        let mut flags = SessionSetupFlags::empty();
        let again = binding.is_none() && self.key.is_some();
        if let Some(b) = binding {
            flags = SessionSetupFlags::BINDING;
            self.session_id = b.session_id;
            self.signs = b.key.is_some();
            self.key = b.key;
        }
        loop {
            let body = SessionSetupRequest {
                flags,
                security_mode: self.security_mode(),
                capabilities: Capabilities::empty(),
                channel: 0,
                previous_session_id: 0,
                security_buffer: &token,
            };
            let m = self.encode(Command::SESSION_SETUP, 1, &body, &[]);
            self.stream.write_all(&m).await.expect("sent");
            preauth.update(&[&m[4..]]);
            if self.cancels_log_on {
                let (next, session) = (self.next_id, std::mem::take(&mut self.session_id));
                self.next_id -= 1;
                let m = self.encode(Command::CANCEL, 0, &CancelRequest {}, &[]);
                (self.next_id, self.session_id) = (next, session);
                self.stream.write_all(&m).await.expect("sent");
            }
            let Some((header, answer)) = self.answer().await else { return NtStatus::CONNECTION_RESET };
            match header.status {
                NtStatus::MORE_PROCESSING_REQUIRED => {
                    preauth.update(&[&answer]);
                    self.session_id = header.session_id;
                    let body = SessionSetupResponse::decode(&answer).expect("sound");
                    let InitiatorStep::Continue(next) = initiator.step(body.security_buffer).expect("a step")
                    else {
                        panic!("done too early")
                    };
                    token = next;
                }
                // MS-SMB2 3.3.5.5.3: a session keeps its keys.
                NtStatus::SUCCESS if again => return NtStatus::SUCCESS,
                NtStatus::SUCCESS => {
                    let body = SessionSetupResponse::decode(&answer).expect("sound");
                    let InitiatorStep::Done { session_key } =
                        initiator.step(body.security_buffer).expect("a step")
                    else {
                        panic!("not done")
                    };
                    let schedule = Schedule::for_dialect(self.dialect, &preauth).expect("a dialect");
                    let keys = SessionKeys::derive(schedule, &session_key, self.offers, Role::Client);
                    let algorithm =
                        self.algorithm.unwrap_or(SigningAlgorithm::default_for_dialect(self.dialect));
                    let key = SigningKey::new(algorithm, &keys.signing);
                    // MS-SMB2 3.3.5.5.3: signed with the new channel's own key.
                    key.verify(&[&answer], header.message_id, true, false).expect("the server's signature");
                    self.key = Some(Arc::new(key));
                    self.signs = false;
                    if let (Some(cipher), Some(out), Some(back)) =
                        (self.offers, &keys.encryption, &keys.decryption)
                    {
                        let sealer = Sealer::new(cipher, out.as_bytes()).expect("a key");
                        let opener = Opener::new(cipher, back.as_bytes()).expect("a key");
                        self.ciphers = Some((sealer, opener));
                    }
                    return NtStatus::SUCCESS;
                }
                status => return status,
            }
        }
    }

    /// Requests a null session, by NTLM without SPNEGO.
    pub async fn log_on_anonymously(&mut self) -> NtStatus {
        let flags = Flags::UNICODE.union(Flags::EXTENDED_SESSIONSECURITY).union(Flags::ANONYMOUS);
        let negotiate = Negotiate { flags }.to_bytes();
        let authenticate = Authenticate {
            flags,
            lm_response: &[0],
            nt_response: &[],
            domain: &[],
            user: &[],
            workstation: &[],
            encrypted_session_key: &[],
            mic: None,
        };
        let mut status = NtStatus::SUCCESS;
        for token in [negotiate, authenticate.to_bytes()] {
            let body = SessionSetupRequest {
                security_mode: self.security_mode(),
                security_buffer: &token,
                ..SessionSetupRequest::default()
            };
            let (header, _) = self.call(Command::SESSION_SETUP, &body).await.expect("an answer");
            (status, self.session_id) = (header.status, header.session_id);
        }
        status
    }

    /// Negotiates 3.1.1 and logs on as alice.
    pub async fn session(stream: TcpStream) -> Raw {
        let mut raw = Raw::new(stream);
        raw.negotiate(0x0311, 1).await;
        assert_eq!(raw.log_on("alice", None).await, NtStatus::SUCCESS);
        raw
    }

    pub async fn tree(&mut self, share: &str) {
        let path = Utf16Buf::from(format!(r"\\world\{share}").as_str());
        let body = TreeConnectRequest { path: path.as_utf16(), ..TreeConnectRequest::default() };
        let signs = std::mem::replace(&mut self.signs, self.ciphers.is_none());
        let (header, _) = self.call(Command::TREE_CONNECT, &body).await.expect("an answer");
        self.signs = signs;
        assert_eq!(header.status, NtStatus::SUCCESS);
        self.tree_id = header.tree_id;
    }

    pub async fn open(&mut self, name: &str) -> FileId {
        self.open_for(name, AccessMask::FILE_ALL_ACCESS).await
    }

    pub async fn open_for(&mut self, name: &str, desired_access: AccessMask) -> FileId {
        let (status, m) = self.create(name, desired_access).await;
        assert_eq!(status, NtStatus::SUCCESS);
        CreateResponse::decode(&m).expect("sound").file_id
    }

    /// The status of a CREATE, and the answer.
    pub async fn create(&mut self, name: &str, desired_access: AccessMask) -> (NtStatus, Vec<u8>) {
        let name = Utf16Buf::from(name);
        let body = CreateRequest {
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access,
            oplock_level: self.oplock,
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            create_disposition: CreateDisposition::OPEN_IF,
            name: name.as_utf16(),
            ..CreateRequest::default()
        };
        let (header, m) = self.call(Command::CREATE, &body).await.expect("an answer");
        (header.status, m)
    }

    /// A READ, not sent yet.
    pub fn read(&mut self, file_id: FileId, offset: u64, length: u32) -> Vec<u8> {
        let body = ReadRequest { file_id, offset, length, ..ReadRequest::default() };
        self.encode(Command::READ, charge(length), &body, &[])
    }

    /// A WRITE, not sent yet.
    pub fn write(&mut self, file_id: FileId, offset: u64, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let data_offset = WriteRequest::HEAD_LEN as u16;
        let body = WriteRequest { data_offset, length, offset, file_id, ..WriteRequest::default() };
        self.encode(Command::WRITE, charge(length), &body, data)
    }

    /// The status of an ECHO; `None` when the server has closed.
    pub async fn echo(&mut self) -> Option<NtStatus> {
        Some(self.call(Command::ECHO, &EchoRequest {}).await?.0.status)
    }

    /// The status of a short READ.
    pub async fn read_status(&mut self, file_id: FileId) -> Option<NtStatus> {
        let m = self.read(file_id, 0, 16);
        self.stream.write_all(&m).await.ok()?;
        Some(self.answer().await?.0.status)
    }
}

/// One message; `None` when the server has closed.
pub async fn message(stream: &mut (impl AsyncRead + Unpin)) -> Option<(Header, Vec<u8>)> {
    let m = bytes(stream).await?;
    Some((Header::decode(&m).expect("a header"), m))
}

/// The bytes of one message; `None` when the other end has closed.
pub async fn bytes(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.ok()?;
    let mut m = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut m).await.ok()?;
    Some(m)
}

/// MS-SMB2 3.2.4.1.5.
pub fn charge(bytes: u32) -> u16 {
    (bytes.saturating_sub(1) / 65_536 + 1) as u16
}
