//! The kernel's parameters for a disk.

use arena::CHUNK_MIN;
use disk::DiskInfo;

use crate::abi::{
    ATTRIBUTE_FUA, ATTRIBUTE_READ_ONLY, ATTRIBUTE_ROTATIONAL, ATTRIBUTE_VOLATILE_CACHE, Parameters, SECTOR,
};
use crate::{Error, TRANSFER_MAX};

/// The properties that a disk does not report about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Writes are refused.
    pub read_only: bool,
    /// Discarded blocks read as zeros (true for a space; not for every physical disk).
    pub discard_zeros: bool,
}

/// The limits against which every request is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// In bytes.
    pub(crate) size: u64,
    /// The block size in bytes: offsets and lengths are multiples.
    pub(crate) block: u64,
    /// The longest payload, in bytes.
    pub(crate) transfer_max: u64,
    pub(crate) read_only: bool,
}

/// The longest discard and the longest write of zeroes, in bytes, so that neither takes longer than a large
/// write.
const DISCARD_MAX: u64 = 1 << 30;
pub(crate) const ZEROES_MAX: u64 = 64 << 20;

/// The driver supports logical blocks from 512 bytes to a page.
const BLOCK_MIN: u32 = 512;
const BLOCK_MAX: u32 = 4096;

/// The parameters and limits of a disk, if `memory` bytes are available for all payload.
///
/// # Errors
/// `Unfit`.
pub(crate) fn of(info: &DiskInfo, options: &Options, memory: u64) -> Result<(Parameters, Bounds), Error> {
    let geometry = info.geometry;
    let block = geometry.logical_block;
    if !(BLOCK_MIN..=BLOCK_MAX).contains(&block) || !block.is_power_of_two() {
        return Err(Error::Unfit { block });
    }
    let physical = geometry.physical_block.max(block);
    // Of four concurrent transfers at least one has memory to proceed.
    let page = CHUNK_MIN as u64;
    let transfer_max = (u64::from(TRANSFER_MAX).min(memory / 4) / page * page).max(page);
    let logical_shift = block.trailing_zeros() as u8;
    let physical_shift = physical.trailing_zeros() as u8;
    // The driver accepts only powers of two: the largest one that divides the stripe.
    let stripe = info.layout.map_or(0, |layout| layout.stripe);
    let stripe_shift = if stripe == 0 { 0 } else { stripe.trailing_zeros().min(30) as u8 };
    let mut attributes = ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA;
    for (is, attribute) in [(options.read_only, ATTRIBUTE_READ_ONLY), (info.rotational, ATTRIBUTE_ROTATIONAL)]
    {
        attributes |= if is { attribute } else { 0 };
    }
    let sectors = |bytes: u64| (bytes / SECTOR) as u32;
    let parameters = Parameters {
        attributes,
        logical_shift,
        physical_shift,
        optimal_shift: stripe_shift.max(physical_shift),
        minimal_shift: physical_shift,
        transfer_sectors: sectors(transfer_max),
        sectors: geometry.size / SECTOR,
        discard_granularity: block,
        discard_sectors: sectors(DISCARD_MAX),
        zeroes_sectors: sectors(ZEROES_MAX),
    };
    let bounds =
        Bounds { size: geometry.size, block: u64::from(block), transfer_max, read_only: options.read_only };
    Ok((parameters, bounds))
}

#[cfg(test)]
mod tests {
    use disk::{Disk, Layout, MemoryDisk, MemoryOptions};

    use super::*;

    fn info() -> DiskInfo {
        MemoryDisk::new(&MemoryOptions::new("ublk", 64 << 20)).info().clone()
    }

    #[test]
    fn a_disk_becomes_a_device() {
        let mut info = info();
        info.rotational = false;
        info.layout = Some(Layout { stripe: 3 * (256 << 10), row: 3 << 30, failures: 1 });
        let options = Options::default();
        let (p, bounds) = of(&info, &options, 256 << 20).expect("fit");
        assert_eq!(p.attributes, ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA, "or the kernel sends no FLUSH");
        assert_eq!((p.logical_shift, p.sectors), (12, (64 << 20) / 512));
        assert_eq!(p.optimal_shift, 18, "three columns are no power of two: their interleave is");
        assert_eq!((p.transfer_sectors, bounds.transfer_max), (2048, 1 << 20));
        assert_eq!((p.discard_granularity, p.discard_sectors), (4096, 1 << 21));
        info.rotational = true;
        let (p, bounds) = of(&info, &Options { read_only: true, ..options }, 256 << 20).expect("fit");
        assert_eq!(p.attributes & 3, ATTRIBUTE_READ_ONLY | ATTRIBUTE_ROTATIONAL);
        assert!(bounds.read_only);
    }

    #[test]
    fn unknown_and_odd_stripes_are_at_least_a_block() {
        for stripe in [0, 512, 3 << 10] {
            let info = DiskInfo { layout: Some(Layout { stripe, row: 1 << 30, failures: 1 }), ..info() };
            let (p, _) = of(&info, &Options::default(), 256 << 20).expect("fit");
            assert_eq!(p.optimal_shift, p.physical_shift, "{stripe}");
        }
    }

    #[test]
    fn transfers_fit_into_memory() {
        for (memory, expected) in [(1 << 20, 256 << 10), (10_000, 4096), (0, 4096), (1 << 40, 1 << 20)] {
            let (p, bounds) = of(&info(), &Options::default(), memory).expect("fit");
            assert_eq!(bounds.transfer_max, expected, "{memory}");
            assert_eq!(u64::from(p.transfer_sectors) * 512, expected);
        }
    }

    #[test]
    fn blocks_that_the_kernel_does_not_take_are_refused() {
        for block in [0, 256, 520, 8192] {
            let mut info = info();
            info.geometry.logical_block = block;
            let refused = of(&info, &Options::default(), 1 << 30);
            assert!(matches!(refused, Err(Error::Unfit { block: b }) if b == block), "{block}");
        }
    }
}
