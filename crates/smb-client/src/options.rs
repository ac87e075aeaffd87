//! How to connect.

use std::time::Duration;

use counters::Registry;
use smb_auth::ntlm::initiate::Credentials;

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// SMB Direct where the server announces it and it connects, TCP otherwise.
    #[default]
    Auto,
    /// TCP only.
    Tcp,
    /// SMB Direct or nothing.
    Rdma,
}

/// Options of one connection.
#[derive(Clone)]
pub struct ConnectOptions {
    /// User and credentials.
    pub credentials: Credentials,
    /// Which transport.
    pub transport: TransportChoice,
    /// TCP port.
    pub port: u16,
    /// Port of SMB Direct over iWARP.
    pub rdma_port: u16,
    /// Refuse a server that does not sign.
    pub require_signing: bool,
    /// Encrypt everything; refuse a server that cannot.
    pub encrypt: bool,
    /// The oldest dialect to accept: 0x0202 to 0x0311.
    pub dialect_min: u16,
    /// The newest to offer.
    pub dialect_max: u16,
    /// Credits to ask for.
    pub credits: u16,
    /// How long connecting and logging on may take.
    pub connect_timeout: Duration,
    /// How long the server may take to answer a request; each interim response restarts this time.
    pub request_timeout: Duration,
    /// Payload from this length on goes by RDMA where there is SMB Direct, in bytes.
    pub rdma_threshold: u32,
    /// Let the server invalidate what was exposed to it (SMB2_CHANNEL_RDMA_V1_INVALIDATE), which saves a work
    /// request for each I/O; without it everything is invalidated here (SMB2_CHANNEL_RDMA_V1).
    pub remote_invalidation: bool,
    /// Where the client counts what it does; `None`: in a registry of its own (see [`crate::Client::registry`]).
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
