//! A session on a server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arena::Arena;
use counters::Registry;
use env::Env;
use parking_lot::Mutex;
use rdma::QueuePair;
use smb_auth::crypt::Cipher;
use smb_auth::sign::SigningAlgorithm;
use smb_direct::{Counters, SmbDirect};
use smb_wire::ioctl::{NetworkInterface, NetworkInterfaces};
use smb_wire::msg::{Capabilities, FsctlCode, LogoffRequest};
use smb_wire::{Command, FileId, Guid};

use crate::connection::{CREDIT, Channel, Request};
use crate::link::{ConnectedTransport, Link};
use crate::repair::RdmaChannel;
use crate::setup::rdma::{CONNECT_TIME_LIMIT, candidates};
use crate::setup::{self, LoggedOn, Negotiated, dial, dial_direct, no_rdma, within};
use crate::{ConnectError, ConnectOptions, RequestError, Share, TransportChoice, Tree, WhyNotRdma, pipe};

/// A session. Cloning is cheap. The connections close when the last clone, tree and file are dropped.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    host: String,
    guid: Guid,
    pub(crate) options: ConnectOptions,
    arena: Arena,
    pub(crate) env: Env,
    pub(crate) negotiated: Negotiated,
    pub(crate) session: Arc<Channel>,
    /// The connection on which the session was created.
    pub(crate) primary: Arc<Link>,
    /// The SMB Direct connection that was added as a second channel.
    pub(crate) rdma_channel: Mutex<RdmaChannel>,
    /// A connection has tried to become a channel of the session: see [`WhyNotRdma::BoundOnce`].
    binding_tried: AtomicBool,
    /// Whether the loss of `primary` has been counted.
    pub(crate) primary_loss_counted: AtomicBool,
    pub(crate) reauthentications: AtomicU64,
    pub(crate) reauthenticating: tokio::sync::Mutex<()>,
    pub(crate) me: Weak<Inner>,
    registry: Registry,
}

/// The transport of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Direct TCP.
    Tcp,
    /// SMB Direct.
    Rdma,
}

/// Transport and protection of a client's connection.
#[derive(Clone, Debug)]
pub struct TransportReport {
    /// The transport of I/O.
    pub kind: TransportKind,
    /// The dialect: 0x0202 to 0x0311.
    pub dialect: u16,
    /// The signing algorithm; `None` if messages are not signed, or are encrypted.
    pub signing: Option<SigningAlgorithm>,
    /// The cipher; `None` if messages are not encrypted.
    pub cipher: Option<Cipher>,
    /// Why SMB Direct is not used; `None` if it is.
    pub why_not_rdma: Option<WhyNotRdma>,
}

