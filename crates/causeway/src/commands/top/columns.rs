//! The tables' columns: which counter each shows, how it is scaled, and what it means.

use counters::levels::{DISK_CAPACITY, POOL_CAPACITY, SPACE_CAPACITY};
use counters::{Counter, Formula, Set, find};

/// A column to the right of the name.
pub(super) struct Column {
    /// The name in JSON; ends with the unit.
    pub(super) key: &'static str,
    /// The heading on the screen.
    pub(super) title: &'static str,
    pub(super) source: Source,
    /// The factor from the counter's unit to the column's unit.
    pub(super) scale: f64,
}

/// Where a column's values come from.
pub(super) enum Source {
    /// A counter of Windows, by its name in the table's set.
    Windows(&'static str),
    /// A counter computed only for this view from the set's metrics.
    Own(Counter),
    /// A counter of another set, of the instance with the same name.
    Beside(&'static Set, &'static str),
    /// A value of the list of sessions, with its definition.
    Listed(Listed, &'static str),
}

/// A fact from the list of sessions.
#[derive(Clone, Copy)]
pub(super) enum Listed {
    Opens,
    Dialect,
    Protection,
    IdleSeconds,
}

/// The tables, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Shares,
    Sessions,
    Direct,
    Rdma,
    Pools,
    Spaces,
    Disks,
    Jobs,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind::Shares,
    Kind::Sessions,
    Kind::Direct,
    Kind::Rdma,
    Kind::Pools,
    Kind::Spaces,
    Kind::Disks,
    Kind::Jobs,
];

/// The tables that one screen shows, as indices into [`KINDS`]: those of SMB, and those of storage.
pub(super) fn page(table: usize) -> std::ops::Range<usize> {
    if table < 4 { 0..4 } else { 4..KINDS.len() }
}

impl Kind {
    /// The set of counters of Windows.
    pub(super) fn set(self) -> &'static Set {
        let name = match self {
            Kind::Shares => "SMB Server Shares",
            Kind::Sessions => "SMB Server Sessions",
            Kind::Direct => "SMB Direct Connection",
            Kind::Rdma => "RDMA Activity",
            Kind::Pools => "Storage Pool",
            Kind::Spaces => "Storage Spaces Virtual Disk",
            Kind::Disks => "PhysicalDisk",
            Kind::Jobs => "Storage Jobs",
        };
        find(name)[0]
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::Shares => "Shares",
            Kind::Sessions => "Sessions",
            Kind::Direct => "SMB Direct",
            Kind::Rdma => "RDMA Activity",
            Kind::Pools => "Pools",
            Kind::Spaces => "Virtual disks",
            Kind::Disks => "Disks",
            Kind::Jobs => "Jobs",
        }
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Kind::Shares => &SHARES,
            Kind::Sessions => &SESSIONS,
            Kind::Direct => &DIRECT,
            Kind::Rdma => &RDMA,
            Kind::Pools => &POOLS,
            Kind::Spaces => &SPACES,
            Kind::Disks => &DISKS,
            Kind::Jobs => &JOB,
        }
    }

    /// Whether its first row is the sum of all.
    pub(super) fn has_total(self) -> bool {
        matches!(self, Kind::Shares | Kind::Direct | Kind::Spaces | Kind::Disks)
    }
}

impl Column {
    /// Its counter; `None` for a value from the list of sessions.
    pub(super) fn counter(&self, set: &'static Set) -> Option<&Counter> {
        match &self.source {
            Source::Windows(name) => set.counters().find(|c| c.name == *name),
            Source::Beside(set, name) => set.counters().find(|c| c.name == *name),
            Source::Own(counter) => Some(counter),
            Source::Listed(..) => None,
        }
    }

    /// Its meaning: the name and the definition of the counter.
    pub(super) fn meaning(&self, set: &'static Set) -> (&'static str, &'static str) {
        match &self.source {
            Source::Windows(name) | Source::Beside(_, name) => {
                (name, self.counter(set).map_or("", |c| c.definition))
            }
            Source::Own(counter) => ("", counter.definition),
            Source::Listed(_, definition) => ("", definition),
        }
    }
}

const fn count(key: &'static str, title: &'static str, name: &'static str) -> Column {
    Column { key, title, source: Source::Windows(name), scale: 1.0 }
}

/// Decimal megabytes, as in VMFleet.
const fn megabytes(key: &'static str, title: &'static str, name: &'static str) -> Column {
    Column { key, title, source: Source::Windows(name), scale: 1e-6 }
}

const fn milliseconds(key: &'static str, title: &'static str, name: &'static str) -> Column {
    Column { key, title, source: Source::Windows(name), scale: 1e3 }
}

/// Decimal gigabytes of capacity.
const fn gigabytes(key: &'static str, title: &'static str, set: &'static Set, name: &'static str) -> Column {
    Column { key, title, source: Source::Beside(set, name), scale: 1e-9 }
}

const fn listed(key: &'static str, title: &'static str, what: Listed, definition: &'static str) -> Column {
    Column { key, title, source: Source::Listed(what, definition), scale: 1.0 }
}

