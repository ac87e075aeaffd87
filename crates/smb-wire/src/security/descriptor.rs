//! SECURITY_DESCRIPTOR, self-relative (MS-DTYP 2.4.6).
//!
//! ```text
//! 0 revision 1   1 sbz   2 control (u16)   4 owner   8 group   12 SACL   16 DACL (offsets, u32, 0 = none)   20 parts
//! ```

use super::{Acl, AclBuf, Sid};
use crate::WireError;
use crate::cursor::{Field, Reader, patch_u32};
use crate::macros::flag_set;
use crate::msg::SecurityInformation;

/// Maximum length of a descriptor in bytes: two lists of 64 KiB and two SIDs.
pub const MAX_SECURITY_DESCRIPTOR: usize = 2 * 64 * 1024 + 256;

flag_set! {
    /// Control of a descriptor.
    pub struct ControlFlags: u16 {
        /// The owner is a default.
        const OWNER_DEFAULTED = 0x0001;
        /// The group is a default.
        const GROUP_DEFAULTED = 0x0002;
        /// There is a DACL; without an offset it is the null DACL, which allows all access.
        const DACL_PRESENT = 0x0004;
        /// The DACL is a default.
        const DACL_DEFAULTED = 0x0008;
        /// There is a SACL.
        const SACL_PRESENT = 0x0010;
        /// The SACL is a default.
        const SACL_DEFAULTED = 0x0020;
        /// The DACL is trusted.
        const DACL_TRUSTED = 0x0040;
        /// Server security.
        const SERVER_SECURITY = 0x0080;
        /// The DACL's inheritance is required.
        const DACL_AUTO_INHERIT_REQ = 0x0100;
        /// The SACL's inheritance is required.
        const SACL_AUTO_INHERIT_REQ = 0x0200;
        /// The DACL was inherited.
        const DACL_AUTO_INHERITED = 0x0400;
        /// The SACL was inherited.
        const SACL_AUTO_INHERITED = 0x0800;
        /// The DACL does not inherit.
        const DACL_PROTECTED = 0x1000;
        /// The SACL does not inherit.
        const SACL_PROTECTED = 0x2000;
        /// The resource manager's byte is valid.
        const RM_CONTROL_VALID = 0x4000;
        /// Self-relative.
        const SELF_RELATIVE = 0x8000;
    }
}

impl ControlFlags {
    /// Flags of the DACL: present, defaulted, inheritance required, inherited, protected.
    const OF_DACL: Self = Self::from_bits_retain(0x150C);
    /// The corresponding flags of the SACL.
    const OF_SACL: Self = Self::from_bits_retain(0x2A30);
}

const FIXED_LEN: usize = 20;

/// A received descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityDescriptor<'a> {
    /// Control.
    pub control: ControlFlags,
    /// Owner.
    pub owner: Option<Sid>,
    /// Group.
    pub group: Option<Sid>,
    /// SACL.
    pub sacl: Option<Acl<'a>>,
    /// DACL. `None` with DACL_PRESENT is the null DACL.
    pub dacl: Option<Acl<'a>>,
}

impl<'a> SecurityDescriptor<'a> {
    /// Decodes a descriptor.
    ///
    /// # Errors
    /// Malformed input from the peer. Entries of the lists are not checked; iterating decodes them.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "security descriptor";
        if bytes.len() > MAX_SECURITY_DESCRIPTOR {
            return Err(WireError::TooLarge { what: WHAT, len: bytes.len(), max: MAX_SECURITY_DESCRIPTOR });
        }
        let mut r = Reader::new(bytes, WHAT);
        let revision: u8 = r.get()?;
        r.skip(1)?;
        let control: ControlFlags = r.get()?;
        if revision != 1 || !control.contains(ControlFlags::SELF_RELATIVE) {
            return Err(WireError::malformed(WHAT));
        }
        let offsets: [u32; 4] = [r.get()?, r.get()?, r.get()?, r.get()?];
        let part = |offset: u32| match offset as usize {
            0 => Ok(None),
            at if at < FIXED_LEN => Err(WireError::malformed("security descriptor offset")),
            at => bytes.get(at..).map(Some).ok_or(WireError::Truncated {
                what: WHAT,
                need: at,
                have: bytes.len(),
            }),
        };
        let [owner, group, sacl, dacl] = offsets;
        let (sacl, dacl) = (
            if control.contains(ControlFlags::SACL_PRESENT) { part(sacl)? } else { None },
            if control.contains(ControlFlags::DACL_PRESENT) { part(dacl)? } else { None },
        );
        Ok(Self {
            control,
            owner: part(owner)?.map(Sid::decode).transpose()?,
            group: part(group)?.map(Sid::decode).transpose()?,
            sacl: sacl.map(Acl::decode).transpose()?,
            dacl: dacl.map(Acl::decode).transpose()?,
        })
    }

    /// Returns an owned copy. The lists are copied byte by byte, including malformed entries.
    pub fn to_buf(&self) -> SecurityDescriptorBuf {
        SecurityDescriptorBuf {
            control: self.control,
            owner: self.owner,
            group: self.group,
            sacl: self.sacl.map(AclBuf::from),
            dacl: self.dacl.map(AclBuf::from),
        }
    }

    /// Checks that every entry of both lists can be decoded. A server does this before it stores a descriptor.
    ///
    /// # Errors
    /// The first error of an entry.
    pub fn check_entries(&self) -> Result<(), WireError> {
        for acl in [self.sacl, self.dacl].into_iter().flatten() {
            acl.iter().try_for_each(|ace| ace.map(|_| ()))?;
        }
        Ok(())
    }
}

