//! The options of an SMB Direct connection, the negotiated values, and its counters.

use std::time::Duration;

use counters::{Block, transfers as t};

/// Limits and timers of one connection. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct SmbDirectOptions {
    /// Maximum number of posted receive buffers, and so of credits that the peer holds; at least 1. The current
    /// number depends on the peer's use and on the arena (see [`crate::SmbDirect::set_credit_target`]).
    pub receive_credit_max: u16,
    /// Receive buffers posted initially; the number grows when the peer uses all of them.
    pub receive_credit_target: u16,
    /// Credits requested from the peer.
    pub send_credit_target: u16,
    /// The longest message that this side sends; the peer's receive size lowers it.
    pub max_send_size: u32,
    /// The longest message that this side receives, and the size of a receive buffer. The peer's preferred send
    /// size lowers it.
    pub max_receive_size: u32,
    /// The longest upper-layer message that this side receives, in fragments; at least 131,072. The default allows
    /// a WRITE of 1 MiB with its headers, encrypted or not.
    pub max_fragmented_size: u32,
    /// The longest RDMA transfer of one request.
    pub max_read_write_size: u32,
    /// Maximum number of upper-layer messages queued by [`crate::SmbDirect::send`].
    pub max_queued_messages: usize,
    /// Maximum number of unfinished [`crate::SmbDirect::rdma_write`] requests, and of unfinished
    /// [`crate::SmbDirect::rdma_read`] requests.
    pub max_queued_transfers: usize,
    /// Maximum duration of the negotiation (MS-SMBD 3.1.2.1).
    pub negotiate_timeout: Duration,
    /// Idle time of the peer after which this side sends it a keep-alive (MS-SMBD 3.1.2.2).
    pub idle_timeout: Duration,
    /// Maximum time for the peer's answer to the keep-alive.
    pub keepalive_timeout: Duration,
    /// Delay of a grant without data, so that a message can carry it; applies unless the peer is known to wait for
    /// the grant.
    pub grant_delay: Duration,
    /// How long this side keeps its last credit for a grant to the peer, while the peer still has credits.
    pub last_credit_delay: Duration,
    /// Maximum time for the fabric to finish after the connection is closed.
    pub close_timeout: Duration,
}

impl Default for SmbDirectOptions {
    fn default() -> SmbDirectOptions {
        SmbDirectOptions {
            receive_credit_max: 255,
            receive_credit_target: 4,
            send_credit_target: 255,
            max_send_size: 8192,
            max_receive_size: 4096,
            max_fragmented_size: (1 << 20) + (64 << 10),
            max_read_write_size: 8 << 20,
            max_queued_messages: 8192,
            max_queued_transfers: 8192,
            negotiate_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            keepalive_timeout: Duration::from_secs(5),
            grant_delay: Duration::from_millis(50),
            last_credit_delay: Duration::from_secs(1),
            close_timeout: Duration::from_secs(5),
        }
    }
}

impl SmbDirectOptions {
    /// Options of a server. It detects a vanished client within a minute, as over TCP, because other clients wait
    /// for the files that it has open. MS-SMBD 3.1.1.1 has 120 s for the idle connection timer.
    pub fn server() -> SmbDirectOptions {
        SmbDirectOptions { idle_timeout: Duration::from_secs(25), ..SmbDirectOptions::default() }
    }
}

/// The negotiated limits, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest single message that this side sends.
    pub max_send_size: u32,
    /// The longest single message that this side receives.
    pub max_receive_size: u32,
    /// The longest upper-layer message that this side may send.
    pub max_fragmented_send_size: u32,
    /// The longest upper-layer message that the peer may send.
    pub max_fragmented_receive_size: u32,
    /// The longest RDMA transfer of one request.
    pub max_read_write_size: u32,
}

/// The counters of a connection since its start, under the names of Windows' "SMB Direct Connection" counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends: single messages, fragments and grants.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Bytes Sent, including headers, excluding RDMA.
    pub bytes_sent: u64,
    /// Bytes Received, including headers, excluding RDMA.
    pub bytes_received: u64,
    /// Bytes RDMA Written: by us into the peer's memory.
    pub bytes_rdma_written: u64,
    /// Bytes RDMA Read: by us from the peer's memory.
    pub bytes_rdma_read: u64,
    /// RDMA Registrations: buffers exposed to the peer.
    pub rdma_registrations: u64,
    /// Remote Invalidations: buffers that the peer's Send invalidated.
    pub remote_invalidations: u64,
    /// Invalidations by this side.
    pub local_invalidations: u64,
    /// Memory Regions: buffers currently exposed.
    pub memory_regions: u64,
    /// Stalls (Send Credit): how often sending stopped because no credit was left.
    pub stalls_send_credit: u64,
    /// Stalls (Send Queue): how often the queue pair accepted no more work requests.
    pub stalls_send_queue: u64,
    /// Stalls (RDMA Registrations): how often a buffer could not be exposed.
    pub stalls_rdma_registrations: u64,
    /// Stalls (RDMA Read): how often an RDMA Read waited for an earlier one (ORD).
    pub stalls_rdma_read: u64,
    /// How often the arena had no buffer for a receive, so that the peer's credits shrank.
    pub stalls_receive_memory: u64,
    /// The posted work requests.
    pub work_requests: WorkRequests,
}

/// Work requests that the queue pair accepted, by kind; all zero if its provider does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkRequests {
    /// Send.
    pub send: u64,
    /// Send with Invalidate.
    pub send_invalidate: u64,
    /// RDMA Read.
    pub rdma_read: u64,
    /// RDMA Write.
    pub rdma_write: u64,
    /// Receive.
    pub receive: u64,
    /// Memory registration: a buffer was exposed.
    pub register: u64,
    /// Local invalidation.
    pub local_invalidate: u64,
}

impl Counters {
    /// Reads the counters of a connection's block.
    pub fn of(block: &Block) -> Counters {
        Counters {
            sends: block.get(t::SENDS),
            receives: block.get(t::RECEIVES),
            bytes_sent: block.get(t::SENT_BYTES),
            bytes_received: block.get(t::RECEIVED_BYTES),
            bytes_rdma_written: block.get(t::RDMA_WRITTEN_BYTES),
            bytes_rdma_read: block.get(t::RDMA_READ_BYTES),
            rdma_registrations: block.get(t::REGISTRATIONS),
            remote_invalidations: block.get(t::REMOTE_INVALIDATIONS),
            local_invalidations: block.get(t::LOCAL_INVALIDATIONS),
            memory_regions: block.get(t::MEMORY_REGIONS),
            stalls_send_credit: block.get(t::STALLS_SEND_CREDIT),
            stalls_send_queue: block.get(t::STALLS_SEND_QUEUE),
            stalls_rdma_registrations: block.get(t::STALLS_REGISTRATION),
            stalls_rdma_read: block.get(t::STALLS_RDMA_READ),
            stalls_receive_memory: block.get(t::STALLS_RECEIVE_MEMORY),
            work_requests: WorkRequests {
                send: block.get(t::WR_SEND),
                send_invalidate: block.get(t::WR_SEND_INVALIDATE),
                rdma_read: block.get(t::WR_READ),
                rdma_write: block.get(t::WR_WRITE),
                receive: block.get(t::WR_RECEIVE),
                register: block.get(t::WR_REGISTER),
                local_invalidate: block.get(t::WR_LOCAL_INVALIDATE),
            },
        }
    }
}
