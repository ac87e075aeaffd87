//! What a copy's block is to say of regions that memory does not know, or not for certain: no more than it says now.
//!
//! A block has one generation for all of its regions, and a flush gives it a new one. Of a region that is in no doubt current copies say the same, whatever
//! their generations. So who is older than another there, and says something else, has lost writes, or did not read what is on it: with a new generation that
//! would look as new as what the other says. It is not given one.

use disk::DiskError;

use super::copies::Copy;
use super::flush::BadBlock;
use super::load::Block;
use super::resolve::is_silence;
use crate::REGIONS;
use crate::blocks::Units;
use crate::blocks::checksums::Table;

/// Regions that a table in memory does not tell a block about.
#[derive(Clone, Copy)]
pub(super) struct Untold {
    /// All of them.
    pub(super) regions: u64,
    /// Those in doubt: a crash may have kept the newest block from a copy that has all else.
    pub(super) doubtful: u64,
}

/// The table with what the copy says of regions that it is not told about; `None` when it is told about all of its own. `said` has the blocks of the copies that are
/// current in one of them.
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
            // Whoever reads it next compares these units with the data.
            Some((_, newest)) => {
                merged.take(newest, &units);
                merged.lost = merged.lost.or(&newest.differ(own, &units));
            }
            None => merged.take(own, &units),
        }
    }
    Ok(Some(merged))
}