/// An owned descriptor, stored or being built.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityDescriptorBuf {
    /// Control; encoding sets SELF_RELATIVE and SACL_PRESENT itself.
    pub control: ControlFlags,
    /// Owner.
    pub owner: Option<Sid>,
    /// Group.
    pub group: Option<Sid>,
    /// SACL.
    pub sacl: Option<AclBuf>,
    /// DACL.
    pub dacl: Option<AclBuf>,
}

impl SecurityDescriptorBuf {
    /// Appends the whole descriptor to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let all = SecurityInformation::OWNER
            | SecurityInformation::GROUP
            | SecurityInformation::DACL
            | SecurityInformation::SACL;
        self.encode_parts(all, out);
    }

    /// Appends a descriptor with only the parts that a QUERY_INFO requests.
    pub fn encode_parts(&self, parts: SecurityInformation, out: &mut Vec<u8>) {
        let start = out.len();
        let mut control = self.control | ControlFlags::SELF_RELATIVE;
        let with_dacl = parts.contains(SecurityInformation::DACL);
        let with_sacl = parts.contains(SecurityInformation::SACL);
        let sacl = self.sacl.as_ref().filter(|_| with_sacl);
        let dacl = self.dacl.as_ref().filter(|_| with_dacl);
        if !with_dacl {
            control.remove(ControlFlags::OF_DACL);
        }
        if !with_sacl {
            control.remove(ControlFlags::OF_SACL);
        }
        control.set(ControlFlags::SACL_PRESENT, sacl.is_some());
        if dacl.is_some() {
            control |= ControlFlags::DACL_PRESENT;
        }
        [1u8, 0].put(out);
        control.put(out);
        [0u8; 16].put(out);
        let offset = |out: &mut Vec<u8>, at: usize| {
            let here = (out.len() - start) as u32;
            patch_u32(out, start + at, here);
        };
        if let Some(owner) = self.owner.filter(|_| parts.contains(SecurityInformation::OWNER)) {
            offset(out, 4);
            owner.encode(out);
        }
        if let Some(group) = self.group.filter(|_| parts.contains(SecurityInformation::GROUP)) {
            offset(out, 8);
            group.encode(out);
        }
        if let Some(sacl) = sacl {
            offset(out, 12);
            out.extend_from_slice(sacl.as_bytes());
        }
        if let Some(dacl) = dacl {
            offset(out, 16);
            out.extend_from_slice(dacl.as_bytes());
        }
    }

    /// Replaces the parts that a SET_INFO names; the others are kept.
    pub fn replace_parts(&mut self, parts: SecurityInformation, from: &SecurityDescriptor<'_>) {
        if parts.contains(SecurityInformation::OWNER) {
            self.owner = from.owner;
        }
        if parts.contains(SecurityInformation::GROUP) {
            self.group = from.group;
        }
        let mut copy = |bits: ControlFlags| self.control = (self.control & !bits) | (from.control & bits);
        if parts.contains(SecurityInformation::DACL) {
            copy(ControlFlags::OF_DACL);
            self.dacl = from.dacl.map(AclBuf::from);
        }
        if parts.contains(SecurityInformation::SACL) {
            copy(ControlFlags::OF_SACL);
            self.sacl = from.sacl.map(AclBuf::from);
        }
    }
}
