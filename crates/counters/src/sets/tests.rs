//! Checks that the tables are complete.

use std::collections::HashSet;

use super::*;

#[test]
fn every_counter_is_computed_of_metrics_of_its_set() {
    for set in SETS {
        for c in set.counters() {
            let known: Vec<_> = c.formula.metrics().filter(|m| set.metric(m).is_some()).collect();
            assert_eq!(known, c.formula.metrics().collect::<Vec<_>>(), "{}: {}", set.name, c.name);
            assert!(!known.is_empty() && !c.definition.is_empty(), "{}: {}", set.name, c.name);
            assert_eq!(c.name.ends_with("/sec"), matches!(c.formula, Formula::Rate(_)), "{}", c.name);
        }
    }
}

#[test]
fn every_metric_serves_a_counter() {
    for set in SETS {
        let used: HashSet<_> = set.counters().flat_map(|c| c.formula.metrics()).collect();
        for m in set.metrics() {
            // Windows shows metadata requests only together with READs and WRITEs, and not for clients.
            assert!(used.contains(m.name) || m.name.starts_with("metadata_"), "{}: {}", set.name, m.name);
        }
    }
}

#[test]
fn names_are_unique_and_say_their_unit() {
    let mut prometheus = HashSet::new();
    for set in SETS {
        let mut names = HashSet::new();
        assert!(set.counters().all(|c| names.insert(c.name)), "{}", set.name);
        assert!(set.absent.iter().all(|(name, _)| names.insert(name)), "{}: absent and present", set.name);
        for m in set.metrics() {
            assert_eq!(m.name.ends_with("_bytes"), m.unit == Unit::Bytes, "{}", m.name);
            assert_eq!(m.name.ends_with("_ns"), m.unit == Unit::Nanoseconds, "{}", m.name);
            let name = set.prometheus(m);
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!(!name.ends_with("_ns") && prometheus.insert(name));
        }
    }
}

#[test]
fn sets_are_found_as_people_write_them() {
    let names = |n: &str| find(n).iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names("SMB Server Shares"), ["SMB Server Shares"]);
    assert_eq!(names("smb-server-shares"), ["SMB Server Shares"]);
    assert_eq!(names("smb server"), ["SMB Server Shares", "SMB Server Sessions"]);
    assert_eq!(names("rdma"), ["RDMA Activity"]);
    assert!(names("disk").is_empty());
}
