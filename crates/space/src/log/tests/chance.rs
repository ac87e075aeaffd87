//! Pseudo-random numbers for tests, from a seed.

/// SplitMix64, without any other source of randomness.
#[derive(Clone, Debug)]
pub(in crate::log) struct Chance(pub(in crate::log) u64);

impl Chance {
    pub(in crate::log) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(in crate::log) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(in crate::log) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(in crate::log) fn fill(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.next() as u8).collect()
    }
}
