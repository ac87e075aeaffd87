//! ACL and ACE (MS-DTYP 2.4.4, 2.4.5).

use super::Sid;
use crate::cursor::{Field, Reader, fit_u16};
use crate::macros::{flag_set, open_enum};
use crate::{AccessMask, Guid, WireError};

/// Maximum number of entries in one list: a list has at most 64 KiB, an entry at least 16 bytes (MS-DTYP 2.4.5).
pub const MAX_ACES: usize = 64 * 1024 / 16;

open_enum! {
    /// The type of an entry.
    pub struct AceType(u8) {
        /// Allows.
        ACCESS_ALLOWED = 0,
        /// Denies.
        ACCESS_DENIED = 1,
        /// Audits.
        SYSTEM_AUDIT = 2,
        /// Allows, for an object type.
        ACCESS_ALLOWED_OBJECT = 5,
        /// Denies, for an object type.
        ACCESS_DENIED_OBJECT = 6,
        /// Audits, for an object type.
        SYSTEM_AUDIT_OBJECT = 7,
        /// Allows, on a condition.
        ACCESS_ALLOWED_CALLBACK = 9,
        /// Denies, on a condition.
        ACCESS_DENIED_CALLBACK = 10,
        /// Integrity label.
        SYSTEM_MANDATORY_LABEL = 0x11,
        /// Resource attribute.
        SYSTEM_RESOURCE_ATTRIBUTE = 0x12,
        /// Central access policy.
        SYSTEM_SCOPED_POLICY_ID = 0x13,
    }
}

impl AceType {
    const fn has_object(self) -> bool {
        matches!(self, Self::ACCESS_ALLOWED_OBJECT | Self::ACCESS_DENIED_OBJECT | Self::SYSTEM_AUDIT_OBJECT)
    }
}

flag_set! {
    /// Flags of an entry.
    pub struct AceFlags: u8 {
        /// Files below the directory inherit the entry.
        const OBJECT_INHERIT = 0x01;
        /// Directories below the directory inherit the entry.
        const CONTAINER_INHERIT = 0x02;
        /// An object that inherits the entry does not propagate it.
        const NO_PROPAGATE_INHERIT = 0x04;
        /// The entry does not apply to this object.
        const INHERIT_ONLY = 0x08;
        /// The entry was inherited.
        const INHERITED = 0x10;
        /// Audit success.
        const SUCCESSFUL_ACCESS = 0x40;
        /// Audit failure.
        const FAILED_ACCESS = 0x80;
    }
}

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ace<'a> {
    /// Type.
    pub ace_type: AceType,
    /// Flags.
    pub flags: AceFlags,
    /// Rights.
    pub mask: AccessMask,
    /// The object type and the inherited object type, for entry types that have them (MS-DTYP 2.4.4.3).
    pub object_types: (Option<Guid>, Option<Guid>),
    /// The trustee.
    pub sid: Sid,
    /// The data after the SID: a condition or an attribute, and padding.
    pub application_data: &'a [u8],
}

const ACE_HEADER_LEN: usize = 4;
const ACL_HEADER_LEN: usize = 8;

impl<'a> Ace<'a> {
    /// Creates an entry of a type without object types and application data.
    pub const fn new(ace_type: AceType, flags: AceFlags, mask: AccessMask, sid: Sid) -> Self {
        Self { ace_type, flags, mask, object_types: (None, None), sid, application_data: &[] }
    }

    /// Returns the entry at the start of `bytes`, and its length in bytes.
    fn take(bytes: &'a [u8]) -> Result<(Self, usize), WireError> {
        let mut r = Reader::new(bytes, "ACE");
        let (ace_type, flags): (AceType, _) = (r.get()?, r.get()?);
        let size = usize::from(r.get::<u16>()?);
        // MS-DTYP 2.4.4.1: AceSize is a multiple of 4 and includes the header.
        if size < ACE_HEADER_LEN || !size.is_multiple_of(4) {
            return Err(WireError::malformed("AceSize"));
        }
        let mut r = Reader::new(r.take(size - ACE_HEADER_LEN)?, "ACE");
        let mask = r.get()?;
        let mut object_types = (None, None);
        if ace_type.has_object() {
            let present: u32 = r.get()?;
            if present & 1 != 0 {
                object_types.0 = Some(r.get()?);
            }
            if present & 2 != 0 {
                object_types.1 = Some(r.get()?);
            }
        }
        let sid = Sid::decode(r.rest())?;
        r.skip(sid.len())?;
        Ok((Self { ace_type, flags, mask, object_types, sid, application_data: r.rest() }, size))
    }

