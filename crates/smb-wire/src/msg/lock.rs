//! LOCK (MS-SMB2 2.2.26, 2.2.27).

use crate::cursor::{Field, Reader, fit_u16};
use crate::macros::{fixed_message, flag_set, record, record_list};
use crate::{Decode, Encode, FileId, MessageBuilder, WireError};

/// Maximum number of locks in one request. MS-SMB2 has no limit; Windows refuses more than fit into a message.
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
        /// Fail instead of waiting.
        const FAIL_IMMEDIATELY = 0x10;
    }
}

record! {
    /// SMB2_LOCK_ELEMENT (MS-SMB2 2.2.26.1).
    pub struct LockElement [24] {
        /// Offset of the first byte.
        pub offset: u64,
        /// Length in bytes; may be 0.
        pub length: u64,
        /// Lock or unlock, and the kind of lock.
        pub flags: LockFlags => pad 4,
    }
}

record_list! {
    /// The locks of a request.
    pub struct LockElements of LockElement, "LOCK elements"
}

/// LOCK request (MS-SMB2 2.2.26).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockRequest<'a> {
    /// LockSequenceNumber (4 bits) and LockSequenceIndex (28 bits), for replays on resilient handles.
    pub lock_sequence: u32,
    /// The open.
    pub file_id: FileId,
    /// The locks; at least one.
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
        if count > MAX_LOCKS {
            return Err(WireError::TooLarge { what: "LockCount", len: count, max: MAX_LOCKS });
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
        out.extend_from_slice(self.locks.as_bytes());
        Ok(())
    }
}

fixed_message! {
    /// LOCK response (MS-SMB2 2.2.27).
    pub struct LockResponse [4, "LOCK response", pad 2] {}
}
