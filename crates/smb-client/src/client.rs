//! A session on a server.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arena::Arena;
use env::Env;
use parking_lot::Mutex;
use rdma::QueuePair;
use smb_auth::crypt::Cipher;
use smb_auth::sign::SigningAlgorithm;
use smb_direct::{Counters, SmbDirect};
use smb_wire::ioctl::{NetworkInterface, NetworkInterfaces};
use smb_wire::msg::{Capabilities, Channel as DataChannel, FsctlCode, LogoffRequest};
use smb_wire::{Command, FileId, Guid};
use tokio::net::TcpStream;

use crate::connection::{CREDIT, Channel, Connection, Limits, Transport};
use crate::setup::rdma::{DirectError, PATIENCE, candidates};
use crate::setup::{self, LoggedOn, Negotiated};
use crate::{
    ConnectError, ConnectOptions, RequestError, Share, TransportChoice, Tree, WhyNotRdma, connection, pipe,
};

/// A session. Cloning is cheap; the connections close when the last clone, tree and file are gone.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    host: String,
    guid: Guid,
    options: ConnectOptions,
    arena: Arena,
    env: Env,
    negotiated: Negotiated,
    session: Arc<Channel>,
    /// The connection that logged on.
    first: Link,
    /// The SMB Direct connection that joined it.
    second: OnceLock<Link>,
    why_not_rdma: Mutex<Option<WhyNotRdma>>,
}

/// A connection and what fits through it.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// Bytes of a READ's answer inside a message at most; likewise the others.
    pub(crate) max_read: u32,
    pub(crate) max_write: u32,
    pub(crate) max_transact: u32,
    pub(crate) direct: Option<Direct>,
}

/// What SMB Direct adds.
#[derive(Clone, Copy)]
pub(crate) struct Direct {
    /// Payload of this length and more goes by RDMA, in bytes.
    pub(crate) threshold: u32,
    pub(crate) channel: DataChannel,
    /// Bytes by RDMA at most.
    pub(crate) max_read: u32,
    pub(crate) max_write: u32,
}

/// What carries I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Direct TCP.
    Tcp,
    /// SMB Direct.
    Rdma,
}

/// How a client is connected now.
#[derive(Clone, Debug)]
pub struct TransportReport {
    /// What carries I/O.
    pub kind: TransportKind,
    /// The dialect: 0x0202 to 0x0311.
    pub dialect: u16,
    /// How messages are signed; `None`: they are not, or they are encrypted.
    pub signing: Option<SigningAlgorithm>,
    /// How messages are encrypted; `None`: they are not.
    pub cipher: Option<Cipher>,
    /// Why it is not SMB Direct.
    pub why_not_rdma: Option<WhyNotRdma>,
}

impl Client {
    /// Connects to a server and logs on: `host` is its name or address.
    ///
    /// # Errors
    /// See [`ConnectError`]. With [`TransportChoice::Auto`], RDMA that cannot be had is none.
    pub async fn connect(
        host: &str,
        options: ConnectOptions,
        arena: Arena,
        env: Env,
    ) -> Result<Client, ConnectError> {
        let timeout = options.connect_timeout;
        let client = within(&env, timeout, async {
            match options.transport {
                TransportChoice::Rdma => {
                    let direct = dial_direct(host, &options, &arena, &env).await?;
                    Client::log_on(host, options.clone(), arena.clone(), env.clone(), Via::Direct(direct))
                        .await
                }
                TransportChoice::Tcp | TransportChoice::Auto => {
                    let stream = dial(host, options.port).await?;
                    Client::log_on(host, options.clone(), arena.clone(), env.clone(), Via::Tcp(stream)).await
                }
            }
        })
        .await?;
        if client.inner.options.transport == TransportChoice::Auto {
            let why = client.join_rdma().await.err();
            if let Some(why) = &why {
                tracing::info!(host, "SMB Direct is not used: {why}");
            }
            *client.inner.why_not_rdma.lock() = why;
        }
        Ok(client)
    }