    fn put(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let start = out.len();
        self.ace_type.put(out);
        self.flags.put(out);
        0u16.put(out);
        self.mask.put(out);
        if self.ace_type.has_object() {
            let (object, inherited) = self.object_types;
            (u32::from(object.is_some()) | u32::from(inherited.is_some()) << 1).put(out);
            object.iter().chain(inherited.iter()).for_each(|guid| guid.put(out));
        }
        self.sid.encode(out);
        out.extend_from_slice(self.application_data);
        crate::cursor::pad(out, start, 4);
        let size = fit_u16(out.len() - start, "ACE")?;
        out[start + 2..start + 4].copy_from_slice(&size.to_le_bytes());
        Ok(())
    }
}

/// A received access control list: its header has been checked; iterating decodes the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acl<'a> {
    bytes: &'a [u8],
    revision: u8,
    count: u16,
}

impl<'a> Acl<'a> {
    /// Decodes the list at the start of `bytes`.
    ///
    /// # Errors
    /// Malformed input from the peer; the entries are not checked.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "ACL");
        let revision: u8 = r.get()?;
        r.skip(1)?;
        let (size, count): (u16, u16) = (r.get()?, r.get()?);
        r.skip(2)?;
        // MS-DTYP 2.4.5: revision 2, or 4 with object entries.
        if !matches!(revision, 2 | 4) || usize::from(size) < ACL_HEADER_LEN {
            return Err(WireError::malformed("ACL header"));
        }
        if usize::from(count) > MAX_ACES {
            return Err(WireError::TooLarge { what: "AceCount", len: count.into(), max: MAX_ACES });
        }
        let bytes = crate::cursor::slice(bytes, 0, size.into(), "ACL")?;
        Ok(Self { bytes, revision, count })
    }

    /// The list's bytes, header included.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The revision: 2 or 4.
    pub const fn revision(self) -> u8 {
        self.revision
    }

    /// The announced number of entries.
    pub const fn len(self) -> usize {
        self.count as usize
    }

    /// Whether the list is empty: all access is denied.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The entries; ends after the first error.
    pub fn iter(self) -> impl Iterator<Item = Result<Ace<'a>, WireError>> + 'a {
        let mut rest = &self.bytes[ACL_HEADER_LEN..];
        let mut left = self.count;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            Some(
                Ace::take(rest)
                    .map(|(ace, size)| {
                        rest = &rest[size..];
                        ace
                    })
                    .inspect_err(|_| left = 0),
            )
        })
    }
}

/// An access control list that is being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclBuf {
    bytes: Vec<u8>,
    count: u16,
}

impl Default for AclBuf {
    fn default() -> Self {
        Self { bytes: vec![2, 0, ACL_HEADER_LEN as u8, 0, 0, 0, 0, 0], count: 0 }
    }
}

impl AclBuf {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Unencodable` past 65,535 bytes; the list is then unchanged.
    pub fn push(&mut self, ace: &Ace<'_>) -> Result<&mut Self, WireError> {
        let len = self.bytes.len();
        let size = ace.put(&mut self.bytes).and_then(|()| fit_u16(self.bytes.len(), "ACL"));
        let size = size.inspect_err(|_| self.bytes.truncate(len))?;
        self.count += 1;
        if ace.ace_type.has_object() {
            self.bytes[0] = 4;
        }
        self.bytes[2..4].copy_from_slice(&size.to_le_bytes());
        self.bytes[4..6].copy_from_slice(&self.count.to_le_bytes());
        Ok(self)
    }

    /// Borrows the list.
    pub fn as_acl(&self) -> Acl<'_> {
        Acl { bytes: &self.bytes, revision: self.bytes[0], count: self.count }
    }

    /// The list's bytes, header included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Acl<'_>> for AclBuf {
    fn from(acl: Acl<'_>) -> Self {
        Self { bytes: acl.bytes.to_vec(), count: acl.count }
    }
}