const fn own(
    key: &'static str,
    title: &'static str,
    formula: Formula,
    scale: f64,
    definition: &'static str,
) -> Column {
    let counter = Counter { name: "", formula, unit: "", definition };
    Column { key, title, source: Source::Own(counter), scale }
}

static SHARES: [Column; 17] = [
    count("iops", "IOPS", "Data Requests/sec"),
    count("reads_per_s", "Reads", "Read Requests/sec"),
    count("writes_per_s", "Writes", "Write Requests/sec"),
    megabytes("read_mb_per_s", "RdMB/s", "Read Bytes/sec"),
    megabytes("write_mb_per_s", "WrMB/s", "Write Bytes/sec"),
    milliseconds("read_ms", "Rd ms", "Avg. sec/Read"),
    milliseconds("write_ms", "Wr ms", "Avg. sec/Write"),
    count("queue", "Queue", "Avg. Data Queue Length"),
    RDMA_SHARE,
    megabytes("data_mb_per_s", "MB/s", "Data Bytes/sec"),
    megabytes("received_mb_per_s", "RcMB/s", "Received Bytes/sec"),
    megabytes("sent_mb_per_s", "SnMB/s", "Sent Bytes/sec"),
    count("metadata_per_s", "Meta", "Metadata Requests/sec"),
    milliseconds("request_ms", "Req ms", "Avg. sec/Request"),
    count("pending", "Pend", "Current Pending Requests"),
    count("open_files", "Files", "Current Open File Count"),
    count("tree_connects", "Trees", "Tree Connect Count"),
];

static SESSIONS: [Column; 13] = [
    count("iops", "IOPS", "Data Requests/sec"),
    megabytes("read_mb_per_s", "RdMB/s", "Read Bytes/sec"),
    megabytes("write_mb_per_s", "WrMB/s", "Write Bytes/sec"),
    milliseconds("read_ms", "Rd ms", "Avg. sec/Read"),
    milliseconds("write_ms", "Wr ms", "Avg. sec/Write"),
    count("queue", "Queue", "Avg. Data Queue Length"),
    RDMA_SHARE,
    listed("opens", "Files", Listed::Opens, "Files and directories open now"),
    listed("dialect", "SMB", Listed::Dialect, "Dialect"),
    listed("protection", "Prot", Listed::Protection, "Requests are signed or encrypted"),
    listed("idle_s", "Idle s", Listed::IdleSeconds, "Time since the last request, in seconds"),
    count("metadata_per_s", "Meta", "Metadata Requests/sec"),
    count("pending", "Pend", "Current Pending Requests"),
];

/// The column of shares and sessions.
const RDMA_SHARE: Column = own(
    "rdma_percent",
    "RDMA%",
    Formula::Average(&["read_direct_bytes", "write_direct_bytes"], &["read_bytes", "write_bytes"]),
    1e2,
    "Payload sent by RDMA, of all payload read and written, in percent",
);

static DIRECT: [Column; 17] = [
    count("sends_per_s", "Sends", "Sends/sec"),
    count("receives_per_s", "Recvs", "Receives/sec"),
    megabytes("rdma_read_mb_per_s", "RRdMB", "Bytes RDMA Read/sec"),
    megabytes("rdma_written_mb_per_s", "RWrMB", "Bytes RDMA Written/sec"),
    count("registrations_per_s", "Regs", "RDMA Registrations/sec"),
    count("remote_invalidations_per_s", "RemInv", "Remote Invalidations/sec"),
    own("stalls_per_s", "Stalls", Formula::Rate(STALLS), 1.0, "Stalls of all kinds"),
    count("stalls_send_credit_per_s", "StCred", "Stalls (Send Credit)/sec"),
    count("stalls_send_queue_per_s", "StSend", "Stalls (Send Queue)/sec"),
    count("stalls_registration_per_s", "StReg", "Stalls (RDMA Registrations)/sec"),
    count("stalls_rdma_read_per_s", "StRead", "Stalls (RDMA Read)/sec"),
    count("stalls_receive_memory_per_s", "StMem", "Stalls (Receive Memory)/sec"),
    count("rdma_reads_per_s", "RReads", "Work Requests (RDMA Read)/sec"),
    count("rdma_writes_per_s", "RWrite", "Work Requests (RDMA Write)/sec"),
    count("memory_regions", "MRs", "Memory Regions"),
    megabytes("received_mb_per_s", "RcMB/s", "Bytes Received/sec"),
    megabytes("sent_mb_per_s", "SnMB/s", "Bytes Sent/sec"),
];

const STALLS: &[&str] = &[
    "stalls_send_credit",
    "stalls_send_queue",
    "stalls_rdma_registration",
    "stalls_rdma_read",
    "stalls_receive_memory",
];

/// Stalls because SMB Direct send credits were missing, for the header.
pub(super) const CREDIT_STALLS: &str = "Stalls (Send Credit)/sec";

