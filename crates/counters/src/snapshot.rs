//! The counts at one time: the document of the control interface and of recordings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::io::{Histogram, bucket_floor};
use crate::sets::io::LATENCIES;
use crate::{Instance, Kind, Set, Values};

/// All sets at one time. Values are accumulated: a client computes rates from two snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Monotonic time: nanoseconds since the server (or client) began to count.
    pub at_ns: u64,
    /// Wall-clock time: milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
    /// All sets, including those without instances.
    pub sets: Vec<SetSnapshot>,
}

/// One set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSnapshot {
    /// Its name in Windows.
    pub set: String,
    /// Its instances, by name.
    pub instances: Vec<InstanceSnapshot>,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSnapshot {
    /// Its name.
    pub instance: String,
    /// Its labels, as in Prometheus.
    pub labels: BTreeMap<String, String>,
    /// Values by metric: counts, bytes, nanoseconds.
    pub values: BTreeMap<String, u64>,
    /// Histograms by metric: for each non-empty bucket its smallest latency in nanoseconds, and the number of
    /// I/Os.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies: BTreeMap<String, BTreeMap<u64, u64>>,
}

impl Snapshot {
    /// The instances of one set.
    pub fn of(&self, set: &Set) -> &[InstanceSnapshot] {
        self.sets.iter().find(|s| s.set == set.name).map_or(&[], |s| &s.instances)
    }

    /// A metric of an instance. Returns `None` if it does not exist.
    pub fn value(&self, set: &Set, instance: &str, metric: &str) -> Option<u64> {
        self.of(set).iter().find(|i| i.instance == instance)?.values.get(metric).copied()
    }
}

/// An instance of a set of levels: its name, its labels and metric values in the order of the set.
pub struct Level {
    /// Its name.
    pub instance: String,
    /// Values of [`Set::labels`].
    pub labels: Vec<String>,
    /// Values of [`Set::metrics`].
    pub values: Vec<u64>,
}

impl SetSnapshot {
    /// A set of [`crate::sets::levels`].
    pub fn of_levels(set: &Set, list: Vec<Level>) -> SetSnapshot {
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let instance = |l: Level| InstanceSnapshot {
            instance: l.instance,
            labels: names(set.labels.to_vec()).into_iter().zip(l.labels).collect(),
            values: names(set.metrics().map(|m| m.name).collect()).into_iter().zip(l.values).collect(),
            latencies: BTreeMap::new(),
        };
        SetSnapshot { set: set.name.to_owned(), instances: list.into_iter().map(instance).collect() }
    }

    pub(crate) fn of(set: &Set, list: &[(Values, Arc<Instance>)], now: u64) -> SetSnapshot {
        let instances = list.iter().map(|(values, i)| InstanceSnapshot::of(set, i, values, now)).collect();
        SetSnapshot { set: set.name.to_owned(), instances }
    }

    pub(crate) fn of_io(set: &Set, list: &[Arc<Instance>], now: u64) -> SetSnapshot {
        let full = |(i, n): (usize, &u64)| (*n > 0).then_some((bucket_floor(i), *n));
        let buckets = |h: &Histogram| h.iter().enumerate().filter_map(full).collect();
        let one = |i: &Arc<Instance>| {
            let (values, latencies) = i.io();
            let latencies =
                LATENCIES.map(str::to_owned).into_iter().zip(latencies.iter().map(buckets)).collect();
            InstanceSnapshot { latencies, ..InstanceSnapshot::of(set, i, &values, now) }
        };
        SetSnapshot { set: set.name.to_owned(), instances: list.iter().map(one).collect() }
    }
}

impl InstanceSnapshot {
    fn of(set: &Set, i: &Instance, values: &Values, now: u64) -> InstanceSnapshot {
        let plain = set.metrics().filter(|m| m.kind != Kind::Histogram);
        InstanceSnapshot {
            instance: i.name().to_owned(),
            labels: set.labels.iter().map(|l| (*l).to_owned()).zip(i.labels().iter().cloned()).collect(),
            values: plain.map(|m| (m.name.to_owned(), (m.of)(values, now))).collect(),
            latencies: BTreeMap::new(),
        }
    }
}
