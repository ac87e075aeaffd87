//! SplitMix64, without any shared state: the draws of one part of a history do not affect the other parts.

use disk::PowerCut;

/// See the module.
#[derive(Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed ^ 0x706f_6f6c_7369_6d00)
    }

    /// Another generator with an independent sequence.
    pub(super) fn fork(&mut self) -> Random {
        Random(self.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len().max(1) as u64) as usize;
        of.get(at)
    }

    /// Draws a kind of power cut.
    pub(super) fn cut(&mut self) -> PowerCut {
        match self.below(5) {
            0 | 1 => PowerCut::LoseAll,
            2 => PowerCut::KeepAll,
            3 => PowerCut::Reorder { seed: self.next() },
            _ => PowerCut::Tear { seed: self.next() },
        }
    }
}