    /// Connects over a queue pair that somebody else has connected: another fabric than iWARP, or a simulated one.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect_over(
        queue_pair: Box<dyn QueuePair>,
        host: &str,
        options: ConnectOptions,
        arena: Arena,
        env: Env,
    ) -> Result<Client, ConnectError> {
        within(&env, options.connect_timeout, async {
            let direct =
                setup::rdma::over(queue_pair, arena.clone(), env.clone(), options.connect_timeout).await;
            let direct = direct.map_err(|e| no_rdma(UNKNOWN_ADDRESS, &e))?;
            Client::log_on(host, options.clone(), arena.clone(), env.clone(), Via::Direct(direct)).await
        })
        .await
    }

    /// Makes a queue pair that somebody else has connected to the same server a channel of the session; I/O takes it
    /// from then on. A session takes one such.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn join_over(&self, queue_pair: Box<dyn QueuePair>) -> Result<(), WhyNotRdma> {
        self.may_join()?;
        let (arena, env) = (self.inner.arena.clone(), self.inner.env.clone());
        let failed = |reason: String| WhyNotRdma::ConnectFailed { address: UNKNOWN_ADDRESS, reason };
        let joined = within(&self.inner.env, PATIENCE, async {
            let direct = setup::rdma::over(queue_pair, arena, env, PATIENCE)
                .await
                .map_err(|e| no_rdma(UNKNOWN_ADDRESS, &e))?;
            self.bind(direct).await
        });
        joined.await.map_err(|e| failed(e.to_string()))?;
        *self.inner.why_not_rdma.lock() = None;
        Ok(())
    }

    /// How it is connected now.
    pub fn transport(&self) -> TransportReport {
        let inner = &self.inner;
        let kind = if inner.link().direct.is_some() { TransportKind::Rdma } else { TransportKind::Tcp };
        let signed = inner.session.signing_required && !inner.session.encrypt;
        TransportReport {
            kind,
            dialect: inner.negotiated.dialect,
            signing: signed.then_some(inner.negotiated.signing),
            cipher: inner.negotiated.cipher.filter(|_| inner.session.encrypt),
            why_not_rdma: match kind {
                TransportKind::Rdma => None,
                TransportKind::Tcp => inner.why_not_rdma.lock().clone(),
            },
        }
    }

    /// What SMB Direct counted; `None` without it.
    pub fn counters(&self) -> Option<Counters> {
        self.inner.link().connection.direct_counters()
    }

    /// Opens a share.
    ///
    /// # Errors
    /// [`RequestError`]; among others STATUS_BAD_NETWORK_NAME where there is no such share.
    pub async fn tree(&self, share: &str) -> Result<Tree, RequestError> {
        Tree::connect(self, share).await
    }

    /// The server's shares, IPC$ among them.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn shares(&self) -> Result<Vec<Share>, RequestError> {
        let tree = self.tree("IPC$").await?;
        let shares = pipe::shares(&tree, &self.inner.host).await;
        tree.disconnect().await?;
        shares
    }

    /// Ends the session: what is open is closed by the server. Every later request fails.
    ///
    /// # Errors
    /// [`RequestError`]; the connections are closed all the same.
    pub async fn logoff(&self) -> Result<(), RequestError> {
        let request = connection::Request::new(Command::LOGOFF, &LogoffRequest {});
        let said = match request {
            Ok(request) => self.inner.link().connection.call(request).await.and_then(|r| r.success()),
            Err(e) => Err(e),
        };
        for link in std::iter::once(&self.inner.first).chain(self.inner.second.get()) {
            link.connection.close();
            link.connection.closed().await;
        }
        said
    }

    /// The arena that the client's buffers come from.
    pub fn arena(&self) -> &Arena {
        &self.inner.arena
    }

    async fn log_on(
        host: &str,
        options: ConnectOptions,
        arena: Arena,
        env: Env,
        via: Via,
    ) -> Result<Client, ConnectError> {
        let guid = Guid(env.random());
        let (connection, fits) = via.start(&options, &arena, &env);
        let negotiated = setup::negotiate(&connection, host, guid, &options, &env).await?;
        if fits.is_some() && negotiated.dialect < 0x0300 {
            return Err(ConnectError::NoRdma(Box::new(WhyNotRdma::Dialect(negotiated.dialect))));
        }
        let LoggedOn { channel } = setup::log_on(&connection, host, &options, &negotiated, &env).await?;
        let first = Link::new(connection, fits, &negotiated, &options);
        let why = (options.transport == TransportChoice::Tcp).then_some(WhyNotRdma::TurnedOff);
        let client = Client {
            inner: Arc::new(Inner {
                host: host.to_owned(),
                guid,
                options,
                arena,
                env,
                negotiated,
                session: channel,
                first,
                second: OnceLock::new(),
                why_not_rdma: Mutex::new(why),
            }),
        };
        client.validate().await?;
        Ok(client)
    }

    /// MS-SMB2 3.2.5.5: asks the server to confirm the negotiation, where the keys do not depend on it.
    async fn validate(&self) -> Result<(), ConnectError> {
        let inner = &self.inner;
        if inner.negotiated.dialect >= 0x0311 || inner.options.dialect_max < 0x0300 {
            return Ok(());
        }
        let tree = self.tree("IPC$").await?;
        let connection = &inner.first.connection;
        setup::validate(connection, tree.id(), inner.guid, &inner.options, &inner.negotiated).await
    }

    /// Whether SMB Direct makes sense here.
    fn may_join(&self) -> Result<(), WhyNotRdma> {
        if self.inner.negotiated.dialect < 0x0300 {
            return Err(WhyNotRdma::Dialect(self.inner.negotiated.dialect));
        }
        if self.inner.session.encrypt {
            return Err(WhyNotRdma::Encrypted);
        }
        Ok(())
    }

    /// Looks for an interface with RDMA and makes a connection to it a channel of the session.
    async fn join_rdma(&self) -> Result<(), WhyNotRdma> {
        self.may_join()?;
        if !self.inner.negotiated.server_capabilities.contains(Capabilities::MULTI_CHANNEL) {
            return Err(WhyNotRdma::NotAnnounced);
        }
        let interfaces = self.interfaces().await.map_err(|e| match e {
            RequestError::Status(status) => WhyNotRdma::NotTold(status),
            _ => WhyNotRdma::NotAnnounced,
        })?;
        let mut why = WhyNotRdma::NotAnnounced;
        for address in candidates(&interfaces, self.inner.options.rdma_port) {
            let (arena, env) = (self.inner.arena.clone(), self.inner.env.clone());
            let attempt = async {
                let direct = setup::rdma::connect(address, arena, env, PATIENCE)
                    .await
                    .map_err(|e| no_rdma(address, &e))?;
                self.bind(direct).await
            };
            match within(&self.inner.env, PATIENCE, attempt).await {
                Ok(()) => return Ok(()),
                Err(ConnectError::NoRdma(reason)) => why = *reason,
                Err(e) => why = WhyNotRdma::ConnectFailed { address, reason: e.to_string() },
            }
        }
        Err(why)
    }

    /// FSCTL_QUERY_NETWORK_INTERFACE_INFO (MS-SMB2 3.2.4.20.10).
    async fn interfaces(&self) -> Result<Vec<NetworkInterface>, RequestError> {
        let tree = self.tree("IPC$").await?;
        let code = FsctlCode::QUERY_NETWORK_INTERFACE_INFO;
        let output = tree.fsctl(code, FileId::NONE, &[], CREDIT as u32).await?;
        Ok(NetworkInterfaces::new(&output).collect::<Result<Vec<_>, _>>()?)
    }

    /// Makes an SMB Direct connection a channel of the session (MS-SMB2 3.2.4.2.3.1).
    async fn bind(&self, direct: SmbDirect) -> Result<(), ConnectError> {
        let inner = &self.inner;
        let (connection, fits) = Via::Direct(direct).start(&inner.options, &inner.arena, &inner.env);
        let negotiated =
            setup::negotiate(&connection, &inner.host, inner.guid, &inner.options, &inner.env).await?;
        if negotiated.dialect != inner.negotiated.dialect
            || negotiated.server_guid != inner.negotiated.server_guid
        {
            return Err(ConnectError::Refused("another server answers there"));
        }
        setup::bind(&connection, &inner.host, &inner.options, &negotiated, &inner.session, &inner.env)
            .await?;
        let link = Link::new(connection, fits, &negotiated, &inner.options);
        inner
            .second
            .set(link)
            .map_err(|_| ConnectError::Refused("the session has an SMB Direct channel already"))
    }
}

