//! A small seeded generator (SplitMix64) for simulated faults, with a separate stream for each purpose so
//! that one fault does not shift the others. Not for keys.

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A separate stream for each `name`.
    pub(crate) fn stream(seed: u64, name: u64) -> Random {
        let mut r = Random(seed ^ name.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Random(r.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}
