//! Directories.

use std::collections::HashMap;

use env::Ctx;

use super::Subject;
use crate::{Attributes, Kind, VfsError};

/// Lists an empty directory, then a few entries with their metadata, twice from the beginning.
pub(super) async fn small(s: &Subject) {
    let (c, d) = (Ctx::default(), s.directory("D").await);
    assert_eq!(d.node.is_empty(&c).wait().await, Ok(true));
    assert!(d.node.list(&c, true, 10).wait().await.expect("a listing").is_empty());
    let f = s.file("d\\File").await;
    s.write(&*f.node, 0, &[1; 77]).await;
    s.directory("d\\Sub").await;
    assert_eq!(d.node.is_empty(&c).wait().await, Ok(false));
    for _ in 0..2 {
        let mut all = d.node.list(&c, true, 10).wait().await.expect("a listing");
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let seen: Vec<_> = all.iter().map(|e| (e.name.as_str(), e.stat.kind, e.stat.size)).collect();
        assert_eq!(seen, [("File", Kind::File, 77), ("Sub", Kind::Directory, 0)]);
        assert!(all[1].stat.attributes.contains(Attributes::DIRECTORY));
        assert_eq!(format!("{:?}", all[0].stat), format!("{:?}", s.stat(&*f.node).await));
        assert!(d.node.list(&c, false, 10).wait().await.expect("the end").is_empty());
    }
    // Each open of a directory has its own position.
    let e = s.existing("d").await;
    assert_eq!(d.node.list(&c, true, 1).wait().await.expect("a listing").len(), 1);
    assert_eq!(e.node.list(&c, true, 10).wait().await.expect("a listing").len(), 2);
    assert_eq!(d.node.list(&c, false, 10).wait().await.expect("the rest").len(), 1);
    assert_eq!(f.node.list(&c, true, 10).wait().await.err(), Some(VfsError::NotDirectory));
    assert_eq!(f.node.is_empty(&c).wait().await.err(), Some(VfsError::NotDirectory));
    assert_eq!(f.node.lookup(&c, "x").wait().await.err(), Some(VfsError::NotDirectory));
}

/// Entries that exist all the time are listed exactly once, while others are created and removed.
pub(super) async fn ten_thousand(s: &Subject) {
    const STAYING: usize = 10_000;
    let d = s.directory("d").await;
    for i in 0..STAYING {
        s.file(&format!("d\\Stays-{i:05}.dat")).await;
    }
    let (mut seen, mut restart, mut turn) = (HashMap::new(), true, 0);
    let mut passing = Vec::new();
    loop {
        let some = d.node.list(&Ctx::default(), restart, 500).wait().await.expect("a listing");
        if some.is_empty() {
            break;
        }
        assert!(some.len() <= 1000, "about 500 entries at a time, not {}", some.len());
        restart = false;
        for entry in some {
            *seen.entry(entry.name).or_insert(0) += 1;
        }
        turn += 1;
        for i in 0..20 {
            let name = format!("d\\passes-{turn}-{i}");
            passing.push((name.clone(), s.file(&name).await.node.id()));
        }
        for (name, id) in passing.drain(..10) {
            s.remove(&name, id).await.expect("just made");
        }
    }
    for i in 0..STAYING {
        let name = format!("Stays-{i:05}.dat");
        assert_eq!(seen.get(&name), Some(&1), "{name}");
    }
    assert!(seen.iter().all(|(name, n)| *n == 1 || name.starts_with("passes")));
    assert!(!seen.contains_key(".") && !seen.contains_key(".."));
}

/// Looks up one entry by name.
pub(super) async fn lookup(s: &Subject) {
    let c = Ctx::default();
    let (d, f) = (s.directory("d").await, s.file("d\\Straße").await);
    for name in ["Straße", "STRAßE", "straße"] {
        let entry = d.node.lookup(&c, name).wait().await.expect("there");
        assert_eq!((entry.name.as_str(), entry.stat.id), ("Straße", f.node.id()));
    }
    assert_eq!(d.node.lookup(&c, "none").wait().await.err(), Some(VfsError::NotFound));
    s.remove("d\\straße", f.node.id()).await.expect("there");
    assert_eq!(d.node.lookup(&c, "Straße").wait().await.err(), Some(VfsError::NotFound));
}
