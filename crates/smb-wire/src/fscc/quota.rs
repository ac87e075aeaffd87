//! Quotas: FILE_QUOTA_INFORMATION and FILE_GET_QUOTA_INFORMATION (MS-FSCC 2.4).

use super::list::{Fits, ListBuilder, split_entry};
use crate::cursor::{Field, Reader};
use crate::security::Sid;
use crate::{FileTime, WireError};

/// Maximum number of SIDs in one list: as many as a request of 64 KiB can hold.
pub const MAX_QUOTAS: usize = 4096;

const FIXED_LEN: usize = 40;
const GET_FIXED_LEN: usize = 8;

/// FILE_QUOTA_INFORMATION: the space that one user occupies on a volume, and the user's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaInformation {
    /// The last change of the quota.
    pub change_time: FileTime,
    /// Occupied bytes.
    pub used: u64,
    /// Threshold in bytes for a logged warning; all ones for none.
    pub threshold: u64,
    /// Limit in bytes; all ones for no limit.
    pub limit: u64,
    /// The user.
    pub sid: Sid,
}

/// Writes a list of quotas within a budget.
#[derive(Debug)]
pub struct QuotaList<'v>(ListBuilder<'v>);

impl<'v> QuotaList<'v> {
    /// A list at the end of `out`, of at most `budget` bytes.
    pub fn new(out: &'v mut Vec<u8>, budget: usize) -> Self {
        Self(ListBuilder::new(out, budget, 8))
    }

    /// Adds a quota if it fits the budget.
    pub fn push(&mut self, quota: &QuotaInformation) -> Fits {
        self.0.push(FIXED_LEN + quota.sid.len(), |out| {
            0u32.put(out);
            (quota.sid.len() as u32).put(out);
            quota.change_time.put(out);
            quota.used.put(out);
            quota.threshold.put(out);
            quota.limit.put(out);
            quota.sid.encode(out);
        })
    }
}

/// Reads the SIDs whose quotas are requested (FILE_GET_QUOTA_INFORMATION); ends after the first error.
#[derive(Debug, Clone)]
pub struct GetQuotas<'a> {
    rest: Option<&'a [u8]>,
    count: usize,
}

impl<'a> GetQuotas<'a> {
    /// The entries of `bytes`; empty bytes are an empty list.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: Some(bytes).filter(|b| !b.is_empty()), count: 0 }
    }
}

impl Iterator for GetQuotas<'_> {
    type Item = Result<Sid, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        const WHAT: &str = "FILE_GET_QUOTA_INFORMATION";
        let bytes = self.rest.take()?;
        self.count += 1;
        if self.count > MAX_QUOTAS {
            return Some(Err(WireError::TooLarge { what: WHAT, len: self.count, max: MAX_QUOTAS }));
        }
        Some(split_entry(bytes, GET_FIXED_LEN, WHAT).and_then(|(entry, rest)| {
            let mut r = Reader::new(entry, WHAT);
            r.skip(4)?;
            let len: u32 = r.get()?;
            let sid = Sid::decode(r.take(len as usize)?)?;
            self.rest = rest;
            Ok(sid)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_quotas() {
        let quota =
            |sid| QuotaInformation { change_time: FileTime(1), used: 2, threshold: 3, limit: u64::MAX, sid };
        let mut bytes = Vec::new();
        let mut list = QuotaList::new(&mut bytes, 56 + 52);
        assert_eq!(list.push(&quota(Sid::EVERYONE)), Fits::Yes);
        assert_eq!(list.push(&quota(Sid::EVERYONE)), Fits::Yes);
        assert_eq!(list.push(&quota(Sid::EVERYONE)), Fits::No);
        let entry = |next: u8| {
            let mut b = vec![next, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
            b.extend([3, 0, 0, 0, 0, 0, 0, 0]);
            b.extend([0xff; 8]);
            b.extend([1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
            b
        };
        assert_eq!(bytes, [entry(56), vec![0; 4], entry(0)].concat());
    }

    #[test]
    fn what_is_asked_for() {
        let everyone = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let entry = |next: u8, len: u8| [&[next, 0, 0, 0, len, 0, 0, 0][..], &everyone].concat();
        let all = |bytes: &[u8]| GetQuotas::new(bytes).collect::<Result<Vec<_>, _>>();
        assert_eq!(all(&[]), Ok(Vec::new()));
        assert_eq!(all(&[entry(20, 12), entry(0, 12)].concat()), Ok(vec![Sid::EVERYONE; 2]));
        for bad in [&entry(0, 13)[..], &entry(4, 12), &entry(0, 12)[..7], &entry(20, 12), &entry(0, 7)] {
            assert!(all(bad).is_err(), "{bad:?}");
        }
    }
}
