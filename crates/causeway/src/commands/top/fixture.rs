//! Samples for tests, taken from a real registry of counters.

use std::net::SocketAddr;
use std::time::Duration;

use counters::requests::{FILES_OPEN, RequestResult};
use counters::transfers::{RDMA_READ_BYTES, RECEIVES, SENDS, STALLS_SEND_CREDIT};
use counters::{Class, Registry, Tally};
use env::Env;

use super::sample::Sample;
use crate::control::types::{
    Channel, Credits, Listener, Memory, Passes, ServerStatus, SessionStatus, Totals,
};

/// The registry of a server; the test sets the time of its samples.
pub(super) struct Counting {
    pub(super) registry: Registry,
    direct: Vec<counters::InstanceGuard>,
    session: counters::InstanceGuard,
    cpu_ns: u64,
}

impl Counting {
    pub(super) fn new() -> Counting {
        let registry = Registry::new(Env::simulated(1));
        let name = "127.0.0.1:5445/127.0.0.1:40001";
        let direct = vec![registry.direct.open(name, &["127.0.0.1:5445", "127.0.0.1:40001"])];
        let session = registry.sessions.open("0000000000000001", &["0000000000000001", "alice", "127.0.0.1"]);
        Counting { registry, direct, session, cpu_ns: 0 }
    }

    /// Counts `reads` READs of 1,000,000 bytes on a share and the session, 2 ms each, by RDMA; also their work
    /// requests, stalls and processor time.
    pub(super) fn reads(&mut self, share: &str, reads: u64) {
        let share = self.registry.server_shares.permanent(share, &[share]);
        let tally = Tally::new(self.registry.clock(), vec![share.clone(), self.session.instance().clone()]);
        let start = self.registry.clock().now();
        for _ in 0..reads {
            let begun = tally.begin(Class::Read, start, 100, 0);
            let done = RequestResult { payload: 1_000_000, direct: true, received: 0, sent: 1_000_080 };
            tally.end_at(begun, done, start + Duration::from_millis(2));
        }
        share.add(FILES_OPEN, 1);
        let direct = self.direct[0].instance();
        direct.add(SENDS, reads);
        direct.add(RECEIVES, reads + 1);
        direct.add(RDMA_READ_BYTES, reads * 1_000_000);
        direct.add(STALLS_SEND_CREDIT, 3);
        self.cpu_ns += 500_000_000;
    }

    /// The server's response `at_s` seconds after it began to count.
    pub(super) fn sample(&self, at_s: u64) -> Sample {
        let mut s = sample(at_s);
        s.counters = self.registry.snapshot();
        s.counters.at_ns = at_s * 1_000_000_000;
        s.counters.unix_ms = 1_795_276_188_000 + at_s * 1000;
        // RDMA providers are counted for the whole process, in which other tests run concurrently.
        s.counters.sets.iter_mut().filter(|s| s.set == "RDMA Activity").for_each(|s| s.instances.clear());
        s.server.cpu_ns = Some(self.cpu_ns);
        s
    }
}

/// A sample of a server on which nothing was counted.
pub(super) fn sample(at_s: u64) -> Sample {
    let listener = |transport: &str, address: &str| Listener {
        transport: transport.to_owned(),
        address: address.parse().expect("an address"),
    };
    let server = ServerStatus {
        version: "1.2.3".to_owned(),
        name: "FILER".to_owned(),
        pid: 4711,
        uptime_s: at_s,
        cpu_ns: None,
        announces_rdma: Some(true),
        config: "/etc/causeway.toml".to_owned(),
        listeners: vec![listener("tcp", "127.0.0.1:445"), listener("iwarp", "127.0.0.1:5445")],
        connections: 2,
        sessions: 1,
        opens: 1,
        memory: Memory { budget: 1 << 30, used: 3 << 20, reserve: 64 << 20, waiting: 0 },
        totals: Totals {
            accepted: 2,
            requests: 0,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
            read_bytes_rdma: 0,
            written_bytes_rdma: 0,
        },
        passes: Passes::default(),
        workers: Vec::new(),
    };
    let mut counters = Registry::new(Env::simulated(1)).snapshot();
    counters.at_ns = at_s * 1_000_000_000;
    Sample { server, sessions: vec![session(1, &["tcp", "rdma"])], counters }
}

/// A session with channels over these transports.
pub(super) fn session(id: u64, transports: &[&str]) -> SessionStatus {
    let channel = |(i, t): (usize, &&str)| Channel {
        transport: (*t).to_owned(),
        peer: SocketAddr::from(([127, 0, 0, 1], 40_000 + i as u16)),
        credits: Some(Credits { available: 510, in_use: 2 }),
    };
    SessionStatus {
        id: format!("{id:016x}"),
        client: "127.0.0.1 (DESK)".to_owned(),
        user: "alice".to_owned(),
        opens: 1,
        dialect: "3.1.1".to_owned(),
        channels: transports.iter().enumerate().map(channel).collect(),
        signed: true,
        encrypted: false,
        age_s: 9,
        idle_s: 0,
    }
}
