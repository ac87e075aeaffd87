//! A copy's block for regions that memory does not know, or not for certain: its present contents are kept.
//!
//! A block has one generation for all of its regions, and a flush gives it a new one. In a region without
//! doubt current copies agree, whatever their generations. So a disagreeing older block is stale (it has lost
//! writes, or was misread): with a new generation it would look as new as the newer one. It is not stamped
//! with the new generation.

use disk::DiskError;

use super::copies::Copy;
use super::flush::BadBlock;
use super::load::Block;
use super::resolve::is_silence;
use crate::REGIONS;
use crate::blocks::Units;
use crate::blocks::checksums::Table;

/// Regions of a block that a table in memory does not cover.
#[derive(Clone, Copy)]
pub(super) struct Untold {
    /// All of them.
    pub(super) regions: u64,
    /// Those in doubt: a crash may have kept the newest block from a copy that has all else.
    pub(super) doubtful: u64,
}

/// The table, completed with the copy's own block for regions that memory does not cover; `None` if memory
/// covers all. `said` has the blocks of the copies that are current in one of them.
///
/// # Errors
/// When its disk does not answer: the block is not overwritten, since it may be read another time.
pub(super) fn with_own(
    table: &Table,
    copy: &Copy,
    untold: Untold,
    said: &[Block<'_>],
    units_of: impl Fn(u64) -> Units,
) -> Result<Option<Box<Table>>, DiskError> {
    let regions = untold.regions & copy.current();
    let Some((_, own)) = said.iter().find(|(c, _)| c.index == copy.index).filter(|_| regions != 0) else {
        return Ok(None);
    };
    let mut merged = Box::new(table.clone());
    let (generation, own) = match own {
        Ok((generation, own)) => (*generation, own),
        Err(BadBlock::Disk(error)) if is_silence(error) => return Err(*error),
        Err(_) => {
            merged.lost = merged.lost.or(&units_of(regions));
            return Ok(Some(merged));
        }
    };
    for region in (0..REGIONS).map(|r| 1 << r).filter(|r| regions & r != 0) {
        let units = units_of(region);
        let told = said.iter().filter(|(c, _)| c.is_current(region)).filter_map(|(_, b)| b.as_ref().ok());
        let newest = told.max_by_key(|(generation, _)| *generation);
        let behind = u64::from(untold.doubtful & region != 0);
        match newest.filter(|(newest, _)| *newest > generation + behind) {
            // The next reader compares these units with the data.
            Some((_, newest)) => {
                merged.take(newest, &units);
                merged.lost = merged.lost.or(&newest.differ(own, &units));
            }
            None => merged.take(own, &units),
        }
    }
    Ok(Some(merged))
}