/// A connection to begin with.
enum Via {
    Tcp(TcpStream),
    Direct(SmbDirect),
}

impl Via {
    fn start(
        self,
        options: &ConnectOptions,
        arena: &Arena,
        env: &Env,
    ) -> (Connection, Option<smb_direct::Limits>) {
        let limits = Limits { credits: options.credits.max(1), request_timeout: options.request_timeout };
        let (transport, fits) = match self {
            Via::Tcp(stream) => (Transport::tcp(stream, arena.clone()), None),
            Via::Direct(direct) => {
                let fits = direct.limits();
                (Transport::direct(direct), Some(fits))
            }
        };
        (Connection::start(transport, limits, arena.clone(), env.clone()), fits)
    }
}

impl Link {
    fn new(
        connection: Connection,
        fits: Option<smb_direct::Limits>,
        negotiated: &Negotiated,
        options: &ConnectOptions,
    ) -> Link {
        let n = negotiated;
        let Some(fits) = fits else {
            return Link {
                connection,
                max_read: n.max_read,
                max_write: n.max_write,
                max_transact: n.max_transact,
                direct: None,
            };
        };
        // What does not go by RDMA goes in messages, and those have a largest size.
        let send = fits.max_fragmented_send_size.saturating_sub(MESSAGE_OVERHEAD);
        let receive = fits.max_fragmented_receive_size.saturating_sub(MESSAGE_OVERHEAD);
        // MS-SMB2 3.2.4.6: remote invalidation from 3.0.2 on.
        let channel =
            if n.dialect >= 0x0302 { DataChannel::RDMA_V1_INVALIDATE } else { DataChannel::RDMA_V1 };
        Link {
            connection,
            max_read: n.max_read.min(receive),
            max_write: n.max_write.min(send),
            max_transact: n.max_transact.min(receive).min(send),
            direct: Some(Direct {
                threshold: options.rdma_threshold.max(1),
                channel,
                max_read: n.max_read.min(fits.max_read_write_size),
                max_write: n.max_write.min(fits.max_read_write_size),
            }),
        }
    }
}

