//! The extended attribute of one stream.
//!
//! `user.causeway.stream.IDENTITY`, integers little-endian:
//!
//! | byte | size | what                                                                                |
//! |------|------|-------------------------------------------------------------------------------------|
//! | 0    | 2    | version = 2                                                                         |
//! | 2    | 2    | bit 0: the data is in a sidecar, whose identity (u128) follows the name             |
//! | 4    | 2    | length of the name in bytes, n: 1 to 765                                            |
//! | 6    | n    | the name, UTF-8, without colons and type                                            |
//! | 6+n  | rest | the data                                                                            |
//!
//! The data is last, so that its length is implied by the value's and cannot contradict it. A record that is damaged or
//! of another version is ignored and logged, and never overwritten.

use rustix::io::Errno;

use super::super::node::Open;
use super::super::stored::{self, Target};
use crate::{StreamName, VfsError, VfsResult};

/// The prefix of the attributes' names.
const PREFIX: &str = "user.causeway.stream.";
const VERSION: u16 = 2;
const SIDECAR: u16 = 1;
const HEAD: usize = 6;

/// The decoded record of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: u64,
    pub(super) name: StreamName,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Inline(Vec<u8>),
    /// In the sidecar with this identity, which is random: only who may read the file's attributes knows it.
    Sidecar(u128),
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let name = self.name.as_str().as_bytes();
        let (flags, data) = match &self.content {
            Content::Inline(data) => (0, data.clone()),
            Content::Sidecar(sidecar) => (SIDECAR, sidecar.to_le_bytes().to_vec()),
        };
        let mut b = Vec::with_capacity(HEAD + name.len() + data.len());
        b.extend_from_slice(&VERSION.to_le_bytes());
        b.extend_from_slice(&flags.to_le_bytes());
        b.extend_from_slice(&(name.len() as u16).to_le_bytes());
        b.extend_from_slice(name);
        b.extend_from_slice(&data);
        b
    }

    /// `None` for an invalid record.
    fn decode(id: u64, b: &[u8]) -> Option<Record> {
        let (head, rest) = b.split_at_checked(HEAD)?;
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (name, data) = rest.split_at_checked(word(4).into())?;
        let content = match (word(0), word(2)) {
            (VERSION, 0) => Content::Inline(data.to_vec()),
            (VERSION, SIDECAR) => Content::Sidecar(u128::from_le_bytes(data.try_into().ok()?)),
            _ => return None,
        };
        let name = StreamName::new(std::str::from_utf8(name).ok()?).ok()?;
        Some(Record { id, name, content })
    }
}

