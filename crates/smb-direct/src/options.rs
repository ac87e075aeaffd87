//! The options of an SMB Direct connection, the negotiated values, and its counters.

use std::time::Duration;

use counters::{Block, transfers as t};

/// Limits and timers of one connection. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct SmbDirectOptions {
    /// The most receive buffers that are posted, so the most credits that the peer holds; at least 1. How many are
    /// posted at a time depends on what the peer uses and on the arena (see [`crate::SmbDirect::set_credit_target`]).
    pub receive_credit_max: u16,
    /// Receive buffers posted at the start; more follow when the peer uses these up.
    pub receive_credit_target: u16,
    /// Credits asked of the peer.
    pub send_credit_target: u16,
    /// The longest message sent; the peer's receive size lowers it.
    pub max_send_size: u32,
    /// The longest message received: the size of a receive buffer. The peer's preferred send size lowers it.
    pub max_receive_size: u32,
    /// The longest upper-layer message received, in fragments; at least 131,072. The default holds a WRITE of 1 MiB
    /// with the headers before its payload, encrypted or not.
    pub max_fragmented_size: u32,
    /// The longest RDMA transfer for one request.
    pub max_read_write_size: u32,
    /// Upper-layer messages that [`crate::SmbDirect::send`] queues.
    pub max_queued_messages: usize,
    /// RDMA requests that [`crate::SmbDirect::rdma_write`] and [`crate::SmbDirect::rdma_read`] have unfinished, each
    /// kind.
    pub max_queued_transfers: usize,
    /// How long negotiation may take (MS-SMBD 3.1.2.1).
    pub negotiate_timeout: Duration,
    /// Silence of the peer after which a keep-alive is sent to it (MS-SMBD 3.1.2.2).
    pub idle_timeout: Duration,
    /// How long the peer may take to answer the keep-alive.
    pub keepalive_timeout: Duration,
    /// How long a grant is delayed, in case a message can carry it, when the peer is not known to wait for it.
    pub grant_delay: Duration,
    /// How long the last credit is kept for a peer that may need a grant, while that peer has credits.
    pub last_credit_delay: Duration,
    /// How long the fabric may take to finish once the connection is closed.
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
    /// The options of a server: a client that vanished is noticed within a minute, as over TCP, because others wait for
    /// the files that it has open. MS-SMBD 3.1.1.1 has 120 s for the idle connection timer.
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
    /// The longest RDMA transfer for one request.
    pub max_read_write_size: u32,
}

/// The counters of a connection since its start, under the names of Windows' "SMB Direct Connection" counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sends: single messages, fragments and grants alike.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Bytes Sent, headers included, without RDMA.
    pub bytes_sent: u64,
    /// Bytes Received, headers included, without RDMA.
    pub bytes_received: u64,
    /// Bytes RDMA Written, by us into the peer's memory.
    pub bytes_rdma_written: u64,
    /// Bytes RDMA Read, by us from the peer's memory.
    pub bytes_rdma_read: u64,
    /// RDMA Registrations: buffers exposed to the peer.
    pub rdma_registrations: u64,
    /// Remote Invalidations: buffers that the peer's Send invalidated.
    pub remote_invalidations: u64,
    /// Invalidations that we did ourselves.
    pub local_invalidations: u64,
    /// Memory Regions: buffers exposed now.
    pub memory_regions: u64,
    /// Stalls (Send Credit): times that sending stopped because no credit was left.
    pub stalls_send_credit: u64,
    /// Stalls (Send Queue): times that the queue pair took no more work requests.
    pub stalls_send_queue: u64,
    /// Stalls (RDMA Registrations): times that a buffer could not be exposed.
    pub stalls_rdma_registrations: u64,
    /// Stalls (RDMA Read): times that an RDMA Read waited for one before it (ORD).
    pub stalls_rdma_read: u64,
    /// Times that the arena had no buffer for a receive, so the peer's credits shrank.
    pub stalls_receive_memory: u64,
    /// The work requests posted for all this.
    pub work_requests: WorkRequests,
}

/// Work requests that a queue pair took, by kind; none where its provider does not count them.
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
    /// Memory registration: a buffer exposed.
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
