//! No input panics: every parser gets random bytes, and recorded messages that were truncated, modified or
//! extended.

#[path = "support/parsers.rs"]
mod parsers;
#[path = "support/recode.rs"]
mod recode;
#[path = "support/recordings.rs"]
mod recordings;

use parsers::FAMILIES;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

/// The unchanged recordings, and their bodies after a byte that selects the command.
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut seeds = vec![vec![0; 256], vec![0xFF; 256]];
    for bytes in recordings::all().into_values() {
        if bytes.len() > 64 {
            let mut body = vec![bytes[12]];
            body.extend_from_slice(&bytes[64..]);
            seeds.push(body);
        }
        seeds.push(bytes);
    }
    seeds
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn noise(bytes in vec(any::<u8>(), 0..300)) {
        FAMILIES.iter().for_each(|(_, parse)| parse(&bytes));
    }

    /// Small numbers produce offsets and lengths that are almost valid.
    #[test]
    fn noise_of_small_numbers(bytes in vec(prop_oneof![3 => Just(0u8), 2 => 0u8..48, 1 => any::<u8>()], 0..300)) {
        FAMILIES.iter().for_each(|(_, parse)| parse(&bytes));
    }

    #[test]
    fn recordings_changed(
        which in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        more in vec(any::<u8>(), 0..16),
    ) {
        let mut bytes = which.get(&SEEDS).clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        FAMILIES.iter().for_each(|(_, parse)| parse(&bytes));
        bytes.truncate(cut.index(bytes.len() + 1));
        FAMILIES.iter().for_each(|(_, parse)| parse(&bytes));
        bytes.extend(more);
        FAMILIES.iter().for_each(|(_, parse)| parse(&bytes));
    }
}

/// Inputs that were found by fuzzing or chosen by hand.
#[test]
fn regressions() {
    let mut files = 0;
    for (family, parse) in FAMILIES {
        for bytes in recordings::folder(&format!("regressions/{family}")).into_values() {
            parse(&bytes);
            files += 1;
        }
    }
    assert!(files >= 5, "the folder is there");
}
