//! Records of the metadata that the coordinator and the owners of spaces read, and that every version of the format
//! has. Times are seconds since 1970.

use crate::code::Code;
use crate::{DiskNumber, RowNumber};

/// Why a disk is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was not there when the pool was opened.
    NotFound,
    /// It went away while it was in use.
    Gone,
    /// A write failed.
    WriteFailed,
    /// A flush failed: acknowledged writes since the last flush may be lost.
    FlushFailed,
    /// Its I/O took too long, again and again.
    Slow,
    /// By command.
    Asked,
    /// Its label was older than the pool's memory of it.
    Stale,
}

/// Where a disk stands, from near to far; an empty name is one that is not known, and then the disk is its own domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultDomains {
    /// The enclosure.
    pub enclosure: String,
    /// The machine.
    pub node: String,
    /// The rack.
    pub rack: String,
}

/// How far the reading of all copies of a space (scrub) is, and what the last one found. Times are seconds
/// since 1970, 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// When the current one began; 0: none.
    pub began: u64,
    /// Whether it was requested by command.
    pub asked: bool,
    /// The first row that it has not read.
    pub next: RowNumber,
    /// Units that it repaired.
    pub healed: u64,
    /// Units that it found on no copy.
    pub lost: u64,
    /// When the last one ended.
    pub ended: u64,
    /// Units that the last one repaired.
    pub last_healed: u64,
    /// Units that the last one found on no copy.
    pub last_lost: u64,
    /// From when the time until the next is counted.
    pub since: u64,
}

/// How a space survives failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub enum Resiliency {
    /// It does not.
    #[default]
    Simple,
    /// This many copies: 2 or 3.
    Mirror { copies: u8 },
    /// Reed-Solomon: 1 or 2 parity columns beside the data columns.
    Parity { parity: u8 },
    /// Local reconstruction: the data columns in groups of the same size, a parity column for each, and
    /// global ones. It survives the loss of any two columns, and one that is lost is made from the others of
    /// its group. So far 2 groups and 1 global column.
    LocalParity { groups: u8, global: u8 },
}

/// When slabs are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// At the first write.
    #[default]
    Thin,
    /// When the space is made.
    Fixed,
}

/// A slab of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabPlace {
    /// The disk.
    pub disk: DiskNumber,
    /// Its slab, from 0.
    pub slab: u32,
}

impl Resiliency {
    /// How many disks of a row may be lost.
    pub fn failures(self) -> usize {
        match self {
            Resiliency::Simple => 0,
            Resiliency::Mirror { copies } => usize::from(copies) - 1,
            Resiliency::Parity { parity } => usize::from(parity),
            Resiliency::LocalParity { global, .. } => 1 + usize::from(global),
        }
    }

    /// Whether a space of this resiliency may get the other one: its rows keep their columns, and each gets more or fewer
    /// copies. From or to parity no row could keep its data.
    pub fn can_become(self, other: Resiliency) -> bool {
        self == other || !self.is_parity() && !other.is_parity()
    }

    /// The code of rows with this many data columns; `None`: they have no parity.
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

    /// Parity columns of a row.
    pub fn parity_columns(self) -> usize {
        match self {
            Resiliency::Simple | Resiliency::Mirror { .. } => 0,
            Resiliency::Parity { parity } => usize::from(parity),
            Resiliency::LocalParity { groups, global } => usize::from(groups) + usize::from(global),
        }
    }

    /// Copies of each column.
    pub fn copies(self) -> usize {
        match self {
            Resiliency::Mirror { copies } => usize::from(copies),
            _ => 1,
        }
    }
}
