//! Faults as events: each is reported once when it begins and once when it ends, in the log and in the
//! counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use counters::health::{CLEARED, NOW, RAISED};
use parking_lot::Mutex;

use super::super::pools::Pools;
use crate::control::events::{Event, EventKind, Happening};
use crate::control::health::{FaultStatus, INFORMATION};
use crate::output::human_seconds;

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_secs(5);

/// The faults of the last check.
#[derive(Default)]
pub(in super::super) struct FaultWatch {
    faults: Mutex<BTreeMap<String, ActiveFault>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ActiveFault {
    since_unix_s: u64,
    pool: String,
    fault: FaultStatus,
}

/// The changes between two checks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    raised: Vec<ActiveFault>,
    cleared: Vec<ActiveFault>,
}

impl FaultWatch {
    /// Sets the time when each fault was first seen.
    pub(super) fn date(&self, faults: &mut [FaultStatus]) {
        let seen = self.faults.lock();
        for fault in faults {
            fault.since_unix_s = seen.get(&fault.fault_id).map(|s| s.since_unix_s);
        }
    }

    /// Sets the time of a fault that began before this run of the server.
    fn backdate(&self, fault_id: &str, since_unix_s: u64) {
        if let Some(seen) = self.faults.lock().get_mut(fault_id) {
            seen.since_unix_s = since_unix_s;
        }
    }

    /// Compares the present faults with those of the last check. A fault whose severity changed counts as ended and
    /// raised again.
    fn compare(&self, now: Vec<(String, FaultStatus)>, unix_s: u64) -> Changes {
        let mut seen = self.faults.lock();
        let mut changes = Changes::default();
        let ids: BTreeSet<&str> = now.iter().map(|(_, f)| f.fault_id.as_str()).collect();
        let gone: Vec<String> = seen.keys().filter(|id| !ids.contains(id.as_str())).cloned().collect();
        changes.cleared.extend(gone.iter().filter_map(|id| seen.remove(id)));
        for (pool, fault) in now {
            let id = fault.fault_id.clone();
            let before = seen.get(&id);
            let same = before.is_some_and(|b| b.fault.perceived_severity == fault.perceived_severity);
            let since_unix_s = before.map_or(unix_s, |b| b.since_unix_s);
            let entry = ActiveFault { since_unix_s, pool, fault };
            if !same {
                changes.cleared.extend(seen.remove(&id));
                changes.raised.push(entry.clone());
            }
            seen.insert(id, entry);
        }
        changes
    }
}

impl Pools {
    /// Reports faults as long as the thread runs.
    pub(in super::super) async fn watch_health(self: Arc<Pools>) {
        let mut earlier = self.events.open_faults();
        loop {
            self.report_changes(self.pool_faults(&[]), &mut earlier);
            self.name_counters();
            self.env.sleep(INTERVAL).await;
        }
    }

