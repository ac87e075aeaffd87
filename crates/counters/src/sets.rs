//! The table of definitions: sets, Windows's counters, and the metrics that they are computed from.

mod client_shares;
mod direct;
pub mod health;
pub(crate) mod io;
pub mod levels;
mod rdma;
mod requests;
mod server_shares;
mod sessions;

pub(crate) use client_shares::CLIENT_SHARES;
pub(crate) use direct::DIRECT;
pub(crate) use health::HEALTH;
pub(crate) use rdma::RDMA;
pub(crate) use server_shares::SERVER_SHARES;
pub(crate) use sessions::SESSIONS;

use crate::Values;

/// A set of counters.
pub struct Set {
    /// Windows's name.
    pub name: &'static str,
    /// What its instances are.
    pub instances: &'static str,
    /// What its metrics' names begin with in Prometheus.
    pub prefix: &'static str,
    /// Prometheus's labels of an instance.
    pub labels: &'static [&'static str],
    metrics: &'static [&'static [Metric]],
    counters: &'static [&'static [Counter]],
    /// Windows's counters that are not here, and why.
    pub absent: &'static [(&'static str, &'static str)],
}

/// What is counted.
pub struct Metric {
    /// Its key in JSON; ends with its unit.
    pub name: &'static str,
    /// Whether it goes down.
    pub kind: Kind,
    /// Of its value in JSON.
    pub unit: Unit,
    /// One line.
    pub help: &'static str,
    pub(crate) of: fn(&Values, u64) -> u64,
}

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes up for as long as its instance lives.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many took how long: see [`InstanceSnapshot::latencies`](crate::InstanceSnapshot::latencies).
    Histogram,
}

/// What a metric is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds; seconds in Prometheus.
    Nanoseconds,
}

/// One of Windows's counters.
pub struct Counter {
    /// Windows's name.
    pub name: &'static str,
    /// How it is computed.
    pub how: How,
    /// What it is shown in.
    pub unit: &'static str,
    /// One line.
    pub definition: &'static str,
}

/// How a counter is computed of two snapshots. Several metrics are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The difference per second (PERF_COUNTER_BULK_COUNT).
    Rate(&'static [&'static str]),
    /// The later value (PERF_COUNTER_LARGE_RAWCOUNT).
    Value(&'static [&'static str]),
    /// The later value of the first, in percent of the second's; 0 where that is none (PERF_LARGE_RAW_FRACTION).
    Percent(&'static [&'static str], &'static [&'static str]),
    /// The first's difference by the second's; 0 where that is none (PERF_AVERAGE_BULK). Nanoseconds become seconds.
    Average(&'static [&'static str], &'static [&'static str]),
    /// A time integral's difference by the time (PERF_COUNTER_LARGE_QUEUELEN_TYPE).
    Queue(&'static [&'static str]),
    /// That many percent of a histogram's difference are at most this; 0 where there is none.
    Percentile(&'static str, u8),
}

/// All sets.
pub static SETS: [&Set; 15] = [
    &SERVER_SHARES,
    &SESSIONS,
    &DIRECT,
    &RDMA,
    &CLIENT_SHARES,
    &io::POOLS,
    &io::SPACES,
    &io::DISKS,
    &HEALTH,
    &levels::POOL_CAPACITY,
    &levels::SPACE_CAPACITY,
    &levels::DISK_CAPACITY,
    &levels::JOBS,
    &levels::MEMORY,
    &levels::PROCESS,
];

/// The sets that `name` means: Windows's name without regard to case, spaces and hyphens, or its beginning.
pub fn find(name: &str) -> Vec<&'static Set> {
    let plain = |s: &str| s.to_lowercase().replace([' ', '-', '_'], "");
    let wanted = plain(name);
    match SETS.iter().find(|s| plain(s.name) == wanted) {
        Some(exact) => vec![exact],
        None => SETS.iter().filter(|s| plain(s.name).starts_with(&wanted)).copied().collect(),
    }
}

impl Set {
    /// Its metrics.
    pub fn metrics(&self) -> impl Iterator<Item = &'static Metric> + use<> {
        self.metrics.iter().copied().flatten()
    }

    /// Its counters, in the order they are shown in.
    pub fn counters(&self) -> impl Iterator<Item = &'static Counter> + use<> {
        self.counters.iter().copied().flatten()
    }

    /// A metric of its own.
    pub fn metric(&self, name: &str) -> Option<&'static Metric> {
        self.metrics().find(|m| m.name == name)
    }

    /// A metric's name in Prometheus, without the `_total` of a counter.
    pub fn prometheus(&self, metric: &Metric) -> String {
        let name = match metric.unit {
            Unit::Nanoseconds => metric.name.replace("_ns", "_seconds"),
            Unit::Count | Unit::Bytes => metric.name.to_owned(),
        };
        format!("{}_{name}", self.prefix)
    }

    /// A metric's name as Prometheus shows it.
    pub fn exposed(&self, metric: &Metric) -> String {
        let total = if metric.kind == Kind::Counter { "_total" } else { "" };
        self.prometheus(metric) + total
    }
}

impl How {
    /// The metrics that it needs.
    pub fn metrics(self) -> impl Iterator<Item = &'static str> {
        let (a, b, c): (&[_], &[_], _) = match self {
            How::Rate(a) | How::Value(a) | How::Queue(a) => (a, &[], None),
            How::Average(a, b) | How::Percent(a, b) => (a, b, None),
            How::Percentile(name, _) => (&[], &[], Some(name)),
        };
        a.iter().chain(b).copied().chain(c)
    }

    /// What it is called in the documentation.
    pub fn kind(self) -> &'static str {
        match self {
            How::Rate(_) => "rate",
            How::Value(_) => "value",
            How::Percent(..) => "percent",
            How::Average(..) => "average",
            How::Queue(_) => "average over time",
            How::Percentile(..) => "percentile",
        }
    }
}

const fn count(name: &'static str, unit: Unit, of: fn(&Values, u64) -> u64, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, of }
}

const fn gauge(name: &'static str, of: fn(&Values, u64) -> u64, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: Unit::Count, help, of }
}

const fn histogram(name: &'static str, of: fn(&Values, u64) -> u64, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, unit: Unit::Nanoseconds, help, of }
}

const fn counter(name: &'static str, how: How, unit: &'static str, definition: &'static str) -> Counter {
    Counter { name, how, unit, definition }
}

#[cfg(test)]
mod tests;