/// What a message may hold beside its payload, in bytes: servers of ours set as much aside, and no peer reassembles less
/// than twice this (MS-SMBD 3.1.5.2).
const MESSAGE_OVERHEAD: u32 = 65_536;
/// Stands for a connection that was made elsewhere.
const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl Inner {
    /// The connection to use now: SMB Direct while there is one.
    pub(crate) fn link(&self) -> &Link {
        match self.second.get() {
            Some(second) if second.connection.is_alive() => second,
            _ => &self.first,
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn dialect(&self) -> u16 {
        self.negotiated.dialect
    }

    /// Whether everything of the session is encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.session.encrypt
    }

    pub(crate) fn can_encrypt(&self) -> bool {
        self.session.ciphers.is_some()
    }
}

fn no_rdma(address: SocketAddr, error: &DirectError) -> ConnectError {
    ConnectError::NoRdma(Box::new(WhyNotRdma::ConnectFailed { address, reason: error.to_string() }))
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |source| ConnectError::Resolve { host: host.to_owned(), source };
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect();
    if found.is_empty() {
        return Err(failed(std::io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

/// The first of the host's addresses that answers.
async fn dial(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let mut failure = None;
    for address in resolve(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(source) => failure = Some(ConnectError::Unreachable { address, source }),
        }
    }
    Err(failure.unwrap_or(ConnectError::TimedOut))
}

async fn dial_direct(
    host: &str,
    options: &ConnectOptions,
    arena: &Arena,
    env: &Env,
) -> Result<SmbDirect, ConnectError> {
    let mut failure = None;
    for address in resolve(host, options.rdma_port).await? {
        match setup::rdma::connect(address, arena.clone(), env.clone(), options.connect_timeout).await {
            Ok(direct) => return Ok(direct),
            Err(error) => failure = Some(no_rdma(address, &error)),
        }
    }
    Err(failure.unwrap_or(ConnectError::TimedOut))
}

/// Runs a step under a deadline.
async fn within<T>(
    env: &Env,
    time: Duration,
    step: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::select! {
        biased;
        done = step => done,
        () = env.sleep(time) => Err(ConnectError::TimedOut),
    }
}
