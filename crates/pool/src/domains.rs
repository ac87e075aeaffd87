//! Fault domains: sets of disks that fail together.

use crate::{DiskNumber, FaultDomains, State};

/// A level of fault domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// [`FaultDomains::rack`].
    Rack,
    /// [`FaultDomains::node`].
    Node,
    /// [`FaultDomains::enclosure`].
    Enclosure,
}

impl Level {
    /// All levels, from the largest domains to the smallest.
    pub const ALL: [Level; 3] = [Level::Rack, Level::Node, Level::Enclosure];

    /// The name of a disk's domain of this level; empty when it is not known.
    pub fn name_of(self, domains: &FaultDomains) -> &str {
        match self {
            Level::Rack => &domains.rack,
            Level::Node => &domains.node,
            Level::Enclosure => &domains.enclosure,
        }
    }

    /// `enclosure`, `node` or `rack`.
    pub fn word(self) -> &'static str {
        match self {
            Level::Rack => "rack",
            Level::Node => "node",
            Level::Enclosure => "enclosure",
        }
    }
}

/// A set of disks that fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain<'a> {
    Named(Level, &'a str),
    Disk(DiskNumber),
}

/// The domain of a disk on the first of these levels for which it is known; the disk itself if it is known for none.
pub(crate) fn domain<'a>(state: &'a State, disk: DiskNumber, levels: &[Level]) -> Domain<'a> {
    let Some(record) = state.disks.get(&disk) else { return Domain::Disk(disk) };
    let named = levels.iter().map(|level| (*level, level.name_of(&record.domains)));
    let known = named.into_iter().find(|(_, name)| !name.is_empty());
    known.map_or(Domain::Disk(disk), |(level, name)| Domain::Named(level, name))
}
