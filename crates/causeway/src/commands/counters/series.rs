//! Values over time.

use counters::{Set, Snapshot, sample};
use schemars::JsonSchema;
use serde::Serialize;

use super::select::Selection;

/// One counter of one instance over time.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub(in crate::commands) struct Series {
    pub(super) set: String,
    pub(super) instance: String,
    pub(super) counter: String,
    pub(super) unit: String,
    /// Milliseconds since 1970 and the value; `None` while the instance did not exist or had only one snapshot.
    pub(super) points: Vec<(u64, Option<f64>)>,
}

impl Series {
    /// The values, without points that have none.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points.iter().filter_map(|(_, v)| *v)
    }

    /// Minimum, mean and maximum; `None` without values.
    pub(super) fn range(&self) -> Option<(f64, f64, f64)> {
        let (mut least, mut sum, mut most, mut n) = (f64::INFINITY, 0.0, f64::NEG_INFINITY, 0.0);
        for v in self.values() {
            (least, sum, most, n) = (least.min(v), sum + v, most.max(v), n + 1.0);
        }
        (n > 0.0).then(|| (least, sum / n, most))
    }
}

/// The values between two snapshots: instance, counter and value, in the order of the table.
pub(super) fn at<'a>(
    set: &'static Set,
    selection: &'a Selection,
    before: &'a Snapshot,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a str, &'static counters::Counter, Option<f64>)> + 'a {
    snapshot.of(set).iter().flat_map(move |i| {
        let old = sample::same(before, set, &i.instance).map(|o| (before, o));
        set.counters()
            .filter(|c| selection.has(set, Some(&i.instance), c))
            .map(move |c| (i.instance.as_str(), c, sample::value(set, c, old, (snapshot, i))))
    })
}

/// One series for each counter of each instance in any snapshot. Each point is computed from two consecutive snapshots.
pub(super) fn series(snapshots: &[Snapshot], selection: &Selection) -> Vec<Series> {
    let times: Vec<u64> = snapshots.iter().skip(1).map(|s| s.unix_ms).collect();
    let mut out = Vec::new();
    for set in selection.sets() {
        let mut names: Vec<&str> = snapshots
            .iter()
            .flat_map(|s| s.of(set))
            .map(|i| i.instance.as_str())
            .filter(|i| selection.has_instance(set, i))
            .collect();
        names.sort_unstable();
        names.dedup();
        for instance in names {
            for counter in set.counters().filter(|c| selection.has(set, Some(instance), c)) {
                let value = |pair: &[Snapshot]| {
                    let new = sample::same(&pair[1], set, instance)?;
                    let old = sample::same(&pair[0], set, instance).map(|o| (&pair[0], o));
                    sample::value(set, counter, old, (&pair[1], new))
                };
                let values = snapshots.windows(2).map(value);
                out.push(Series {
                    set: set.name.to_owned(),
                    instance: instance.to_owned(),
                    counter: counter.name.to_owned(),
                    unit: counter.unit.to_owned(),
                    points: times.iter().copied().zip(values).collect(),
                });
            }
        }
    }
    out
}
