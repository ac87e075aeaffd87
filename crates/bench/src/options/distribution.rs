//! `-rd`: the distribution of random I/O over parts of the target.

use super::OptionError;
use super::size::{number32, size_prefix};
use crate::profile::{Distribution, Unit};

/// Maximum ranges: a share is at least one percent, and there may be holes between them.
const RANGES_MAX: usize = 256;

/// Parses the text after `-rd`: `pct90/10:5/20` or `abs90/10G:0/10G`.
pub(super) fn parse(text: &str, block: u32) -> Result<Distribution, OptionError> {
    let bad = |why| OptionError::Value { option: "-rd".to_owned(), value: text.to_owned(), why };
    let (unit, list) = if let Some(list) = text.strip_prefix("pct") {
        (Unit::Percent, list)
    } else if let Some(list) = text.strip_prefix("abs") {
        (Unit::Absolute, list)
    } else {
        return Err(bad("write -rdpct<IO%>/<target%>:... or -rdabs<IO%>/<size>:..."));
    };
    let mut pairs = Vec::new();
    for pair in list.split(':') {
        let (share, part) = pair.split_once('/').ok_or_else(|| bad("write a / between IO% and its part"))?;
        let io = match number32(share) {
            Some((n @ 0..=100, "")) => n,
            _ => return Err(bad("IO% must be a number from 0 to 100")),
        };
        let length = match unit {
            Unit::Percent => match number32(part) {
                Some((n @ 1..=100, "")) => u64::from(n),
                _ => return Err(bad("target% must be a number from 1 to 100")),
            },
            Unit::Absolute => match size_prefix("-rd", part, block)? {
                (0, _) => return Err(bad("the size of a part must not be 0")),
                (n, "") => n,
                _ => return Err(bad("not a size")),
            },
        };
        if pairs.len() >= RANGES_MAX {
            return Err(bad("too many parts"));
        }
        pairs.push((io, length));
    }
    Ok(Distribution::new(unit, &pairs))
}
