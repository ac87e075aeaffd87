//! NDR in 32 bits, little-endian (C706 chapter 14): the part that the calls here need.

use super::ContextHandle;
use crate::cursor::{Field, Reader, fit_u16, fit_u32, pad};
use crate::security::Sid;
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

    /// An aligned 16-bit value; an enumeration has this size too (C706 14.2.9).
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.0.align(2);
        self.0.get()
    }

    /// A byte.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.0.get()
    }

    /// A context handle.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn handle(&mut self) -> Result<ContextHandle, WireError> {
        self.0.align(4);
        self.0.get()
    }

    /// The element count of a conformant array.
    ///
    /// # Errors
    /// `Truncated`; `TooLarge` above `max`.
    pub fn count(&mut self, what: &'static str, max: usize) -> Result<usize, WireError> {
        let len = self.u32()? as usize;
        if len > max { Err(WireError::TooLarge { what, len, max }) } else { Ok(len) }
    }

    /// The fixed part of an RPC_UNICODE_STRING (MS-DTYP 2.3.10).
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

    /// The characters that belong to `header`.
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

    /// An RPC_UNICODE_STRING at the top level of a call.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn unicode_string(&mut self) -> Result<Utf16Le<'a>, WireError> {
        let header = self.string_header()?;
        self.string_buffer(header)
    }

    /// An array of RPC_UNICODE_STRING, `count` of them: first the fixed parts, then the characters.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn unicode_strings(&mut self, count: usize) -> Result<Vec<Utf16Le<'a>>, WireError> {
        // Not allocated for `count` elements before their bytes are known to be there.
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push(self.string_header()?);
        }
        headers.into_iter().map(|header| self.string_buffer(header)).collect()
    }

    /// An RPC_SID (MS-DTYP 2.4.2.3): its count comes twice.
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

    /// A unique pointer to a string at the top level of a call: the string follows at once.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn unique_string(&mut self) -> Result<Option<Utf16Le<'a>>, WireError> {
        if self.pointer()? { self.string().map(Some) } else { Ok(None) }
    }

    /// `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        self.0.take(len)
    }
}

/// The fixed part of an RPC_UNICODE_STRING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringHeader {
    /// Bytes.
    length: u16,
    /// The buffer is not null.
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

    /// An aligned 16-bit value.
    pub fn u16(&mut self, value: u16) {
        pad(self.out, self.start, 2);
        value.put(self.out);
    }

    /// A 16-bit value that begins a structure with 32-bit members.
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

    /// The fixed part of an RPC_UNICODE_STRING; an empty one has no buffer.
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

    /// The characters that the pointer of [`NdrWriter::string_header`] points to.
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

    /// An RPC_UNICODE_STRING by itself.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn unicode_string(&mut self, s: &str) -> Result<(), WireError> {
        self.string_header(s)?;
        self.string_buffer(s)
    }

    /// The fixed part of an RPC_STRING in the OEM code page (MS-SAMR 2.2.2.1), of which only ASCII is used.
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

    /// The characters that the pointer of [`NdrWriter::oem_string_header`] points to: `?` for those that are not ASCII.
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

    /// A count, a pointer to an array of pointers to SIDs, and the SIDs: LSAPR_ACCOUNT_ENUM_BUFFER, SAMPR_PSID_ARRAY.
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

    /// A pointer: a referent that no other has, or null.
    pub fn pointer(&mut self, present: bool) {
        if present {
            self.referents += 1;
            // Any number but 0 is valid; Microsoft's runtime starts with these.
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
