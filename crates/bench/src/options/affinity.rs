//! `-a`: the processors on which threads run, round robin: `-a0,2`, `-ag0,0,2,g1,5`.

use super::OptionError;
use crate::profile::Affinity;

/// Maximum assignments in a command line.
const ASSIGNMENTS_MAX: usize = 16_384;

/// Parses the text after `-a`; an empty text and `g` mean the default, round robin over all processors.
pub(super) fn parse(text: &str, into: &mut Vec<Affinity>) -> Result<(), OptionError> {
    if text.is_empty() || text == "g" {
        return Ok(());
    }
    let bad = || OptionError::Value {
        option: "-a".to_owned(),
        value: text.to_owned(),
        why: "write the numbers of processors with commas, and gN before those of group N: -a0,1 or -ag0,0,1,g1,0",
    };
    let (mut group, mut last_was_group) = (0u16, false);
    for part in text.split(',') {
        if into.len() >= ASSIGNMENTS_MAX {
            return Err(OptionError::TooMuch {
                what: "-a assignments",
                value: into.len() as u64 + 1,
                most: ASSIGNMENTS_MAX as u64,
            });
        }
        let digits = part.strip_prefix('g');
        let number = digits.unwrap_or(part);
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        if digits.is_some() {
            group = number.parse().map_err(|_| bad())?;
        } else {
            into.push(Affinity { group, processor: number.parse().map_err(|_| bad())? });
        }
        last_was_group = digits.is_some();
    }
    if last_was_group { Err(bad()) } else { Ok(()) }
}
