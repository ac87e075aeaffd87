//! Security identifiers (MS-DTYP 2.4.2), limited to those that accounts need.

use std::fmt;
use std::str::FromStr;

/// The maximum number of sub-authorities in a SID (MS-DTYP 2.4.2.2).
pub const MAX_SUB_AUTHORITIES: usize = 15;

/// A security identifier of the NT authority: `S-1-5-` and the sub-authorities.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    sub_authorities: Vec<u32>,
}

/// Why a text is not a [`Sid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SID of the form S-1-5-x-y-...")]
pub struct ParseSidError;

impl Sid {
    /// The SID of a machine: `S-1-5-21-a-b-c`.
    pub fn machine(random: [u32; 3]) -> Self {
        Self { sub_authorities: vec![21, random[0], random[1], random[2]] }
    }

    /// The SID of an account within this machine or domain.
    pub fn account(&self, rid: u32) -> Self {
        let mut sub_authorities = self.sub_authorities.clone();
        sub_authorities.push(rid);
        Self { sub_authorities }
    }

    /// ANONYMOUS LOGON (MS-DTYP 2.4.2.4).
    pub fn anonymous() -> Self {
        Self { sub_authorities: vec![7] }
    }

    /// The numbers after `S-1-5-`.
    pub fn sub_authorities(&self) -> &[u32] {
        &self.sub_authorities
    }

    /// The binary form: revision, count, authority (big-endian), sub-authorities (little-endian).
    // MS-DTYP 2.4.2.2
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![1, self.sub_authorities.len() as u8, 0, 0, 0, 0, 0, 5];
        out.extend(self.sub_authorities.iter().flat_map(|n| n.to_le_bytes()));
        out
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S-1-5")?;
        self.sub_authorities.iter().try_for_each(|n| write!(f, "-{n}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sid {
    type Err = ParseSidError;

    fn from_str(s: &str) -> Result<Self, ParseSidError> {
        let numbers = s.strip_prefix("S-1-5-").ok_or(ParseSidError)?;
        let sub_authorities = numbers
            .split('-')
            .take(MAX_SUB_AUTHORITIES + 1)
            .map(|n| n.parse().map_err(|_| ParseSidError))
            .collect::<Result<Vec<u32>, _>>()?;
        if sub_authorities.len() > MAX_SUB_AUTHORITIES {
            return Err(ParseSidError);
        }
        Ok(Self { sub_authorities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes() {
        let sid = Sid::machine([1, 2, u32::MAX]).account(1000);
        assert_eq!(sid.to_string(), "S-1-5-21-1-2-4294967295-1000");
        assert_eq!("S-1-5-21-1-2-4294967295-1000".parse(), Ok(sid.clone()));
        assert_eq!(sid.to_bytes()[..12], [1, 5, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0]);
        assert_eq!(sid.to_bytes().len(), 28);
        for bad in ["", "S-1-5-", "S-1-5-x", "S-1-1-0", "S-1-5--1", &format!("S-1-5{}", "-1".repeat(16))] {
            assert_eq!(bad.parse::<Sid>(), Err(ParseSidError), "{bad}");
        }
    }
}
