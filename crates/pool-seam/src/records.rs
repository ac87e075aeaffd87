//! Metadata records that both the coordinator and the owners read, and that every version of the format has.
//! Times are seconds since 1970.

use crate::code::Code;
use crate::{DiskNumber, RowNumber};

/// Why a disk is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was not present when the pool was opened.
    NotFound,
    /// It disappeared while in use.
    Gone,
    /// A write failed.
    WriteFailed,
    /// A flush failed: acknowledged writes since the last flush may be lost.
    FlushFailed,
    /// Its I/O repeatedly took too long.
    Slow,
    /// It was removed by command.
    ByCommand,
    /// Its label was older than the pool's record of it.
    Stale,
}

/// The location of a disk, from the narrowest domain to the widest. An empty name is unknown; the disk is
/// then its own domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultDomains {
    /// The enclosure.
    pub enclosure: String,
    /// The machine.
    pub node: String,
    /// The rack.
    pub rack: String,
}

/// The progress of the current scrub (reading all copies of a space) and the result of the last one. Times
/// are seconds since 1970; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// When the current scrub began; 0: none is running.
    pub began: u64,
    /// Whether it was requested by command.
    pub by_command: bool,
    /// The first row not yet read.
    pub next: RowNumber,
    /// Units repaired so far.
    pub healed: u64,
    /// Units so far with no good copy.
    pub lost: u64,
    /// When the last scrub ended.
    pub ended: u64,
    /// Units that the last scrub repaired.
    pub last_healed: u64,
    /// Units with no good copy in the last scrub.
    pub last_lost: u64,
    /// The start of the interval until the next scrub.
    pub since: u64,
}

/// The redundancy of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Resiliency {
    /// None.
    #[default]
    Simple,
    /// This many copies: 2 or 3.
    Mirror { copies: u8 },
    /// Reed-Solomon: 1 or 2 parity columns in addition to the data columns.
    Parity { parity: u8 },
    /// Local reconstruction: the data columns form groups of the same size. Each group has a parity column,
    /// and there are global ones. It survives the loss of any two columns; a single lost column is rebuilt
    /// from its group. Currently 2 groups and 1 global column.
    LocalParity { groups: u8, global: u8 },
}

/// When slabs are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// At the first write to the row.
    #[default]
    Thin,
    /// When the space is created.
    Fixed,
}

/// A slab of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabPlace {
    /// The disk.
    pub disk: DiskNumber,
    /// The slab's number on the disk, from 0.
    pub slab: u32,
}

impl Resiliency {
    /// How many disks of a row may fail.
    pub fn failures(self) -> usize {
        match self {
            Resiliency::Simple => 0,
            Resiliency::Mirror { copies } => usize::from(copies) - 1,
            Resiliency::Parity { parity } => usize::from(parity),
            Resiliency::LocalParity { global, .. } => 1 + usize::from(global),
        }
    }

    /// The code of rows with `data` data columns. Returns `None` if they have no parity.
    pub fn code(self, data: usize) -> Option<Code> {
        match self {
            Resiliency::Simple | Resiliency::Mirror { .. } => None,
            Resiliency::Parity { parity } => Some(Code::new(data, 1, parity > 1)),
            Resiliency::LocalParity { groups, global } => {
                Some(Code::new(data, usize::from(groups), global > 0))
            }
        }
    }

    /// Whether its rows have parity columns.
    pub fn is_parity(self) -> bool {
        self.parity_columns() > 0
    }

    /// The number of parity columns of a row.
    pub fn parity_columns(self) -> usize {
        match self {
            Resiliency::Simple | Resiliency::Mirror { .. } => 0,
            Resiliency::Parity { parity } => usize::from(parity),
            Resiliency::LocalParity { groups, global } => usize::from(groups) + usize::from(global),
        }
    }

    /// The number of copies of each column.
    pub fn copies(self) -> usize {
        match self {
            Resiliency::Mirror { copies } => usize::from(copies),
            _ => 1,
        }
    }
}
