//! NDR in 32 bits, little-endian (C706 chapter 14), as far as the calls here need it.

use crate::cursor::{Field, Reader, fit_u32, pad};
use crate::{Utf16Le, WireError};

/// Characters of a string in a request at most, terminator included: paths and server names are shorter.
pub const MAX_NDR_STRING: usize = 32 * 1024;

/// Reads a stub.
#[derive(Debug, Clone)]
pub struct NdrReader<'a>(Reader<'a>);

impl<'a> NdrReader<'a> {
    /// A reader at the start of `stub`.
    pub fn new(stub: &'a [u8]) -> Self {
        Self(Reader::new(stub, "NDR stub"))
    }

    /// An aligned 32-bit value.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.0.align(4);
        self.0.get()
    }

    /// Whether a pointer is not null.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn pointer(&mut self) -> Result<bool, WireError> {
        self.u32().map(|referent| referent != 0)
    }

    /// A conformant varying string, without its terminator.
    ///
    /// # Errors
    /// What is wrong with the peer's bytes.
    pub fn string(&mut self) -> Result<Utf16Le<'a>, WireError> {
        let (max, offset, len) = (self.u32()?, self.u32()?, self.u32()? as usize);
        if offset != 0 || len > max as usize {
            return Err(WireError::malformed("NDR string"));
        }
        if len > MAX_NDR_STRING {
            return Err(WireError::TooLarge { what: "NDR string", len, max: MAX_NDR_STRING });
        }
        let bytes = self.0.take(len * 2)?;
        Utf16Le::new(bytes.strip_suffix(&[0, 0]).unwrap_or(bytes), "NDR string")
    }

    /// A unique pointer to a string at the top level of a call: the string follows at once.
    ///
    /// # Errors
    /// What is wrong with the peer's bytes.
    pub fn unique_string(&mut self) -> Result<Option<Utf16Le<'a>>, WireError> {
        if self.pointer()? { self.string().map(Some) } else { Ok(None) }
    }

    /// `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        self.0.take(len)
    }
}

/// Writes a stub at the end of a buffer.
#[derive(Debug)]
pub struct NdrWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    referents: u32,
}

impl<'v> NdrWriter<'v> {
    /// A writer whose alignment counts from the end of `out`.
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start, referents: 0 }
    }

    /// An aligned 32-bit value.
    pub fn u32(&mut self, value: u32) {
        pad(self.out, self.start, 4);
        value.put(self.out);
    }

    /// A pointer: a referent that no other has, or null.
    pub fn pointer(&mut self, present: bool) {
        if present {
            self.referents += 1;
            // Any number but 0 will do; these are the ones that Microsoft's runtime starts with.
            self.u32(0x0002_0000 + 4 * (self.referents - 1));
        } else {
            self.u32(0);
        }
    }

    /// A conformant varying string with its terminator.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn string(&mut self, s: &str) -> Result<(), WireError> {
        let len = fit_u32(crate::len_utf16(s) / 2 + 1, "NDR string")?;
        self.u32(len);
        self.u32(0);
        self.u32(len);
        crate::put_str(self.out, s);
        0u16.put(self.out);
        Ok(())
    }

    /// A unique pointer to a string at the top level of a call.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn unique_string(&mut self, s: Option<&str>) -> Result<(), WireError> {
        self.pointer(s.is_some());
        s.map_or(Ok(()), |s| self.string(s))
    }

    /// A conformant array of bytes.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let len = fit_u32(bytes.len(), "NDR bytes")?;
        self.u32(len);
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}
