//! The disks and spaces of a history.

use std::time::Duration;

use pool::SpaceRecord;
use pool_seam::{MediaClass, Provisioning, Resiliency, RowShape};

use super::random::Random;
use super::row_shapes;

const MIB: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) disks: u16,
    pub(super) spaces: Vec<SpaceRecord>,
    /// The longest delay of an I/O; `None`: all I/O completes at once.
    pub(super) delay: Option<Duration>,
    /// A fence by one process blocks the other processes; otherwise only the lease protects the pool.
    pub(super) is_fenced: bool,
    /// Disks are removed, damaged and rolled back.
    pub(super) has_mishaps: bool,
    /// Jobs change the number of copies of spaces.
    pub(super) shapes_change: bool,
    /// Jobs convert spaces to any other shape.
    pub(super) has_conversions: bool,
    /// A disk is taken offline beside one that was rolled back.
    pub(super) removes_second_disk: bool,
}

impl Shape {
    pub(super) fn of(random: &mut Random) -> Shape {
        let disks = match random.below(24) {
            0 => 7,
            n => 3 + (n % 4) as u16,
        };
        let spaces = match random.below(8) {
            0..5 => 1,
            5..7 => 2,
            _ => 3,
        };
        // If spaces have no redundancy, all spaces of the history are such: no disk may be lost.
        let is_simple = random.one_in(10);
        let spaces: Vec<_> = (0..spaces).map(|n| space(n, disks, is_simple, random)).collect();
        let delay = (!random.one_in(5)).then(|| Duration::from_millis(1 + random.below(4)));
        let is_fenced = !random.one_in(3);
        let (shapes_change, has_conversions, removes_second_disk) = (false, false, false);
        let has_mishaps = !is_simple;
        Shape {
            disks,
            spaces,
            delay,
            is_fenced,
            has_mishaps,
            shapes_change,
            has_conversions,
            removes_second_disk,
        }
    }

    /// The shapes that a space may get.
    pub(super) fn shapes_of(&self, space: usize) -> Vec<RowShape> {
        match self.shapes_change {
            true => row_shapes::of(&self.spaces[space], self.disks, self.has_conversions),
            false => Vec::new(),
        }
    }

    /// Whether a space is a mirror at any time.
    pub(super) fn is_mirrored(&self, space: usize) -> bool {
        let own = self.spaces[space].shape();
        let is_mirror = |shape: &RowShape| matches!(shape.resiliency, Resiliency::Mirror { .. });
        is_mirror(&own) || self.has_conversions && self.shapes_of(space).iter().any(is_mirror)
    }

    /// How many disks may be bad at a time.
    pub(super) fn budget(&self) -> usize {
        // A majority of the voters must remain.
        let voters = if self.disks < 5 { 1 } else { 2 };
        let least = |space: usize| self.shapes_of(space).iter().map(|to| to.resiliency.failures()).min();
        let spaces = self.spaces.iter().enumerate().map(|(space, record)| {
            let failures = record.resiliency.failures();
            least(space).map_or(failures, |least| failures.min(least))
        });
        spaces.min().unwrap_or(0).min(voters)
    }
}

fn space(number: u64, disks: u16, is_simple: bool, random: &mut Random) -> SpaceRecord {
    let (mirror, parity) = (|copies| Resiliency::Mirror { copies }, |parity| Resiliency::Parity { parity });
    let resiliency = match (random.below(6), disks) {
        _ if is_simple => Resiliency::Simple,
        (_, 7..) if number == 0 => Resiliency::LocalParity { groups: 2, global: 1 },
        (0 | 1, _) | (_, 3) => mirror(2),
        (2, _) => mirror(3),
        (5, 5..) => parity(2),
        _ => parity(1),
    };
    let columns: u8 = match resiliency {
        Resiliency::LocalParity { .. } => 4,
        Resiliency::Parity { .. } => 3,
        _ => 1 + u8::from(disks >= 4 && random.one_in(3) && resiliency == mirror(2)),
    };
    SpaceRecord {
        name: format!("space{number}"),
        size: 2 * MIB * u64::from(columns) * (2 + random.below(3)),
        resiliency,
        interleave: 16 << 10 << (2 * random.below(2)),
        columns,
        provisioning: Provisioning::Thin,
        media: MediaClass::ANY,
        ..SpaceRecord::default()
    }
}