    /// Reports the changes since the last check. `earlier`: faults of the previous run of the server, removed by the
    /// first check.
    fn report_changes(&self, pools: Vec<(String, Vec<FaultStatus>)>, earlier: &mut BTreeMap<String, Event>) {
        // Each pool has counters from the first check on, with or without faults.
        pools.iter().for_each(|(name, _)| drop(counters::pool_health(name)));
        let of =
            |(pool, faults): (String, Vec<FaultStatus>)| faults.into_iter().map(move |f| (pool.clone(), f));
        let faults = pools.into_iter().flat_map(of).collect();
        let now_unix_s = self.env.unix_time().as_secs();
        let changes = self.watch.compare(faults, now_unix_s);
        for ActiveFault { pool, fault, since_unix_s } in &changes.cleared {
            let message =
                format!("the fault ended after {}", human_seconds(now_unix_s.saturating_sub(*since_unix_s)));
            self.events.record(cleared(raised(pool, fault), message));
            counters::pool_health(pool).add(CLEARED, 1);
            counters::pool_health(pool).sub(cell(fault), 1);
            let (kind, object) = (&fault.fault_type, &fault.faulting_object_description);
            tracing::info!(pool, fault = kind, id = fault.fault_id, "fault cleared: {object}");
        }
        for ActiveFault { pool, fault, .. } in &changes.raised {
            // A fault that was raised before the server started is not raised again.
            match earlier.remove(&fault.fault_id) {
                Some(b) if b.what.perceived_severity == fault.perceived_severity => {
                    self.watch.backdate(&fault.fault_id, b.time_unix_s);
                }
                other => {
                    other.into_iter().for_each(|b| self.events.record(ended(b)));
                    self.events.record(raised(pool, fault));
                }
            }
            counters::pool_health(pool).add(RAISED, 1);
            counters::pool_health(pool).add(cell(fault), 1);
            let (kind, object, id) = (&fault.fault_type, &fault.faulting_object_description, &fault.fault_id);
            match fault.perceived_severity {
                0..=4 => tracing::info!(pool, fault = kind, id, "fault raised: {object}: {}", fault.reason),
                5 => tracing::warn!(pool, fault = kind, id, "fault raised: {object}: {}", fault.reason),
                _ => tracing::error!(pool, fault = kind, id, "fault raised: {object}: {}", fault.reason),
            }
        }
        std::mem::take(earlier).into_values().for_each(|b| self.events.record(ended(b)));
    }
}

fn raised(pool: &str, fault: &FaultStatus) -> Happening {
    let object = fault.faulting_object_description.clone();
    Happening {
        perceived_severity: fault.perceived_severity,
        fault_id: Some(fault.fault_id.clone()),
        fault_type: Some(fault.fault_type.clone()),
        ..Happening::new(EventKind::FaultRaised, pool, object, fault.reason.clone())
    }
}

fn cleared(raised: Happening, message: String) -> Happening {
    Happening { kind: EventKind::FaultCleared, perceived_severity: INFORMATION, message, ..raised }
}

/// A fault of the previous run of the server that has ended.
fn ended(raised: Event) -> Happening {
    cleared(raised.what, "the fault no longer existed when the server started".to_owned())
}

fn cell(fault: &FaultStatus) -> counters::Cell {
    match fault.perceived_severity {
        0..=4 => NOW[0],
        5 => NOW[1],
        _ => NOW[2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(id: &str, severity: u8) -> (String, FaultStatus) {
        let fault = FaultStatus {
            fault_id: id.to_owned(),
            fault_type: "PhysicalDisk.LostCommunication".to_owned(),
            perceived_severity: severity,
            reason: "it is away".to_owned(),
            faulting_object_description: "disk 1".to_owned(),
            faulting_object_location: "pool tank, disk 1".to_owned(),
            recommended_actions: Vec::new(),
            consequences: Vec::new(),
            since_unix_s: None,
        };
        ("tank".to_owned(), fault)
    }

    #[test]
    fn each_fault_is_reported_once_when_raised_and_once_when_cleared() {
        let watch = FaultWatch::default();
        let ids = |seen: &[ActiveFault]| seen.iter().map(|s| s.fault.fault_id.clone()).collect::<Vec<_>>();
        let told = |faults: Vec<(String, FaultStatus)>, at| {
            let changes = watch.compare(faults, at);
            (ids(&changes.raised), ids(&changes.cleared))
        };
        let list = |ids: &[&str]| ids.iter().map(|i| (*i).to_owned()).collect::<Vec<_>>();
        assert_eq!(told(vec![fault("a", 5), fault("b", 5)], 100), (list(&["a", "b"]), list(&[])));
        assert_eq!(told(vec![fault("a", 5), fault("b", 5)], 105), (list(&[]), list(&[])));
        assert_eq!(
            told(vec![fault("a", 6)], 110),
            (list(&["a"]), list(&["b", "a"])),
            "a is worse, b is gone"
        );
        let mut dated = [fault("a", 6).1, fault("c", 6).1];
        watch.date(&mut dated);
        assert_eq!(dated.map(|f| f.since_unix_s), [Some(100), None]);
        assert_eq!(told(Vec::new(), 115), (list(&[]), list(&["a"])));
    }
}
