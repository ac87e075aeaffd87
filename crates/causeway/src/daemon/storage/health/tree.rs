//! The tree of objects: below a pool its fault domains with their disks, and its virtual disks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pool::health::{Health, Level, Problems, of_disk, of_pool, of_space};
use pool::{DiskNumber, State};

use super::super::describe;
use super::super::open_pool::OpenPool;
use super::super::pools::Closed;
use crate::control::health::HealthNode;

/// An open pool.
pub(super) fn open(open: &OpenPool) -> HealthNode {
    let (suspended, problems, paths) =
        (open.pool.suspended().is_some(), open.problems(), open.reporter.paths());
    let unverified = open.unverified();
    open.pool.read(|s| {
        let all: Vec<DiskNumber> = s.disks.keys().copied().collect();
        let mut children = below(s, &Level::ALL, &all, &|d| disk(s, d, &paths, &problems));
        let space = |(id, record): (&pool::SpaceId, &Arc<pool::SpaceRecord>)| {
            node("VirtualDisk", record.name.clone(), of_space(s, *id, &problems, suspended), Vec::new())
        };
        children.extend(s.spaces.iter().map(space));
        let pool = node("Pool", s.name.clone(), of_pool(s, &problems, suspended, open.read_only), children);
        let can_lose = pool::health::can_lose(s, &unverified);
        HealthNode { can_lose: Some(describe::can_lose_text(&can_lose)), ..pool }
    })
}

/// A pool that is not open.
pub(super) fn closed(closed: &Closed) -> HealthNode {
    node("Pool", closed.name.clone(), Health::new("Not open", "Unknown"), Vec::new())
}

/// The domains of the highest level with names, and their disks; then the disks that are in no domain.
fn below(
    s: &State,
    levels: &[Level],
    disks: &[DiskNumber],
    disk: &dyn Fn(DiskNumber) -> HealthNode,
) -> Vec<HealthNode> {
    let Some((level, nearer)) = levels.split_first() else {
        return disks.iter().map(|d| disk(*d)).collect();
    };
    let name = |d: &DiskNumber| s.disks.get(d).map_or("", |r| level.name_of(&r.domains));
    let mut names: Vec<&str> = disks.iter().map(name).filter(|n| !n.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = Vec::new();
    for domain in names {
        let mine: Vec<DiskNumber> = disks.iter().copied().filter(|d| name(d) == domain).collect();
        let here = mine.iter().filter(|d| s.is_present(**d)).count();
        let health = match here {
            0 => Health::new("Lost communication", "Warning"),
            n if n < mine.len() => Health::new("Degraded", "Warning"),
            _ => Health::OK,
        };
        let kind = match level {
            Level::Rack => "Rack",
            Level::Node => "Node",
            Level::Enclosure => "Enclosure",
        };
        out.push(node(kind, domain.to_owned(), health, below(s, nearer, &mine, disk)));
    }
    let others: Vec<DiskNumber> = disks.iter().copied().filter(|d| name(d).is_empty()).collect();
    out.extend(below(s, nearer, &others, disk));
    out
}

fn disk(
    s: &State,
    disk: DiskNumber,
    paths: &BTreeMap<DiskNumber, PathBuf>,
    problems: &Problems,
) -> HealthNode {
    let record = s.disks.get(&disk);
    let health = record.map_or(Health::new("Unknown", "Unknown"), |r| of_disk(disk, r, problems));
    node("PhysicalDisk", describe::disk_text(s, disk, paths), health, Vec::new())
}

fn node(kind: &str, name: String, health: Health, children: Vec<HealthNode>) -> HealthNode {
    HealthNode {
        kind: kind.to_owned(),
        name,
        operational_status: health.operational.to_owned(),
        health_status: health.health.to_owned(),
        can_lose: None,
        children,
    }
}