static RDMA: [Column; 16] = [
    count("active_connections", "Active", "RDMA Active Connections"),
    megabytes("inbound_mb_per_s", "InMB/s", "RDMA Inbound Bytes/sec"),
    megabytes("outbound_mb_per_s", "OutMB", "RDMA Outbound Bytes/sec"),
    count("inbound_frames_per_s", "InFrm", "RDMA Inbound Frames/sec"),
    count("outbound_frames_per_s", "OutFrm", "RDMA Outbound Frames/sec"),
    count("rdma_reads_per_s", "RReads", "Work Requests (RDMA Read)/sec"),
    count("rdma_writes_per_s", "RWrite", "Work Requests (RDMA Write)/sec"),
    count("connection_errors", "Errors", "RDMA Connection Errors"),
    count("failed_attempts", "Failed", "RDMA Failed Connection Attempts"),
    count("accepted_connections", "Accept", "RDMA Accepted Connections"),
    count("initiated_connections", "Initi", "RDMA Initiated Connections"),
    count("sends_per_s", "Sends", "Work Requests (Send)/sec"),
    count("sends_invalidate_per_s", "SndInv", "Work Requests (Send with Invalidate)/sec"),
    count("receives_per_s", "Recvs", "Work Requests (Receive)/sec"),
    count("registrations_per_s", "Regs", "Work Requests (Register)/sec"),
    count("local_invalidations_per_s", "LocInv", "Work Requests (Local Invalidate)/sec"),
];

/// The columns of pools, virtual disks and disks, with `more` columns at the end.
macro_rules! storage {
    ($($more:expr),*) => {
        [
            count("iops", "IOPS", "Disk Transfers/sec"),
            megabytes("read_mb_per_s", "RdMB/s", "Disk Read Bytes/sec"),
            megabytes("write_mb_per_s", "WrMB/s", "Disk Write Bytes/sec"),
            milliseconds("read_median_ms", "Rd p50", "Median Disk sec/Read"),
            milliseconds("read_p99_ms", "Rd p99", "99th Percentile Disk sec/Read"),
            milliseconds("write_median_ms", "Wr p50", "Median Disk sec/Write"),
            milliseconds("write_p99_ms", "Wr p99", "99th Percentile Disk sec/Write"),
            count("queue", "Queue", "Avg. Disk Queue Length"),
            count("reads_per_s", "Reads", "Disk Reads/sec"),
            count("writes_per_s", "Writes", "Disk Writes/sec"),
            count("flushes_per_s", "Flush", "Disk Flushes/sec"),
            milliseconds("read_ms", "Rd ms", "Avg. Disk sec/Read"),
            milliseconds("write_ms", "Wr ms", "Avg. Disk sec/Write"),
            milliseconds("flush_ms", "Fl ms", "Avg. Disk sec/Flush"),
            milliseconds("flush_p99_ms", "Fl p99", "99th Percentile Disk sec/Flush"),
            count("queue_now", "QueNow", "Current Disk Queue Length"),
            count("errors", "Errors", "Disk Errors"),
            count("retries", "Retry", "Disk Retries"),
            $($more),*
        ]
    };
}

const HEDGED: Column = count("hedged_reads_per_s", "Hedged", "Hedged Reads/sec");
const HITS: Column = count("cache_hits_per_s", "Hits", "Table Cache Hits/sec");
const MISSES: Column = count("cache_misses_per_s", "Misses", "Table Cache Misses/sec");

static POOLS: [Column; 23] = storage![
    HEDGED,
    HITS,
    MISSES,
    gigabytes("size_gb", "SizeGB", &POOL_CAPACITY, "Size"),
    gigabytes("allocated_gb", "UsedGB", &POOL_CAPACITY, "Allocated Size")
];
static SPACES: [Column; 22] = storage![
    HITS,
    MISSES,
    gigabytes("size_gb", "SizeGB", &SPACE_CAPACITY, "Size"),
    gigabytes("footprint_gb", "UsedGB", &SPACE_CAPACITY, "Footprint On Pool")
];
static DISKS: [Column; 21] = storage![
    HEDGED,
    gigabytes("size_gb", "SizeGB", &DISK_CAPACITY, "Size"),
    gigabytes("allocated_gb", "UsedGB", &DISK_CAPACITY, "Allocated Size")
];
static JOB: [Column; 3] = [
    megabytes("mb_per_s", "MB/s", "Rate"),
    megabytes("processed_mb", "DoneMB", "Bytes Processed"),
    megabytes("total_mb", "All MB", "Bytes Total"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_counter_that_there_is_and_a_meaning() {
        for kind in KINDS {
            let set = kind.set();
            let mut keys: Vec<_> = kind.columns().iter().map(|c| c.key).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), kind.columns().len(), "{kind:?}: keys are unique");
            for column in kind.columns() {
                assert!(!column.meaning(set).1.is_empty(), "{kind:?} {}", column.key);
                assert!(column.title.len() < super::super::draw::CELL, "{}", column.title);
                match column.counter(set) {
                    Some(c) => {
                        let set = if let Source::Beside(other, _) = column.source { other } else { set };
                        assert!(c.formula.metrics().all(|m| set.metric(m).is_some()), "{}", column.key);
                    }
                    None => assert!(matches!(column.source, Source::Listed(..)), "{}", column.key),
                }
            }
        }
        assert!(Kind::Direct.set().counters().any(|c| c.name == CREDIT_STALLS));
    }
}
