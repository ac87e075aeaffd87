//! Options for connecting.

use std::time::Duration;

use counters::Registry;
use smb_auth::ntlm::initiate::Credentials;

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// SMB Direct if the server announces it and the connection succeeds, TCP otherwise.
    #[default]
    Auto,
    /// TCP only.
    Tcp,
    /// SMB Direct only; fails if it is unavailable.
    Rdma,
}

/// Options of one connection.
#[derive(Clone)]
pub struct ConnectOptions {
    /// User and credentials.
    pub credentials: Credentials,
    /// Which transport to use.
    pub transport: TransportChoice,
    /// TCP port.
    pub port: u16,
    /// Port of SMB Direct over iWARP.
    pub rdma_port: u16,
    /// Refuse a server that does not sign.
    pub require_signing: bool,
    /// Encrypt all messages; refuse a server that cannot.
    pub encrypt: bool,
    /// The oldest accepted dialect: 0x0202 to 0x0311.
    pub dialect_min: u16,
    /// The newest offered dialect.
    pub dialect_max: u16,
    /// Number of credits to request.
    pub credits: u16,
    /// Maximum time for connecting and logging on.
    pub connect_timeout: Duration,
    /// Maximum time for a response; each interim response restarts it.
    pub request_timeout: Duration,
    /// Payload of at least this many bytes is transferred by RDMA, if SMB Direct is in use.
    pub rdma_threshold: u32,
    /// Let the server invalidate the buffers exposed to it (SMB2_CHANNEL_RDMA_V1_INVALIDATE), which saves a work
    /// request per I/O. Otherwise the client invalidates them (SMB2_CHANNEL_RDMA_V1).
    pub remote_invalidation: bool,
    /// Where the client counts; `None` for a separate registry (see [`crate::Client::registry`]).
    pub counters: Option<Registry>,
}

impl ConnectOptions {
    /// The defaults: any transport, ports 445 and 5445, signing required, dialects 2.1 to 3.1.1.
    pub fn new(credentials: Credentials) -> ConnectOptions {
        ConnectOptions {
            credentials,
            transport: TransportChoice::Auto,
            port: 445,
            rdma_port: 5445,
            require_signing: true,
            encrypt: false,
            dialect_min: 0x0210,
            dialect_max: 0x0311,
            credits: 512,
            connect_timeout: Duration::from_secs(20),
            request_timeout: Duration::from_secs(60),
            rdma_threshold: 4096,
            remote_invalidation: true,
            counters: None,
        }
    }
}
