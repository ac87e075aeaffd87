//! The cells of an RDMA connection: what its provider posts, and what SMB Direct does with it.

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
    /// Bytes that came from the fabric, headers included.
    IN_BYTES = 7;
    /// Bytes that went to the fabric, headers included.
    OUT_BYTES = 8;
    /// Frames (iWARP: FPDUs) that came.
    IN_FRAMES = 9;
    /// Frames (iWARP: FPDUs) made to be sent.
    OUT_FRAMES = 10;
    /// Connections that the provider accepted; shared.
    ACCEPTED = 11;
    /// Connections that the provider initiated; shared.
    INITIATED = 12;
    /// Connections that do not come about; shared.
    FAILED_ATTEMPTS = 13;
    /// Connections that ended with an error; shared.
    CONNECTION_ERRORS = 14;
    /// Connections now; shared.
    ACTIVE = 15;
    /// SMB Direct messages sent: fragments and grants alike.
    SENDS = 16;
    /// SMB Direct messages received.
    RECEIVES = 17;
    /// Bytes of these sent.
    SENT_BYTES = 18;
    /// Bytes of these received.
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
    /// Buffers exposed now.
    MEMORY_REGIONS = 25;
    /// Times that sending stopped for want of a credit.
    STALLS_SEND_CREDIT = 26;
    /// Times that the queue pair took no more work requests.
    STALLS_SEND_QUEUE = 27;
    /// Times that no buffer could be exposed because too many were.
    STALLS_REGISTRATION = 28;
    /// Times that an RDMA Read waited for one before it.
    STALLS_RDMA_READ = 29;
    /// Times that there was no memory for a receive.
    STALLS_RECEIVE_MEMORY = 30;
}
