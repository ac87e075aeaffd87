//! NDR, 32-bit, little-endian (C706 chapter 14), limited to what this crate's calls need.

use super::ContextHandle;
use crate::cursor::{Field, Reader, fit_u16, fit_u32, pad};
use crate::security::Sid;
use crate::{Utf16Le, WireError};

/// Maximum number of characters of a string in a request, including the terminator: paths and server names are
/// shorter.
pub const MAX_NDR_STRING: usize = 32 * 1024;

/// Reads a stub.
#[derive(Debug, Clone)]
pub struct NdrReader<'a>(Reader<'a>);

impl<'a> NdrReader<'a> {
    /// Creates a reader at the start of `stub`.
    pub fn new(stub: &'a [u8]) -> Self {
        Self(Reader::new(stub, "NDR stub"))
    }

    /// Reads an aligned 32-bit value.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.0.align(4);
        self.0.get()
    }

    /// Reads an aligned 16-bit value; also used for an enumeration (C706 14.2.9).
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.0.align(2);
        self.0.get()
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.0.get()
    }

    /// Reads a context handle.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn handle(&mut self) -> Result<ContextHandle, WireError> {
        self.0.align(4);
        self.0.get()
    }

    /// Reads the element count of a conformant array.
    ///
    /// # Errors
    /// `Truncated`; `TooLarge` above `max`.
    pub fn count(&mut self, what: &'static str, max: usize) -> Result<usize, WireError> {
        let len = self.u32()? as usize;
        if len > max { Err(WireError::TooLarge { what, len, max }) } else { Ok(len) }
    }

    /// Reads the fixed part of an RPC_UNICODE_STRING (MS-DTYP 2.3.10).
    ///
    /// # Errors
    /// `Truncated`; `Malformed` for an odd length, or one above the maximum.
    pub fn string_header(&mut self) -> Result<StringHeader, WireError> {
        self.0.align(4);
        let (length, maximum) = (self.u16()?, self.u16()?);
        if length % 2 != 0 || length > maximum {
            return Err(WireError::malformed("RPC_UNICODE_STRING length"));
        }
        Ok(StringHeader { length, present: self.pointer()? })
    }

    /// Reads the characters that belong to `header`.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn string_buffer(&mut self, header: StringHeader) -> Result<Utf16Le<'a>, WireError> {
        if !header.present {
            return if header.length == 0 {
                Ok(Utf16Le::EMPTY)
            } else {
                Err(WireError::malformed("RPC_UNICODE_STRING buffer"))
            };
        }
        let (max, offset, len) = (self.u32()?, self.u32()?, self.u32()?);
        if offset != 0 || len > max || len != u32::from(header.length / 2) {
            return Err(WireError::malformed("RPC_UNICODE_STRING buffer"));
        }
        Utf16Le::new(self.0.take(header.length.into())?, "RPC_UNICODE_STRING")
    }

    /// Reads an RPC_UNICODE_STRING at the top level of a call.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn unicode_string(&mut self) -> Result<Utf16Le<'a>, WireError> {
        let header = self.string_header()?;
        self.string_buffer(header)
    }

    /// Reads an array of `count` RPC_UNICODE_STRINGs: first the fixed parts, then the characters.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn unicode_strings(&mut self, count: usize) -> Result<Vec<Utf16Le<'a>>, WireError> {
        // Does not preallocate: `count` is not trusted until the bytes have been read.
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push(self.string_header()?);
        }
        headers.into_iter().map(|header| self.string_buffer(header)).collect()
    }

    /// Reads an RPC_SID (MS-DTYP 2.4.2.3), which contains its count twice.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn sid(&mut self) -> Result<Sid, WireError> {
        let count = self.u32()?;
        let sid: Sid = Sid::decode(self.0.rest())?;
        self.0.skip(sid.len())?;
        if sid.sub_authorities().len() as u32 == count {
            Ok(sid)
        } else {
            Err(WireError::malformed("RPC_SID"))
        }
    }

    /// Reads a pointer; returns whether it is not null.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn pointer(&mut self) -> Result<bool, WireError> {
        self.u32().map(|referent| referent != 0)
    }

    /// Reads a conformant varying string; returns it without its terminator.
    ///
    /// # Errors
    /// Malformed input from the peer.
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

    /// Reads a unique pointer to a string at the top level of a call; the string follows immediately.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn unique_string(&mut self) -> Result<Option<Utf16Le<'a>>, WireError> {
        if self.pointer()? { self.string().map(Some) } else { Ok(None) }
    }

    /// Reads `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        self.0.take(len)
    }
}

/// The fixed part of an RPC_UNICODE_STRING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringHeader {
    /// Length in bytes.
    length: u16,
    /// Whether the buffer pointer is not null.
    present: bool,
}

