//! A connection and its size limits.

use arena::Arena;
use counters::{InstanceGuard, Registry};
use env::Env;
use smb_direct::SmbDirect;
use smb_wire::msg::Channel as DataChannel;
use tokio::net::TcpStream;

use crate::ConnectOptions;
use crate::connection::{Connection, Limits, Transport};
use crate::setup::Negotiated;

/// A connection and its size limits.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// Maximum bytes of READ payload in a message; `max_write` and `max_transact` are the limits of the other
    /// requests.
    pub(crate) max_read: u32,
    pub(crate) max_write: u32,
    pub(crate) max_transact: u32,
    pub(crate) direct: Option<Direct>,
}

/// The additional limits of SMB Direct.
#[derive(Clone, Copy)]
pub(crate) struct Direct {
    /// Payload of at least this many bytes is transferred by RDMA.
    pub(crate) threshold: u32,
    pub(crate) channel: DataChannel,
    /// Maximum bytes of a READ by RDMA.
    pub(crate) max_read: u32,
    pub(crate) max_write: u32,
}

/// The transport of a new connection.
pub(crate) enum ConnectedTransport {
    Tcp(TcpStream),
    Direct(SmbDirect),
}

impl ConnectedTransport {
    /// Starts the connection's task. For SMB Direct, also returns the limits of its messages.
    pub(crate) fn start(
        self,
        options: &ConnectOptions,
        arena: &Arena,
        env: &Env,
    ) -> (Connection, Option<smb_direct::Limits>) {
        let limits = Limits { credits: options.credits.max(1), request_timeout: options.request_timeout };
        let (transport, fits, counted) = match self {
            ConnectedTransport::Tcp(stream) => (Transport::tcp(stream, arena.clone()), None, None),
            ConnectedTransport::Direct(direct) => {
                let fits = direct.limits();
                let counted = options.counters.as_ref().map(|r| count(r, &direct));
                (Transport::direct(direct), Some(fits), counted)
            }
        };
        (Connection::start(transport, limits, arena.clone(), env.clone(), counted), fits)
    }
}

/// Adds the connection to the performance counters, named by its two addresses.
fn count(registry: &Registry, direct: &SmbDirect) -> InstanceGuard {
    let [local, remote] = match direct.addresses() {
        Some((local, remote)) => [local.to_string(), remote.to_string()],
        None => ["-", "-"].map(str::to_owned),
    };
    let opened = registry.direct.open(&format!("{local}/{remote}"), &[&local, &remote]);
    opened.instance().join(direct.tally());
    opened
}

impl Link {
    pub(crate) fn new(
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
        // Payload without RDMA is sent in messages, whose size is limited.
        let send = fits.max_fragmented_send_size.saturating_sub(MESSAGE_OVERHEAD);
        let receive = fits.max_fragmented_receive_size.saturating_sub(MESSAGE_OVERHEAD);
        // MS-SMB2 3.2.4.6: remote invalidation from 3.0.2 on.
        let remote = n.dialect >= 0x0302 && options.remote_invalidation;
        let channel = if remote { DataChannel::RDMA_V1_INVALIDATE } else { DataChannel::RDMA_V1 };
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

/// Reserve for the part of a message that is not payload, in bytes. Our servers reserve the same, and every peer
/// reassembles at least twice this (MS-SMBD 3.1.5.2).
const MESSAGE_OVERHEAD: u32 = 65_536;
