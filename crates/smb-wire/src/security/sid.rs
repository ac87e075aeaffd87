//! SID (MS-DTYP 2.4.2).

use std::fmt;
use std::str::FromStr;

use crate::WireError;
use crate::cursor::{Field, Reader};

/// Maximum number of sub-authorities in one SID (MS-DTYP 2.4.2.2).
pub const MAX_SUB_AUTHORITIES: usize = 15;

/// A security identifier, by value: at most 68 bytes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    authority: [u8; 6],
    count: u8,
    sub_authorities: [u32; MAX_SUB_AUTHORITIES],
}

impl Sid {
    /// `S-1-1-0`, everyone.
    pub const EVERYONE: Self = Self::well_known(1, &[0]);
    /// `S-1-3-0`, creator owner.
    pub const CREATOR_OWNER: Self = Self::well_known(3, &[0]);
    /// `S-1-3-1`, creator group.
    pub const CREATOR_GROUP: Self = Self::well_known(3, &[1]);
    /// `S-1-5-7`, anonymous.
    pub const ANONYMOUS: Self = Self::well_known(5, &[7]);
    /// `S-1-5-11`, authenticated users.
    pub const AUTHENTICATED_USERS: Self = Self::well_known(5, &[11]);
    /// `S-1-5-18`, the system.
    pub const LOCAL_SYSTEM: Self = Self::well_known(5, &[18]);
    /// `S-1-5-32-544`, administrators.
    pub const BUILTIN_ADMINISTRATORS: Self = Self::well_known(5, &[32, 544]);
    /// `S-1-5-32-545`, users.
    pub const BUILTIN_USERS: Self = Self::well_known(5, &[32, 545]);

    /// Creates a constant SID of at most [`MAX_SUB_AUTHORITIES`].
    pub const fn well_known(authority: u8, sub: &[u32]) -> Self {
        let mut sub_authorities = [0; MAX_SUB_AUTHORITIES];
        let mut i = 0;
        while i < sub.len() {
            sub_authorities[i] = sub[i];
            i += 1;
        }
        Self { authority: [0, 0, 0, 0, 0, authority], count: sub.len() as u8, sub_authorities }
    }

    /// Creates a SID of revision 1. Returns `None` if there are more than [`MAX_SUB_AUTHORITIES`], or if the
    /// authority exceeds 48 bits.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Option<Self> {
        let [0, 0, authority @ ..] = authority.to_be_bytes() else { return None };
        let mut sub = [0; MAX_SUB_AUTHORITIES];
        sub.get_mut(..sub_authorities.len())?.copy_from_slice(sub_authorities);
        Some(Self { authority, count: sub_authorities.len() as u8, sub_authorities: sub })
    }

    /// Decodes the SID at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, or `Malformed` when the revision is not 1 or there are too many sub-authorities.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "SID");
        let (revision, count): (u8, u8) = (r.get()?, r.get()?);
        if revision != 1 || usize::from(count) > MAX_SUB_AUTHORITIES {
            return Err(WireError::malformed("SID"));
        }
        let authority = r.get()?;
        let mut sub_authorities = [0; MAX_SUB_AUTHORITIES];
        for sub in &mut sub_authorities[..usize::from(count)] {
            *sub = r.get()?;
        }
        Ok(Self { authority, count, sub_authorities })
    }

    /// Appends the SID to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        [1, self.count].put(out);
        self.authority.put(out);
        self.sub_authorities().iter().for_each(|sub| sub.put(out));
    }

    /// Encoded length in bytes.
    pub const fn len(&self) -> usize {
        8 + 4 * self.count as usize
    }

    /// Always false: there is a fixed part. The lint for [`Sid::len`] requires this function.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The authority, 48 bits.
    pub fn authority(&self) -> u64 {
        let [a, b, c, d, e, f] = self.authority;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The sub-authorities; the last one is the relative identifier.
    pub fn sub_authorities(&self) -> &[u32] {
        &self.sub_authorities[..usize::from(self.count)]
    }
}

/// `S-1-5-21-…`; authorities of 2^32 and more in hexadecimal (MS-DTYP 2.4.2.1).
impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.authority()) {
            Ok(authority) => write!(f, "S-1-{authority}")?,
            Err(_) => write!(f, "S-1-{:#014x}", self.authority())?,
        }
        self.sub_authorities().iter().try_for_each(|sub| write!(f, "-{sub}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sid {
    type Err = WireError;

    fn from_str(s: &str) -> Result<Self, WireError> {
        let parse = || {
            let mut parts = s.strip_prefix("S-1-")?.split('-');
            let authority = parts.next()?;
            let authority = match authority.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok()?,
                None => authority.parse().ok()?,
            };
            let sub: Vec<u32> =
                parts.take(MAX_SUB_AUTHORITIES + 1).map(|p| p.parse().ok()).collect::<Option<_>>()?;
            Sid::new(authority, &sub)
        };
        parse().ok_or(WireError::malformed("SID string"))
    }
}