/// All records of a file.
pub(super) fn all(file: &Open) -> VfsResult<Vec<Record>> {
    let mut all = Vec::new();
    for id in ids(Target::Fd(&file.fd))? {
        match read(file, id) {
            Ok(record) => all.extend(record),
            Err(VfsError::Damaged) => {
                tracing::warn!(file = ?file.shared.id, stream = %key(id), "the record of a stream cannot be read");
            }
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// The record of the stream with this name.
pub(super) fn find(file: &Open, name: &StreamName) -> VfsResult<Option<Record>> {
    Ok(all(file)?.into_iter().find(|record| record.name == *name))
}

/// The record of a stream; `None` when it was removed.
///
/// # Errors
/// `Damaged`, …
pub(super) fn read(file: &Open, id: u64) -> VfsResult<Option<Record>> {
    match stored::read(&file.fd, key(id).as_bytes()) {
        Ok(value) => Record::decode(id, &value).map(Some).ok_or(VfsError::Damaged),
        Err(Errno::NODATA) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Adds an empty stream; returns its identity.
pub(super) fn create(file: &Open, name: &StreamName) -> VfsResult<u64> {
    let id = env::Env::real().random_u64();
    let record = Record { id, name: name.clone(), content: Content::Inline(Vec::new()) };
    match set(file, &record) {
        Err(VfsError::AttributeTooLarge) if super::store::promote_all(file)? => set(file, &record)?,
        done => done?,
    }
    Ok(id)
}

/// Stores a record.
///
/// # Errors
/// `AttributeTooLarge` when the file system cannot store that much with the file, …
pub(super) fn set(file: &Open, record: &Record) -> VfsResult<()> {
    stored::set(&file.fd, &file.shared.device, key(record.id).as_bytes(), &record.encode())
}

pub(super) fn remove(file: &Open, id: u64) -> VfsResult<()> {
    match rustix::fs::fremovexattr(&*file.fd, key(id)) {
        Ok(()) => Ok(()),
        Err(Errno::NODATA) => Err(VfsError::NotFound),
        Err(e) => Err(e.into()),
    }
}

/// The identities of the streams of a file.
fn ids(file: Target<'_>) -> VfsResult<Vec<u64>> {
    Ok(ids_in(&file.list()?))
}

/// The identities of the streams in a list of attributes.
fn ids_in(names: &[u8]) -> Vec<u64> {
    let digits = |name: &[u8]| {
        let digits = std::str::from_utf8(name.strip_prefix(PREFIX.as_bytes())?).ok()?;
        u64::from_str_radix(digits, 16).ok().filter(|id| format!("{id:016x}") == digits)
    };
    stored::split(names).filter_map(digits).collect()
}

/// The streams of a file whose data is in sidecars: the identities of the stream and of the sidecar.
pub(super) fn sidecars(file: Target<'_>) -> Result<Vec<(u64, u128)>, Errno> {
    let mut all = Vec::new();
    for id in ids_in(&file.list()?) {
        match file.get_all(&key(id)) {
            Err(Errno::NODATA) => {}
            value => {
                if let Some(Record { content: Content::Sidecar(sidecar), .. }) = Record::decode(id, &value?) {
                    all.push((id, sidecar));
                }
            }
        }
    }
    Ok(all)
}

/// Whether the record of this stream names this sidecar; true if that cannot be determined.
pub(super) fn names_sidecar(file: Target<'_>, id: u64, sidecar: u128) -> bool {
    match file.get_all(&key(id)) {
        Ok(value) => Record::decode(id, &value).is_none_or(|r| r.content == Content::Sidecar(sidecar)),
        Err(e) => e != Errno::NODATA,
    }
}

/// Size and allocation of data in a record, in bytes, as NTFS reports them for data in the file's record.
pub(super) fn sizes(data: &[u8]) -> (u64, u64) {
    (data.len() as u64, data.len().next_multiple_of(8) as u64)
}

fn key(id: u64) -> String {
    format!("{PREFIX}{id:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let name = StreamName::new("Zone.Identifier").expect("legal");
        let record = Record { id: 1, name: name.clone(), content: Content::Inline(b"data".to_vec()) };
        let golden = b"\x02\0\0\0\x0f\0Zone.Identifierdata";
        assert_eq!(record.encode(), golden);
        assert_eq!(Record::decode(1, golden), Some(record));
        let record = Record { id: 2, name, content: Content::Sidecar(3) };
        let golden = b"\x02\0\x01\0\x0f\0Zone.Identifier\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(record.encode(), golden);
        assert_eq!(Record::decode(2, golden), Some(record));
        assert_eq!(key(0xabc), "user.causeway.stream.0000000000000abc");
    }

    #[test]
    fn damaged() {
        for bad in [
            &b""[..],
            b"\x02\0\0\0\x0f",
            b"\x02\0\0\0\x05\0four",
            b"\x01\0\0\0\x01\0s",
            b"\x02\0\x01\0\x01\0sdata",
            b"\x02\0\x02\0\x01\0s",
            b"\x02\0\0\0\0\0data",
            b"\x02\0\0\0\x01\0:",
            b"\x02\0\0\0\x01\0\xff",
        ] {
            assert_eq!(Record::decode(1, bad), None, "{bad:?}");
        }
    }
}
