//! Bounds-checked reading, and the little-endian values of this crate's records.

use crate::WireError;

/// Reads little-endian values from a slice. Every read is bounds-checked; its error names the structure.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, at: 0, what }
    }

    /// Skips the 64-byte header and the StructureSize field, which must be `size`.
    #[inline]
    pub(crate) fn body(msg: &'a [u8], what: &'static str, size: u16) -> Result<Self, WireError> {
        let mut r = Self { bytes: msg, at: 0, what };
        r.skip(crate::header::HEADER_LEN)?;
        let found: u16 = r.get()?;
        if found != size {
            return Err(WireError::StructureSize { what, expected: size, found });
        }
        Ok(r)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            return Err(WireError::Truncated {
                what: self.what,
                need: self.at.saturating_add(len),
                have: self.bytes.len(),
            });
        };
        self.at += len;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    #[inline]
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), WireError> {
        self.take(len).map(|_| ())
    }

    #[inline]
    pub(crate) fn get<T: Field>(&mut self) -> Result<T, WireError> {
        T::get(self)
    }

    /// Skips to the next multiple of `align` from the start of the slice, or to its end.
    pub(crate) fn align(&mut self, align: usize) {
        self.at = self.at.next_multiple_of(align).min(self.bytes.len());
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    /// Returns the `len` bytes at `offset` from the start of the slice, which for messages is the SMB2 header.
    ///
    /// The offset of an empty range is ignored, because peers send arbitrary values there. A non-empty range must
    /// start after the bytes read so far: the variable part never overlaps the fixed part.
    #[inline]
    pub(crate) fn range(&self, offset: usize, len: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        if len == 0 {
            return Ok(&[]);
        }
        if offset < self.at {
            return Err(WireError::Malformed { what });
        }
        slice(self.bytes, offset, len, what)
    }
}

/// Returns `bytes[offset..offset + len]`, or `Truncated`.
#[inline]
pub(crate) fn slice<'a>(
    bytes: &'a [u8],
    offset: usize,
    len: usize,
    what: &'static str,
) -> Result<&'a [u8], WireError> {
    let end = offset.saturating_add(len);
    bytes.get(offset..end).ok_or(WireError::Truncated { what, need: end, have: bytes.len() })
}

/// A value of fixed size on the wire.
pub(crate) trait Field: Sized {
    /// Encoded length in bytes.
    const SIZE: usize;
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError>;
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! int_field {
    ($($t:ty),*) => {$(
        impl Field for $t {
            const SIZE: usize = size_of::<$t>();
            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
                Ok(<$t>::from_le_bytes(r.array()?))
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
int_field!(u8, u16, u32, u64, i32, i64);

impl<const N: usize> Field for [u8; N] {
    const SIZE: usize = N;
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.array()
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// One byte; every non-zero value is true.
impl Field for bool {
    const SIZE: usize = 1;
    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(r.array::<1>()?[0] != 0)
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

/// Appends `len` zero bytes.
#[inline]
pub(crate) fn zeros(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len, 0);
}

/// Pads `out` with zeros until its length from `start` is a multiple of `align`.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize, align: usize) {
    let len = out.len() - start;
    zeros(out, len.next_multiple_of(align) - len);
}

/// Overwrites the `u32` at the absolute offset `at`.
pub(crate) fn patch_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn fit_u16(len: usize, what: &'static str) -> Result<u16, WireError> {
    u16::try_from(len).map_err(|_| WireError::Unencodable { what, len, max: u16::MAX as usize })
}

pub(crate) fn fit_u32(len: usize, what: &'static str) -> Result<u32, WireError> {
    u32::try_from(len).map_err(|_| WireError::Unencodable { what, len, max: u32::MAX as usize })
}
