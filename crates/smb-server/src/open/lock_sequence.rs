//! Detects resent LOCK requests (MS-SMB2 3.3.5.14): a client that lost its connection does not know whether its LOCK
//! was carried out. It numbers the requests in 64 buckets; one with the number last carried out in its bucket is
//! answered with success and has no effect.

/// The number last carried out in each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockSequences([u8; PLACES]);

/// MS-SMB2 3.3.1.10: buckets 1 to 64.
const PLACES: usize = 64;
/// No number: numbers have four bits.
const INVALID: u8 = 0xFF;

impl Default for LockSequences {
    fn default() -> LockSequences {
        LockSequences([INVALID; PLACES])
    }
}

impl LockSequences {
    /// Whether the request with this LockSequence field was carried out already. If its bucket has another number, the
    /// bucket is cleared.
    pub(crate) fn is_repeated(&mut self, field: u32) -> bool {
        let Some((place, number)) = self.place(field) else { return false };
        if *place == number {
            return true;
        }
        *place = INVALID;
        false
    }

    /// The request with this LockSequence field was carried out.
    pub(crate) fn note(&mut self, field: u32) {
        if let Some((place, number)) = self.place(field) {
            *place = number;
        }
    }

    /// The request with this LockSequence field was undone: a resent one is carried out.
    pub(crate) fn forget(&mut self, field: u32) {
        if let Some((place, _)) = self.place(field) {
            *place = INVALID;
        }
    }

    /// MS-SMB2 2.2.26: the low four bits are the number, the others the bucket; bucket 0 means none.
    fn place(&mut self, field: u32) -> Option<(&mut u8, u8)> {
        let at = (field >> 4).checked_sub(1)? as usize;
        Some((self.0.get_mut(at)?, (field & 0xF) as u8))
    }

    /// All buckets, to be stored.
    pub(crate) fn bytes(&self) -> &[u8; PLACES] {
        &self.0
    }

    /// Restores the buckets from their stored form.
    pub(crate) fn from_bytes(bytes: [u8; PLACES]) -> LockSequences {
        LockSequences(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-SMB2 3.3.5.14
    #[test]
    fn repeated_requests() {
        let field = |place: u32, number: u32| place << 4 | number;
        let mut s = LockSequences::default();
        assert!(!s.is_repeated(field(1, 3)));
        s.note(field(1, 3));
        assert!(s.is_repeated(field(1, 3)) && !s.is_repeated(field(2, 3)));
        assert!(!s.is_repeated(field(1, 4)), "another number");
        assert!(!s.is_repeated(field(1, 3)), "which made the old one invalid");
        for outside in [field(0, 1), field(65, 1)] {
            s.note(outside);
            assert!(!s.is_repeated(outside));
        }
        s.note(field(64, 15));
        assert!(LockSequences::from_bytes(*s.bytes()).is_repeated(field(64, 15)));
    }
}