/// Writes a stub at the end of a buffer.
#[derive(Debug)]
pub struct NdrWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
    referents: u32,
}

impl<'v> NdrWriter<'v> {
    /// Creates a writer. Alignment counts from the present end of `out`.
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start, referents: 0 }
    }

    /// An aligned 32-bit value.
    pub fn u32(&mut self, value: u32) {
        pad(self.out, self.start, 4);
        value.put(self.out);
    }

    /// An aligned 16-bit value.
    pub fn u16(&mut self, value: u16) {
        pad(self.out, self.start, 2);
        value.put(self.out);
    }

    /// Writes a 16-bit value that starts a structure with 32-bit members.
    pub fn u16_at_4(&mut self, value: u16) {
        pad(self.out, self.start, 4);
        value.put(self.out);
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// An OLD_LARGE_INTEGER: a 64-bit number in two aligned halves (MS-SAMR 2.2.2.2).
    pub fn old_large_integer(&mut self, value: i64) {
        self.u32(value as u32);
        self.u32((value >> 32) as u32);
    }

    /// A context handle.
    pub fn handle(&mut self, handle: ContextHandle) {
        pad(self.out, self.start, 4);
        handle.put(self.out);
    }

    /// Writes the fixed part of an RPC_UNICODE_STRING; an empty string has no buffer.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn string_header(&mut self, s: &str) -> Result<(), WireError> {
        let len = fit_u16(crate::len_utf16(s), "RPC_UNICODE_STRING")?;
        pad(self.out, self.start, 4);
        self.u16(len);
        self.u16(len);
        self.pointer(len != 0);
        Ok(())
    }

    /// Writes the characters that the pointer of [`NdrWriter::string_header`] refers to.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn string_buffer(&mut self, s: &str) -> Result<(), WireError> {
        let len = fit_u32(crate::len_utf16(s) / 2, "RPC_UNICODE_STRING")?;
        if len != 0 {
            self.u32(len);
            self.u32(0);
            self.u32(len);
            crate::put_str(self.out, s);
        }
        Ok(())
    }

    /// Writes an RPC_UNICODE_STRING with its characters.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn unicode_string(&mut self, s: &str) -> Result<(), WireError> {
        self.string_header(s)?;
        self.string_buffer(s)
    }

    /// Writes the fixed part of an RPC_STRING in the OEM code page (MS-SAMR 2.2.2.1). Only ASCII is used.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn oem_string_header(&mut self, s: &str) -> Result<(), WireError> {
        let len = fit_u16(s.chars().count(), "RPC_STRING")?;
        pad(self.out, self.start, 4);
        self.u16(len);
        self.u16(len);
        self.pointer(len != 0);
        Ok(())
    }

    /// Writes the characters that the pointer of [`NdrWriter::oem_string_header`] refers to; `?` replaces non-ASCII
    /// ones.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn oem_string_buffer(&mut self, s: &str) -> Result<(), WireError> {
        let len = fit_u32(s.chars().count(), "RPC_STRING")?;
        if len != 0 {
            self.u32(len);
            self.u32(0);
            self.u32(len);
            self.out.extend(s.chars().map(|c| if c.is_ascii() { c as u8 } else { b'?' }));
        }
        Ok(())
    }

    /// A GUID.
    pub fn guid(&mut self, guid: crate::Guid) {
        pad(self.out, self.start, 4);
        guid.put(self.out);
    }

    /// Writes a count, a pointer to an array of pointers to SIDs, and the SIDs: LSAPR_ACCOUNT_ENUM_BUFFER,
    /// SAMPR_PSID_ARRAY.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn sid_array(&mut self, sids: &[Sid]) -> Result<(), WireError> {
        let count = fit_u32(sids.len(), "SIDs")?;
        self.u32(count);
        self.pointer(count != 0);
        if count != 0 {
            self.u32(count);
            sids.iter().for_each(|_| self.pointer(true));
            sids.iter().for_each(|sid| self.sid(sid));
        }
        Ok(())
    }

    /// An RPC_SID.
    pub fn sid(&mut self, sid: &Sid) {
        self.u32(sid.sub_authorities().len() as u32);
        sid.encode(self.out);
    }

    /// Writes a pointer: a unique referent, or null.
    pub fn pointer(&mut self, present: bool) {
        if present {
            self.referents += 1;
            // Any value except 0 is valid; Microsoft's runtime starts with these.
            self.u32(0x0002_0000 + 4 * (self.referents - 1));
        } else {
            self.u32(0);
        }
    }

    /// Writes a conformant varying string with its terminator.
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

    /// Writes a unique pointer to a string at the top level of a call.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn unique_string(&mut self, s: Option<&str>) -> Result<(), WireError> {
        self.pointer(s.is_some());
        s.map_or(Ok(()), |s| self.string(s))
    }

    /// Writes a conformant array of bytes.
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
