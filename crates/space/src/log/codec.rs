//! Little-endian numbers in bytes from a disk.

/// The bytes are not an encoding of any value, although their checksum may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not an encoding of any value of this version")]
pub struct Malformed;

/// The bytes that are not decoded yet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A position or a sequence.
    pub(super) fn counter(&mut self) -> Result<u64, Malformed> {
        self.u64().and_then(|value| if value < super::COUNTER_MAX { Ok(value) } else { Err(Malformed) })
    }

    /// Bytes that are reserved: one encoding for each value.
    pub(super) fn zeros(&mut self, bytes: usize) -> Result<(), Malformed> {
        if is_zeros(self.take(bytes)?) { Ok(()) } else { Err(Malformed) }
    }

    /// Checks that no bytes remain.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

pub(super) fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
