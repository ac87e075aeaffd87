//! SMB Direct Connection.

use super::{Counter, Formula, Metric, Set, Unit, count, counter, gauge};
use crate::transfers as t;
use Unit::{Bytes, Count};

static METRICS: [Metric; 15] = [
    count("sends", Count, |v, _| v[t::SENDS.0 as usize], "SMB Direct messages sent"),
    count("receives", Count, |v, _| v[t::RECEIVES.0 as usize], "SMB Direct messages received"),
    count("sent_bytes", Bytes, |v, _| v[t::SENT_BYTES.0 as usize], "Bytes of SMB Direct messages sent"),
    count(
        "received_bytes",
        Bytes,
        |v, _| v[t::RECEIVED_BYTES.0 as usize],
        "Bytes of SMB Direct messages received",
    ),
    count(
        "rdma_written_bytes",
        Bytes,
        |v, _| v[t::RDMA_WRITTEN_BYTES.0 as usize],
        "Bytes written into the peer's memory",
    ),
    count(
        "rdma_read_bytes",
        Bytes,
        |v, _| v[t::RDMA_READ_BYTES.0 as usize],
        "Bytes read from the peer's memory",
    ),
    count("rdma_registrations", Count, |v, _| v[t::REGISTRATIONS.0 as usize], "Buffers exposed to the peer"),
    count(
        "remote_invalidations",
        Count,
        |v, _| v[t::REMOTE_INVALIDATIONS.0 as usize],
        "Buffers whose steering tag the peer invalidated",
    ),
    count(
        "local_invalidations",
        Count,
        |v, _| v[t::LOCAL_INVALIDATIONS.0 as usize],
        "Buffers whose steering tag this side invalidated",
    ),
    gauge("memory_regions", |v, _| v[t::MEMORY_REGIONS.0 as usize], "Buffers exposed to the peer now"),
    count(
        "stalls_send_credit",
        Count,
        |v, _| v[t::STALLS_SEND_CREDIT.0 as usize],
        "Times that sending stopped because the peer had granted no credit",
    ),
    count(
        "stalls_send_queue",
        Count,
        |v, _| v[t::STALLS_SEND_QUEUE.0 as usize],
        "Times that the send queue was full",
    ),
    count(
        "stalls_rdma_registration",
        Count,
        |v, _| v[t::STALLS_REGISTRATION.0 as usize],
        "Times that a request waited because the maximum number of buffers was exposed",
    ),
    count(
        "stalls_rdma_read",
        Count,
        |v, _| v[t::STALLS_RDMA_READ.0 as usize],
        "Times that an RDMA Read waited because the connection allowed no more outstanding ones (ORD)",
    ),
    count(
        "stalls_receive_memory",
        Count,
        |v, _| v[t::STALLS_RECEIVE_MEMORY.0 as usize],
        "Times that payload memory had no space for a receive buffer",
    ),
];

/// Work requests by kind, for a connection or a provider.
pub(super) static WORK_REQUESTS: [Metric; 7] = [
    count("work_requests_send", Count, |v, _| v[t::WR_SEND.0 as usize], "Sends posted"),
    count(
        "work_requests_send_invalidate",
        Count,
        |v, _| v[t::WR_SEND_INVALIDATE.0 as usize],
        "Sends with Invalidate posted",
    ),
    count("work_requests_rdma_read", Count, |v, _| v[t::WR_READ.0 as usize], "RDMA Reads posted"),
    count("work_requests_rdma_write", Count, |v, _| v[t::WR_WRITE.0 as usize], "RDMA Writes posted"),
    count("work_requests_receive", Count, |v, _| v[t::WR_RECEIVE.0 as usize], "Receives posted"),
    count(
        "work_requests_register",
        Count,
        |v, _| v[t::WR_REGISTER.0 as usize],
        "Memory registrations posted",
    ),
    count(
        "work_requests_local_invalidate",
        Count,
        |v, _| v[t::WR_LOCAL_INVALIDATE.0 as usize],
        "Local invalidations posted",
    ),
];

