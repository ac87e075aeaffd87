//! Reparse points (MS-FSCC 2.1.2), in the extended attribute `user.causeway.reparse` of the file or directory.
//!
//! The value, integers little-endian:
//!
//! | byte | size | what                                                                    |
//! |------|------|-------------------------------------------------------------------------|
//! | 0    | 2    | version = 1                                                             |
//! | 2    | 2    | bit 0: there is a GUID                                                  |
//! | 4    | 4    | the tag                                                                 |
//! | 8    | 16   | the GUID, zeros without                                                 |
//! | 24   | rest | the data, at most [`ReparsePoint::DATA_MAX`] bytes                      |
//!
//! The tag is read with the other stored metadata when a file is opened or listed. A file with an invalid value is a
//! reparse point too, with the tag [`UNREADABLE`] that no client handles: as an ordinary file it could be overwritten.

use std::os::fd::AsRawFd;

use rustix::io::Errno;

use super::node::Open;
use super::resolve::ResolvedDirectory;
use super::stored::{self, Target, VERSION};
use super::{Tree, device};
use crate::{ReparseKind, ReparsePoint, VfsError, VfsResult};

pub(super) const POINT: &str = "user.causeway.reparse";

/// A reparse point with an invalid value: its tag is IO_REPARSE_TAG_RESERVED_TWO, which no real one has.
const UNREADABLE: ReparseKind = ReparseKind { tag: 2, head: 0 };
const HEAD: usize = 24;
const WITH_GUID: u16 = 1;

/// The reparse point of a file that has the attribute.
pub(super) fn kind(target: Target<'_>) -> ReparseKind {
    match target.get_all(POINT) {
        Ok(value) => decode(&value).map_or(UNREADABLE, |point| (&point).into()),
        Err(Errno::NODATA) => ReparseKind::default(), // removed meanwhile
        Err(_) => UNREADABLE,
    }
}

fn encode(point: &ReparsePoint) -> Vec<u8> {
    let mut b = Vec::with_capacity(HEAD + point.data.len());
    b.extend_from_slice(&VERSION.to_le_bytes());
    b.extend_from_slice(&(if point.guid.is_some() { WITH_GUID } else { 0 }).to_le_bytes());
    b.extend_from_slice(&point.tag.to_le_bytes());
    b.extend_from_slice(&point.guid.unwrap_or_default());
    b.extend_from_slice(&point.data);
    b
}

/// `None` for an invalid value.
fn decode(b: &[u8]) -> Option<ReparsePoint> {
    let (head, data) = b.split_first_chunk::<HEAD>()?;
    let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let tag = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if word(0) != VERSION || tag == 0 || data.len() > ReparsePoint::DATA_MAX {
        return None;
    }
    let guid = (word(2) & WITH_GUID != 0).then(|| head[8..].try_into().ok()).flatten();
    Some(ReparsePoint { tag, guid, data: data.to_vec() })
}

impl Tree {
    /// Whether a directory is a reparse point.
    pub(super) fn is_point(&self, directory: &ResolvedDirectory) -> VfsResult<bool> {
        let device = self.device(&directory.fd, device::number(&directory.stat))?;
        let path = format!("/proc/self/fd/{}", directory.fd.as_raw_fd());
        Ok(device.attributes && Target::Followed(&path).size(POINT.as_bytes()).is_ok())
    }
}

impl Open {
    /// See [`crate::Node::reparse_point`].
    pub(super) fn reparse_point(&self) -> VfsResult<Option<ReparsePoint>> {
        if !self.shared.device.attributes {
            return Ok(None);
        }
        match stored::read(&self.fd, POINT.as_bytes()) {
            Ok(value) => decode(&value).map(Some).ok_or(VfsError::Damaged),
            Err(Errno::NODATA) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// See [`crate::Node::set_reparse_point`].
    pub(super) fn set_reparse_point(&self, point: Option<&ReparsePoint>) -> VfsResult<()> {
        let shared = &self.shared;
        shared.tree.may_change()?;
        let _setting = shared.setting.lock();
        let Some(point) = point else {
            match rustix::fs::fremovexattr(&*self.fd, POINT) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(e) => return Err(e.into()),
            }
            shared.stored.lock().reparse = ReparseKind::default();
            return Ok(());
        };
        let value = encode(point);
        let put = || stored::set(&self.fd, &shared.device, POINT.as_bytes(), &value);
        match put() {
            Err(VfsError::AttributeTooLarge) if self.make_room()? => put()?,
            done => done?,
        }
        shared.stored.lock().reparse = point.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value() {
        let link = ReparsePoint { tag: 0xA000_000C, guid: None, data: b"data".to_vec() };
        let mut golden = vec![1, 0, 0, 0, 0x0c, 0, 0, 0xa0];
        golden.extend([0; 16]);
        golden.extend(b"data");
        assert_eq!(encode(&link), golden);
        assert_eq!(decode(&golden), Some(link.clone()));
        let owned = ReparsePoint { tag: 0x1234, guid: Some([7; 16]), data: Vec::new() };
        assert_eq!(decode(&encode(&owned)), Some(owned));
        // A damaged value is not decoded.
        assert_eq!(decode(&golden[..23]), None);
        golden[0] = 2;
        assert_eq!(decode(&golden), None);
        assert_eq!(decode(&encode(&ReparsePoint { tag: 0, ..link.clone() })), None);
        let long = vec![0; ReparsePoint::DATA_MAX + 1];
        assert_eq!(decode(&encode(&ReparsePoint { data: long, ..link })), None);
    }
}
