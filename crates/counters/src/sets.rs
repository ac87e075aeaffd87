//! The table of definitions: sets, Windows's counters, and the metrics from which they are computed.

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
    /// The name in Windows.
    pub name: &'static str,
    /// What an instance represents.
    pub instances: &'static str,
    /// The prefix of its metrics' names in Prometheus.
    pub prefix: &'static str,
    /// The Prometheus labels of an instance.
    pub labels: &'static [&'static str],
    metrics: &'static [&'static [Metric]],
    counters: &'static [&'static [Counter]],
    /// Windows counters that are not provided, and why.
    pub absent: &'static [(&'static str, &'static str)],
}

/// A counted quantity.
pub struct Metric {
    /// Its key in JSON, which ends with its unit.
    pub name: &'static str,
    /// Whether it can decrease.
    pub kind: Kind,
    /// The unit of its value in JSON.
    pub unit: Unit,
    /// A one-line description.
    pub help: &'static str,
    pub(crate) of: fn(&Values, u64) -> u64,
}

/// The kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never decreases while its instance exists.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// The distribution of latencies: see
    /// [`InstanceSnapshot::latencies`](crate::InstanceSnapshot::latencies).
    Histogram,
}

/// The units of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number without unit.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds; seconds in Prometheus.
    Nanoseconds,
}

/// A Windows counter.
pub struct Counter {
    /// The name in Windows.
    pub name: &'static str,
    /// How its value is computed.
    pub formula: Formula,
    /// The displayed unit.
    pub unit: &'static str,
    /// A one-line definition.
    pub definition: &'static str,
}

/// How a counter is computed from two snapshots. Where several metrics are given, their sum counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// The difference per second (PERF_COUNTER_BULK_COUNT).
    Rate(&'static [&'static str]),
    /// The later value (PERF_COUNTER_LARGE_RAWCOUNT).
    Value(&'static [&'static str]),
    /// The later value of the first in percent of that of the second; 0 if the second is 0
    /// (PERF_LARGE_RAW_FRACTION).
    Percent(&'static [&'static str], &'static [&'static str]),
    /// The first's difference divided by the second's; 0 if the second's is 0 (PERF_AVERAGE_BULK).
    /// Nanoseconds become seconds.
    Average(&'static [&'static str], &'static [&'static str]),
    /// The difference of a time integral divided by the time (PERF_COUNTER_LARGE_QUEUELEN_TYPE).
    Queue(&'static [&'static str]),
    /// A percentile of a histogram's difference; 0 if that is empty.
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

/// Finds sets by name: Windows's name, ignoring case, spaces and hyphens, or a prefix of it.
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

    /// Its counters, in display order.
    pub fn counters(&self) -> impl Iterator<Item = &'static Counter> + use<> {
        self.counters.iter().copied().flatten()
    }

    /// The metric of the set with this name.
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

    /// A metric's full name in Prometheus.
    pub fn exposed(&self, metric: &Metric) -> String {
        let total = if metric.kind == Kind::Counter { "_total" } else { "" };
        self.prometheus(metric) + total
    }
}

impl Formula {
    /// The metrics from which it is computed.
    pub fn metrics(self) -> impl Iterator<Item = &'static str> {
        let (a, b, c): (&[_], &[_], _) = match self {
            Formula::Rate(a) | Formula::Value(a) | Formula::Queue(a) => (a, &[], None),
            Formula::Average(a, b) | Formula::Percent(a, b) => (a, b, None),
            Formula::Percentile(name, _) => (&[], &[], Some(name)),
        };
        a.iter().chain(b).copied().chain(c)
    }

    /// Its name in the documentation.
    pub fn kind(self) -> &'static str {
        match self {
            Formula::Rate(_) => "rate",
            Formula::Value(_) => "value",
            Formula::Percent(..) => "percent",
            Formula::Average(..) => "average",
            Formula::Queue(_) => "average over time",
            Formula::Percentile(..) => "percentile",
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

const fn counter(
    name: &'static str,
    formula: Formula,
    unit: &'static str,
    definition: &'static str,
) -> Counter {
    Counter { name, formula, unit, definition }
}

#[cfg(test)]
mod tests;
