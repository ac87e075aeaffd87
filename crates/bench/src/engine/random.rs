//! The generator of offsets and contents: xoshiro256** (Blackman and Vigna, public domain), from one seed.
//!
//! A thread's numbers depend on its seed only, so a run with the same seed goes through the same offsets.

/// Pseudo-random numbers; not for keys.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Numbers from a seed.
    pub fn new(seed: u64) -> Random {
        // splitmix64 spreads the seed over the state, which must not be all zero.
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(x)
        });
        Random { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A uniformly distributed number below `bound`, which must be at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire: the high half of the product; repeated while the low half is in the biased range.
        let bound = bound.max(1);
        let mut product = u128::from(self.bits()) * u128::from(bound);
        if (product as u64) < bound {
            let uneven = bound.wrapping_neg() % bound;
            while (product as u64) < uneven {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// Returns true with a probability of `percent` percent.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        let mut words = out.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.bits().to_le_bytes());
        }
        let rest = words.into_remainder();
        let last = self.bits().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// The finalizer of splitmix64: every bit of the result depends on every bit of `x`.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_seeds_differ() {
        let run = |seed| {
            let mut r = Random::new(seed);
            (0..64).map(|_| r.bits()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_ne!(run(0)[0], 0);
    }

    #[test]
    fn numbers_are_below_their_bound_and_even() {
        let mut r = Random::new(5);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[r.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert_eq!(r.below(1), 0);
        assert!((0..1000).all(|_| !r.percent(0)) && (0..1000).all(|_| r.percent(100)));
    }
}