impl Client {
    /// Connects to a server and logs on. `host` is its name or address.
    ///
    /// # Errors
    /// See [`ConnectError`]. With [`TransportChoice::Auto`], unavailable RDMA is not an error.
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
                    Client::log_on(
                        host,
                        options.clone(),
                        arena.clone(),
                        env.clone(),
                        ConnectedTransport::Direct(direct),
                    )
                    .await
                }
                TransportChoice::Tcp | TransportChoice::Auto => {
                    let stream = dial(host, options.port).await?;
                    Client::log_on(
                        host,
                        options.clone(),
                        arena.clone(),
                        env.clone(),
                        ConnectedTransport::Tcp(stream),
                    )
                    .await
                }
            }
        })
        .await?;
        if client.inner.options.transport == TransportChoice::Auto
            && let Err(why) = client.join_rdma().await
        {
            tracing::info!(host, "SMB Direct is not used: {why}");
            client.inner.rdma_channel.lock().set_why_not(why);
        }
        Ok(client)
    }

    /// Connects over a queue pair that the caller has connected: another fabric than iWARP, or a simulated one.
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
            let direct = direct.map_err(|e| no_rdma(UNKNOWN_ADDRESS, false, &e))?;
            Client::log_on(
                host,
                options.clone(),
                arena.clone(),
                env.clone(),
                ConnectedTransport::Direct(direct),
            )
            .await
        })
        .await
    }

    /// Makes a queue pair, which the caller has connected to the same server, a channel of the session. I/O then
    /// uses it. A session has at most one such channel.
    ///
    /// # Errors
    /// Why the channel cannot be added.
    pub async fn join_over(&self, queue_pair: Box<dyn QueuePair>) -> Result<(), WhyNotRdma> {
        self.may_join()?;
        let (arena, env) = (self.inner.arena.clone(), self.inner.env.clone());
        let failed =
            |reason: String| WhyNotRdma::ConnectFailed { address: UNKNOWN_ADDRESS, announced: false, reason };
        let joined = within(&self.inner.env, CONNECT_TIME_LIMIT, async {
            let direct = setup::rdma::over(queue_pair, arena, env, CONNECT_TIME_LIMIT)
                .await
                .map_err(|e| no_rdma(UNKNOWN_ADDRESS, false, &e))?;
            self.bind(direct, false).await
        });
        joined.await.map_err(|e| failed(e.to_string()))
    }

    /// Reports the transport and protection in use now.
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
                TransportKind::Tcp => inner.rdma_channel.lock().why_not().cloned(),
            },
        }
    }

    /// Whether the server sends a ServerGuid (MS-SMB2 2.2.4). Windows and Samba do; Linux's ksmbd does not.
    pub fn is_identified(&self) -> bool {
        self.inner.negotiated.server_guid != Guid([0; 16])
    }

    /// The counters of SMB Direct; `None` if the transport is TCP.
    pub fn counters(&self) -> Option<Counters> {
        self.inner.link().connection.direct_counters()
    }

    /// The client's performance counters: SMB Client Shares, and SMB Direct Connection if there is one.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Opens a share.
    ///
    /// # Errors
    /// [`RequestError`]; for example STATUS_BAD_NETWORK_NAME if the share does not exist.
    pub async fn tree(&self, share: &str) -> Result<Tree, RequestError> {
        Tree::connect(self, share).await
    }

    /// Lists the server's shares, including IPC$.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn shares(&self) -> Result<Vec<Share>, RequestError> {
        let tree = self.tree("IPC$").await?;
        let shares = pipe::shares(&tree, &self.inner.host).await;
        tree.disconnect().await?;
        shares
    }

    /// Ends the session: the server closes its open files. Every later request fails.
    ///
    /// # Errors
    /// [`RequestError`]; the connections are closed anyway.
    pub async fn logoff(&self) -> Result<(), RequestError> {
        let request = Request::new(Command::LOGOFF, &LogoffRequest {});
        let said = match request {
            Ok(request) => self.inner.link().connection.call(request).await.and_then(|r| r.success()),
            Err(e) => Err(e),
        };
        self.inner.close().await;
        said
    }

    /// The arena of the client's buffers.
    pub fn arena(&self) -> &Arena {
        &self.inner.arena
    }

    async fn log_on(
        host: &str,
        mut options: ConnectOptions,
        arena: Arena,
        env: Env,
        transport: ConnectedTransport,
    ) -> Result<Client, ConnectError> {
        let registry = options.counters.get_or_insert_with(|| Registry::new(env.clone())).clone();
        let guid = Guid(env.random());
        let (connection, fits) = transport.start(&options, &arena, &env);
        let negotiated = setup::negotiate(&connection, host, guid, &options, &env).await?;
        if fits.is_some() && negotiated.dialect < 0x0300 {
            return Err(ConnectError::NoRdma(Box::new(WhyNotRdma::Dialect(negotiated.dialect))));
        }
        let LoggedOn { channel } = setup::log_on(&connection, host, &options, &negotiated, &env).await?;
        let primary = Arc::new(Link::new(connection, fits, &negotiated, &options));
        let why = (options.transport == TransportChoice::Tcp).then_some(WhyNotRdma::TurnedOff);
        let client = Client {
            inner: Arc::new_cyclic(|me| Inner {
                host: host.to_owned(),
                guid,
                options,
                arena,
                env,
                negotiated,
                session: channel,
                primary,
                rdma_channel: Mutex::new(RdmaChannel::none(why)),
                binding_tried: AtomicBool::new(false),
                primary_loss_counted: AtomicBool::new(false),
                reauthentications: AtomicU64::new(0),
                reauthenticating: tokio::sync::Mutex::new(()),
                me: me.clone(),
                registry,
            }),
        };
        client.validate().await?;
        Ok(client)
    }

    /// MS-SMB2 3.2.5.5: asks the server to confirm the negotiation, if the keys do not depend on it.
    async fn validate(&self) -> Result<(), ConnectError> {
        let inner = &self.inner;
        if inner.negotiated.dialect >= 0x0311 || inner.options.dialect_max < 0x0300 {
            return Ok(());
        }
        let tree = self.tree("IPC$").await?;
        let connection = &inner.primary.connection;
        setup::validate(connection, tree.id(), inner.guid, &inner.options, &inner.negotiated).await
    }

    /// Checks whether the session may get an SMB Direct channel.
    fn may_join(&self) -> Result<(), WhyNotRdma> {
        if self.inner.negotiated.dialect < 0x0300 {
            return Err(WhyNotRdma::Dialect(self.inner.negotiated.dialect));
        }
        if self.inner.session.encrypt {
            return Err(WhyNotRdma::Encrypted);
        }
        if self.inner.may_not_bind() {
            return Err(WhyNotRdma::BoundOnce);
        }
        Ok(())
    }

    /// Finds an RDMA interface of the server, connects to it, and makes that connection a channel of the session.
    pub(crate) async fn join_rdma(&self) -> Result<(), WhyNotRdma> {
        self.may_join()?;
        if !self.inner.negotiated.server_capabilities.contains(Capabilities::MULTI_CHANNEL) {
            return Err(WhyNotRdma::NotAnnounced);
        }
        let interfaces = self.interfaces().await.map_err(|e| match e {
            RequestError::Status(status) => WhyNotRdma::InterfacesNotReported(status),
            _ => WhyNotRdma::NotAnnounced,
        })?;
        let mut why = WhyNotRdma::NotAnnounced;
        for address in candidates(&interfaces, self.inner.options.rdma_port) {
            if self.inner.may_not_bind() {
                break; // `why` holds the result of the one allowed attempt
            }
            let (arena, env) = (self.inner.arena.clone(), self.inner.env.clone());
            let attempt = async {
                let direct = setup::rdma::connect(address, arena, env, CONNECT_TIME_LIMIT)
                    .await
                    .map_err(|e| no_rdma(address, true, &e))?;
                self.bind(direct, true).await
            };
            match within(&self.inner.env, CONNECT_TIME_LIMIT, attempt).await {
                Ok(()) => return Ok(()),
                Err(ConnectError::NoRdma(reason)) => why = *reason,
                Err(e) => {
                    why = WhyNotRdma::ConnectFailed { address, announced: true, reason: e.to_string() };
                }
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
    async fn bind(&self, direct: SmbDirect, can_reconnect: bool) -> Result<(), ConnectError> {
        let inner = &self.inner;
        let (connection, fits) =
            ConnectedTransport::Direct(direct).start(&inner.options, &inner.arena, &inner.env);
        let negotiated =
            setup::negotiate(&connection, &inner.host, inner.guid, &inner.options, &inner.env).await?;
        if negotiated.dialect != inner.negotiated.dialect
            || negotiated.server_guid != inner.negotiated.server_guid
        {
            return Err(ConnectError::Refused("another server answers at this address"));
        }
        if inner.may_not_bind() {
            return Err(ConnectError::NoRdma(Box::new(WhyNotRdma::BoundOnce)));
        }
        inner.binding_tried.store(true, Ordering::Relaxed);
        setup::bind(&connection, &inner.host, &inner.options, &negotiated, &inner.session, &inner.env)
            .await?;
        let link = Link::new(connection, fits, &negotiated, &inner.options);
        if inner.rdma_channel.lock().set(link, can_reconnect) {
            Ok(())
        } else {
            Err(ConnectError::Refused("the session already has an SMB Direct channel"))
        }
    }
}

/// Placeholder address of a connection that the caller made.
const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl Inner {
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn dialect(&self) -> u16 {
        self.negotiated.dialect
    }

    /// Whether the whole session is encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.session.encrypt
    }

    /// Whether another binding would reuse nonces: see [`WhyNotRdma::BoundOnce`].
    fn may_not_bind(&self) -> bool {
        self.negotiated.signing == SigningAlgorithm::AesGmac && self.binding_tried.load(Ordering::Relaxed)
    }

    pub(crate) fn can_encrypt(&self) -> bool {
        self.session.ciphers.is_some()
    }
}
