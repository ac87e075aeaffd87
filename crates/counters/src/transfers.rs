//! The counters of an RDMA connection: work requests of its provider, and its use by SMB Direct.

use crate::Cell;

macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident = $at:literal;)*) => {
        $($(#[$doc])* pub const $name: Cell = Cell($at);)*
    };
}

cells! {
    /// Work requests posted: Send.
    WR_SEND = 0;
    /// Work requests posted: Send with Invalidate.
    WR_SEND_INVALIDATE = 1;
    /// Work requests posted: RDMA Read.
    WR_READ = 2;
    /// Work requests posted: RDMA Write.
    WR_WRITE = 3;
    /// Work requests posted: receive.
    WR_RECEIVE = 4;
    /// Work requests posted: memory registration, which exposes a buffer to the peer.
    WR_REGISTER = 5;
    /// Work requests posted: local invalidation.
    WR_LOCAL_INVALIDATE = 6;
    /// Bytes received from the fabric, headers included.
    IN_BYTES = 7;
    /// Bytes sent to the fabric, headers included.
    OUT_BYTES = 8;
    /// Frames (iWARP: FPDUs) received.
    IN_FRAMES = 9;
    /// Frames (iWARP: FPDUs) built for sending.
    OUT_FRAMES = 10;
    /// Connections that the provider accepted; shared.
    ACCEPTED = 11;
    /// Connections that the provider initiated; shared.
    INITIATED = 12;
    /// Failed connection attempts; shared.
    FAILED_ATTEMPTS = 13;
    /// Connections that ended with an error; shared.
    CONNECTION_ERRORS = 14;
    /// Current connections; shared.
    ACTIVE = 15;
    /// SMB Direct messages sent, including fragments and messages that only grant credits.
    SENDS = 16;
    /// SMB Direct messages received.
    RECEIVES = 17;
    /// Bytes of the SMB Direct messages sent.
    SENT_BYTES = 18;
    /// Bytes of the SMB Direct messages received.
    RECEIVED_BYTES = 19;
    /// Bytes written into the peer's memory.
    RDMA_WRITTEN_BYTES = 20;
    /// Bytes read from the peer's memory.
    RDMA_READ_BYTES = 21;
    /// Buffers exposed to the peer.
    REGISTRATIONS = 22;
    /// Buffers whose tag the peer invalidated.
    REMOTE_INVALIDATIONS = 23;
    /// Buffers whose tag was invalidated here.
    LOCAL_INVALIDATIONS = 24;
    /// Buffers currently exposed.
    MEMORY_REGIONS = 25;
    /// How often sending stopped for lack of a send credit.
    STALLS_SEND_CREDIT = 26;
    /// How often the queue pair's send queue was full.
    STALLS_SEND_QUEUE = 27;
    /// How often no buffer could be exposed because the limit was reached.
    STALLS_REGISTRATION = 28;
    /// How often an RDMA Read waited for an earlier one.
    STALLS_RDMA_READ = 29;
    /// How often there was no memory for a receive.
    STALLS_RECEIVE_MEMORY = 30;
}