static COUNTERS: [Counter; 15] = [
    counter(
        "Bytes RDMA Read/sec",
        Formula::Rate(&["rdma_read_bytes"]),
        "B/s",
        "Bytes read from the peer's memory by RDMA Read",
    ),
    counter(
        "Bytes RDMA Written/sec",
        Formula::Rate(&["rdma_written_bytes"]),
        "B/s",
        "Bytes written into the peer's memory by RDMA Write",
    ),
    counter(
        "Bytes Received/sec",
        Formula::Rate(&["received_bytes"]),
        "B/s",
        "Bytes of SMB Direct messages received, without RDMA",
    ),
    counter(
        "Bytes Sent/sec",
        Formula::Rate(&["sent_bytes"]),
        "B/s",
        "Bytes of SMB Direct messages sent, without RDMA",
    ),
    counter(
        "Receives/sec",
        Formula::Rate(&["receives"]),
        "1/s",
        "SMB Direct messages received, including fragments and credit grants",
    ),
    counter(
        "Sends/sec",
        Formula::Rate(&["sends"]),
        "1/s",
        "SMB Direct messages sent, including fragments and credit grants",
    ),
    counter(
        "RDMA Registrations/sec",
        Formula::Rate(&["rdma_registrations"]),
        "1/s",
        "Buffers exposed to the peer",
    ),
    counter(
        "Remote Invalidations/sec",
        Formula::Rate(&["remote_invalidations"]),
        "1/s",
        "Buffers whose steering tag the peer invalidated (Send with Invalidate)",
    ),
    counter(
        "Local Invalidations/sec",
        Formula::Rate(&["local_invalidations"]),
        "1/s",
        "Buffers whose steering tag this side invalidated; not a counter of Windows",
    ),
    counter("Memory Regions", Formula::Value(&["memory_regions"]), "", "Buffers exposed to the peer now"),
    counter(
        "Stalls (Send Credit)/sec",
        Formula::Rate(&["stalls_send_credit"]),
        "1/s",
        "Times that sending stopped because the peer had granted no credit",
    ),
    counter(
        "Stalls (Send Queue)/sec",
        Formula::Rate(&["stalls_send_queue"]),
        "1/s",
        "Times that sending stopped because the queue pair accepted no more work requests",
    ),
    counter(
        "Stalls (RDMA Registrations)/sec",
        Formula::Rate(&["stalls_rdma_registration"]),
        "1/s",
        "Times that a request waited because the maximum number of buffers was exposed",
    ),
    counter(
        "Stalls (RDMA Read)/sec",
        Formula::Rate(&["stalls_rdma_read"]),
        "1/s",
        "Times that an RDMA Read waited because the connection allowed no more outstanding ones (ORD)",
    ),
    counter(
        "Stalls (Receive Memory)/sec",
        Formula::Rate(&["stalls_receive_memory"]),
        "1/s",
        "Times that payload memory had no space for a receive buffer, so that the peer got fewer credits; not a counter of Windows",
    ),
];

pub(super) static WORK_COUNTERS: [Counter; 7] = [
    counter(
        "Work Requests (Send)/sec",
        Formula::Rate(&["work_requests_send"]),
        "1/s",
        "Sends posted to the provider; not a counter of Windows",
    ),
    counter(
        "Work Requests (Send with Invalidate)/sec",
        Formula::Rate(&["work_requests_send_invalidate"]),
        "1/s",
        "Sends with Invalidate posted; not a counter of Windows",
    ),
    counter(
        "Work Requests (RDMA Read)/sec",
        Formula::Rate(&["work_requests_rdma_read"]),
        "1/s",
        "RDMA Reads posted; not a counter of Windows",
    ),
    counter(
        "Work Requests (RDMA Write)/sec",
        Formula::Rate(&["work_requests_rdma_write"]),
        "1/s",
        "RDMA Writes posted; not a counter of Windows",
    ),
    counter(
        "Work Requests (Receive)/sec",
        Formula::Rate(&["work_requests_receive"]),
        "1/s",
        "Receives posted; not a counter of Windows",
    ),
    counter(
        "Work Requests (Register)/sec",
        Formula::Rate(&["work_requests_register"]),
        "1/s",
        "Memory registrations posted, each exposing a buffer; not a counter of Windows",
    ),
    counter(
        "Work Requests (Local Invalidate)/sec",
        Formula::Rate(&["work_requests_local_invalidate"]),
        "1/s",
        "Local invalidations posted; not a counter of Windows",
    ),
];

/// One instance per SMB Direct connection.
pub static DIRECT: Set = Set {
    name: "SMB Direct Connection",
    instances: "a connection: local IP:port/remote IP:port",
    prefix: "causeway_smb_direct",
    labels: &["local", "remote"],
    metrics: &[&METRICS, &WORK_REQUESTS],
    counters: &[&COUNTERS, &WORK_COUNTERS],
    absent: &[
        (
            "SCQ Notification Events/sec",
            "providers in user space are polled: there are no completion notifications",
        ),
        (
            "RCQ Notification Events/sec",
            "providers in user space are polled: there are no completion notifications",
        ),
    ],
};
