//! LOCK (MS-SMB2 2.2.26, 2.2.27).

use crate::cursor::{Field, Reader, fit_u16};
use crate::macros::{fixed_message, flag_set, record};
use crate::{Decode, Encode, FileId, MessageBuilder, WireError};

/// Locks in one request at most; MS-SMB2 names no bound, Windows refuses more than a message holds.
pub const MAX_LOCKS: usize = 64 * 1024 / LockElement::LEN;

flag_set! {
    /// Flags of one lock.
    pub struct LockFlags: u32 {
        /// Shared.
        const SHARED_LOCK = 1;
        /// Exclusive.
        const EXCLUSIVE_LOCK = 2;
        /// Unlock.
        const UNLOCK = 4;
        /// Fail rather than wait.
        const FAIL_IMMEDIATELY = 0x10;
    }
}

record! {
    /// SMB2_LOCK_ELEMENT (MS-SMB2 2.2.26.1).
    pub struct LockElement [24] {
        /// First byte.
        pub offset: u64,
        /// Bytes; may be 0.
        pub length: u64,
        /// What to do.
        pub flags: LockFlags => pad 4,
    }
}

/// The locks of a request.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LockElements<'a>(&'a [u8]);

impl<'a> LockElements<'a> {
    /// Wraps encoded elements ([`LockElement::encode`], one behind the other).
    ///
    /// # Errors
    /// `Malformed` when the length is not a multiple of [`LockElement::LEN`], `TooLarge` past [`MAX_LOCKS`].
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, WireError> {
        let len = bytes.len() / LockElement::LEN;
        if !bytes.len().is_multiple_of(LockElement::LEN) {
            return Err(WireError::malformed("LOCK elements"));
        }
        if len > MAX_LOCKS {
            return Err(WireError::TooLarge { what: "LOCK elements", len, max: MAX_LOCKS });
        }
        Ok(Self(bytes))
    }

    /// The locks in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = LockElement> + 'a {
        self.0.chunks_exact(LockElement::LEN).map(|c| LockElement::decode(c).unwrap_or_default())
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.len() / LockElement::LEN
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for LockElements<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// LOCK request (MS-SMB2 2.2.26).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockRequest<'a> {
    /// LockSequenceNumber (4 bits) and LockSequenceIndex (28 bits), for replays on resilient handles.
    pub lock_sequence: u32,
    /// The open.
    pub file_id: FileId,
    /// At least one.
    pub locks: LockElements<'a>,
}

impl LockRequest<'_> {
    /// LockSequenceNumber: the low four bits.
    pub const fn sequence_number(&self) -> u8 {
        (self.lock_sequence & 0xF) as u8
    }

    /// LockSequenceIndex: the high 28 bits.
    pub const fn sequence_index(&self) -> u32 {
        self.lock_sequence >> 4
    }
}

impl<'a> Decode<'a> for LockRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, "LOCK request", 48)?;
        let count = usize::from(r.get::<u16>()?);
        let lock_sequence = r.get()?;
        let file_id = r.get()?;
        // MS-SMB2 2.2.26: LockCount is at least 1.
        if count == 0 {
            return Err(WireError::malformed("LockCount"));
        }
        let locks = LockElements::from_bytes(r.take(count * LockElement::LEN)?)?;
        Ok(Self { lock_sequence, file_id, locks })
    }
}

impl Encode for LockRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let count = fit_u16(self.locks.len(), "LockCount")?;
        let out = m.out();
        48u16.put(out);
        count.put(out);
        self.lock_sequence.put(out);
        self.file_id.put(out);
        out.extend_from_slice(self.locks.0);
        Ok(())
    }
}

fixed_message! {
    /// LOCK response (MS-SMB2 2.2.27).
    pub struct LockResponse [4, "LOCK response", pad 2] {}
}
