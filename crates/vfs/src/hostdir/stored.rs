//! Windows metadata for which Linux's inode has no field, stored in extended attributes of the file.
//!
//! | name                 | holds                                                                          |
//! |----------------------|--------------------------------------------------------------------------------|
//! | `user.causeway.dos`  | attributes and creation time, see the byte map below                           |
//! | `user.causeway.sd`   | u16 version = 1, little-endian, then the self-relative security descriptor     |
//! | `user.causeway.creation` | u16 version = 1, little-endian, then [`crate::Node::creation_id`], if there is one  |
//! | `user.causeway.reparse` | the reparse point, see [`super::reparse`]                                   |
//! | `user.causeway.stream.*` | one named stream each, see [`super::streams`]                              |
//! | `user.causeway.volume` | on the root of a file system without a UUID, see [`super::volume`]            |
//! | `user.NAME`          | the value of the extended attribute NAME, as other SMB servers and `getfattr` see it |
//!
//! `user.causeway.dos`, 20 or 44 bytes, integers little-endian, in the order of their alignment. The last 24 bytes
//! exist only when bit 1 of the flags is set:
//!
//! | byte | size | what                                                                              |
//! |------|------|-----------------------------------------------------------------------------------|
//! | 0    | 2    | version = 1                                                                       |
//! | 2    | 2    | bit 0: the creation time is set (otherwise the file system's birth time holds)    |
//! |      |      | bit 1: the change time is set                                                      |
//! | 4    | 4    | file attributes (MS-FSCC 2.6): the stored ones and SPARSE_FILE                    |
//! | 8    | 8    | creation time: seconds since 1970-01-01 UTC, signed                               |
//! | 16   | 4    | creation time: nanoseconds                                                        |
//! | 20   | 4    | change time: nanoseconds                                                          |
//! | 24   | 8    | change time: seconds since 1970-01-01 UTC, signed                                 |
//! | 32   | 8    | last ctime of the file system for which the change time is valid: seconds          |
//! | 40   | 4    | last ctime of the file system for which the change time is valid: nanoseconds      |
//!
//! The system gives every change of a file its own change time, this record included. So a change time set by a client
//! is valid until the system's change time is later than it was when the record was written; see [`ChangeTime`].
//!
//! Without the record (or with one that is damaged or of another version) a file has ARCHIVE, and READONLY if its mode
//! has no write bit; a directory has no attribute. So a file created with ARCHIVE, as by Windows, needs no record. The
//! mode's bits are never changed.
//!
//! Where the file system has no `user.*` attributes, only those defaults exist: setting other attributes, a security
//! descriptor or an extended attribute is `Unsupported`, a creation time is ignored, and attributes and descriptor of a
//! new file are dropped; this is logged once. On other file systems a descriptor that cannot be read, or is of another
//! version, is an error and not "none": without a descriptor the mode would decide. FILE_NEED_EA is not stored. Names
//! of extended attributes match without regard to ASCII case; those that begin with `causeway.` are hidden and refused.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{Statx, XattrFlags};
use rustix::io::{self, Errno};

use super::device::Device;
use super::posix::{self, AclMode};
use super::reparse;
use crate::{Attributes, ExtendedAttribute, Kind, ReparseKind, Timestamp, VfsError, VfsResult};

const DOS: &str = "user.causeway.dos";
const SECURITY: &str = "user.causeway.sd";
const CREATION: &str = "user.causeway.creation";
const USER: &str = "user.";
const OURS: &str = "causeway.";
pub(super) const VERSION: u16 = 1;
const CREATED: u16 = 1;
const CHANGED: u16 = 2;
/// Bytes of a record without and with a change time.
const SHORT: usize = 20;
const LONG: usize = 44;

/// The longest name of a `user.*` attribute in bytes, without `user.`.
const NAME_MAX: usize = 255 - USER.len();
/// The largest value (XATTR_SIZE_MAX).
const VALUE_MAX: usize = 65_536;
/// The longest list of names (XATTR_LIST_MAX).
const LIST_MAX: usize = 65_536;

/// The part of a file's stored metadata that is cached in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredMetadata {
    pub(super) dos: Option<Dos>,
    /// As FILE_FULL_EA_INFORMATION, in bytes.
    pub(super) ea_size: u32,
    /// Its reparse point; all zeros if it has none.
    pub(super) reparse: ReparseKind,
    /// The mode's bits limited by its POSIX access control list, if it has one.
    pub(super) acl: Option<AclMode>,
}

/// The record `user.causeway.dos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dos {
    pub(super) attributes: Attributes,
    pub(super) created: Option<Timestamp>,
    pub(super) changed: Option<ChangeTime>,
}

/// A change time that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeTime {
    pub(super) time: Timestamp,
    /// The last system change time for which it is valid.
    pub(super) until: Timestamp,
}

/// A file to read attributes of.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Fd(&'a OwnedFd),
    /// A link at the end of the path is not followed.
    Path(&'a str),
    /// A link at the end of the path is followed: for descriptors under `/proc`.
    Followed(&'a str),
}

impl Dos {
    /// The default record, for a file that has none.
    pub(super) fn default_for(kind: Kind, mode: u16) -> Dos {
        let attributes = match kind {
            Kind::Directory => Attributes::empty(),
            Kind::File if mode & 0o222 == 0 => Attributes::ARCHIVE | Attributes::READONLY,
            Kind::File => Attributes::ARCHIVE,
        };
        Dos { attributes, created: None, changed: None }
    }

    /// The change time to show for a file with the system's change time `ctime`.
    pub(super) fn changed_at(&self, ctime: Timestamp) -> Timestamp {
        self.changed.filter(|c| ctime <= c.until).map_or(ctime, |c| c.time)
    }

    fn encode(&self) -> Vec<u8> {
        let created = self.created.unwrap_or_default();
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = flag(self.created.is_some(), CREATED) | flag(self.changed.is_some(), CHANGED);
        let mut b = Vec::with_capacity(LONG);
        b.extend_from_slice(&VERSION.to_le_bytes());
        b.extend_from_slice(&flags.to_le_bytes());
        b.extend_from_slice(&self.attributes.bits().to_le_bytes());
        b.extend_from_slice(&created.seconds.to_le_bytes());
        b.extend_from_slice(&created.nanoseconds.to_le_bytes());
        if let Some(ChangeTime { time, until }) = self.changed {
            b.extend_from_slice(&time.nanoseconds.to_le_bytes());
            b.extend_from_slice(&time.seconds.to_le_bytes());
            b.extend_from_slice(&until.seconds.to_le_bytes());
            b.extend_from_slice(&until.nanoseconds.to_le_bytes());
        }
        b
    }

    /// `None` for an invalid record.
    fn decode(b: &[u8]) -> Option<Dos> {
        let word = |at: usize| Some(u16::from_le_bytes(b.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        let time = |seconds: usize, nanoseconds: usize| {
            let seconds = i64::from_le_bytes(b.get(seconds..seconds + 8)?.try_into().ok()?);
            let nanoseconds = long(nanoseconds).filter(|n| *n < 1_000_000_000)?;
            Some(Timestamp { seconds, nanoseconds })
        };
        let flags = word(2)?;
        let length = if flags & CHANGED != 0 { LONG } else { SHORT };
        if word(0)? != VERSION || b.len() != length {
            return None;
        }
        let created = time(8, 16)?;
        let changed = match length {
            LONG => Some(ChangeTime { time: time(24, 20)?, until: time(32, 40)? }),
            _ => None,
        };
        Some(Dos {
            attributes: Attributes::from_bits_truncate(long(4)?) & RECORD_ATTRIBUTES,
            created: (flags & CREATED != 0).then_some(created),
            changed,
        })
    }
}

/// The attributes in a record.
pub(super) const RECORD_ATTRIBUTES: Attributes = Attributes::STORED.union(Attributes::SPARSE_FILE);

impl StoredMetadata {
    /// The effective attributes and creation time of a file.
    pub(super) fn dos(&self, kind: Kind, stat: &Statx) -> Dos {
        self.dos.unwrap_or(Dos::default_for(kind, stat.stx_mode))
    }

    /// Reads the stored metadata. Attributes that cannot be read (no permission) count as missing.
    pub(super) fn load(target: Target<'_>, device: &Device) -> StoredMetadata {
        if !device.attributes {
            return StoredMetadata::default();
        }
        let names = match target.list() {
            Ok(names) => names,
            Err(e) => {
                refused(e, device);
                return StoredMetadata::default();
            }
        };
        let mut stored = StoredMetadata::default();
        for name in split(&names) {
            if name == DOS.as_bytes() {
                let mut record = [0; LONG + 1];
                stored.dos = target.get(DOS, &mut record).ok().and_then(|n| Dos::decode(&record[..n]));
            } else if name == reparse::POINT.as_bytes() {
                stored.reparse = reparse::kind(target);
            } else if name == posix::ACL.as_bytes() {
                let mut list = vec![0; posix::ACL_MAX];
                let read = target.get(posix::ACL, &mut list);
                stored.acl = Some(read.map_or(AclMode::UNREADABLE, |n| AclMode::decode(&list[..n])));
            } else if let Some(shown) = shown(name)
                && let Ok(size) = target.size(name)
            {
                let at = stored.ea_size.next_multiple_of(4);
                stored.ea_size = at + 8 + shown.len() as u32 + 1 + size as u32;
            }
        }
        stored
    }
}

/// Writes the record.
pub(super) fn set_dos(fd: &OwnedFd, device: &Device, dos: &Dos) -> VfsResult<()> {
    set(fd, device, DOS.as_bytes(), &dos.encode())
}

/// The security descriptor; `None` only if the file certainly has none: then its mode decides.
pub(super) fn security(fd: &OwnedFd, device: &Device) -> VfsResult<Option<Vec<u8>>> {
    if !device.attributes {
        return Ok(None);
    }
    as_security(read(fd, SECURITY.as_bytes()), device)
}

/// [`security`] of any target.
pub(super) fn security_of(target: Target<'_>, device: &Device) -> VfsResult<Option<Vec<u8>>> {
    if !device.attributes {
        return Ok(None);
    }
    as_security(target.get_all(SECURITY), device)
}

fn as_security(read: io::Result<Vec<u8>>, device: &Device) -> VfsResult<Option<Vec<u8>>> {
    let mut value = match read {
        Ok(value) => value,
        Err(Errno::NODATA) => return Ok(None),
        Err(e) if refused(e, device) => return Err(VfsError::Damaged),
        Err(Errno::RANGE | Errno::TOOBIG) => return Err(VfsError::Damaged),
        Err(e) => return Err(e.into()),
    };
    match value.get(..2) {
        Some(version) if version == VERSION.to_le_bytes() => Ok(Some(value.split_off(2))),
        _ => Err(VfsError::Damaged),
    }
}

/// Whether a file has a security descriptor; false if that cannot be determined.
pub(super) fn has_security(target: Target<'_>, device: &Device) -> bool {
    device.attributes && target.size(SECURITY.as_bytes()).is_ok()
}

/// Stores a security descriptor.
pub(super) fn set_security(fd: &OwnedFd, device: &Device, descriptor: &[u8]) -> VfsResult<()> {
    let mut value = VERSION.to_le_bytes().to_vec();
    value.extend_from_slice(descriptor);
    set(fd, device, SECURITY.as_bytes(), &value)
}

/// The id of the call that created the file; `None` if there is none or it is invalid.
pub(super) fn creation_id(fd: &OwnedFd, device: &Device) -> VfsResult<Option<Vec<u8>>> {
    if !device.attributes {
        return Ok(None);
    }
    let mut value = match read(fd, CREATION.as_bytes()) {
        Ok(value) => value,
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let known = value.get(..2).is_some_and(|version| version == VERSION.to_le_bytes());
    Ok(known.then(|| value.split_off(2)))
}

/// Stores the id of the call that creates the file.
pub(super) fn set_creation_id(fd: &OwnedFd, device: &Device, id: &[u8]) -> VfsResult<()> {
    set(fd, device, CREATION.as_bytes(), &[&VERSION.to_le_bytes(), id].concat())
}

/// All extended attributes.
pub(super) fn extended(fd: &OwnedFd, device: &Device) -> VfsResult<Vec<ExtendedAttribute>> {
    if !device.attributes {
        return Ok(Vec::new());
    }
    let names = match Target::Fd(fd).list() {
        Ok(names) => names,
        Err(e) if refused(e, device) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut all = Vec::new();
    for name in split(&names) {
        let Some(shown) = shown(name) else { continue };
        match read(fd, name) {
            Ok(value) => all.push(ExtendedAttribute { flags: 0, name: shown.to_vec(), value }),
            Err(Errno::NODATA) => {} // removed meanwhile
            Err(e) => return Err(e.into()),
        }
    }
    Ok(all)
}

/// Sets extended attributes in order; an empty value removes.
pub(super) fn set_extended(fd: &OwnedFd, device: &Device, set_these: &[ExtendedAttribute]) -> VfsResult<()> {
    for attribute in set_these {
        let name = &attribute.name;
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) || attribute.value.len() > VALUE_MAX
        {
            return Err(VfsError::InvalidArgument);
        }
        if ours(name) {
            return Err(VfsError::AccessDenied);
        }
        let names = match Target::Fd(fd).list() {
            Ok(names) => names,
            Err(e) if refused(e, device) => return Err(VfsError::Unsupported),
            Err(e) => return Err(e.into()),
        };
        let there = split(&names).find(|n| shown(n).is_some_and(|n| n.eq_ignore_ascii_case(name)));
        match (there, attribute.value.is_empty()) {
            (None, true) => {}
            (Some(there), true) => match rustix::fs::fremovexattr(fd, there) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(e) => return Err(e.into()),
            },
            (there, false) => {
                let new = [USER.as_bytes(), name].concat();
                set(fd, device, there.unwrap_or(&new), &attribute.value)?;
            }
        }
    }
    Ok(())
}

pub(super) fn set(fd: &OwnedFd, device: &Device, name: &[u8], value: &[u8]) -> VfsResult<()> {
    if !device.attributes {
        return Err(VfsError::Unsupported);
    }
    match rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()) {
        Ok(()) => Ok(()),
        // Larger than the file system allows; ext4 reports "no space", as all attributes of a file must fit one block.
        Err(e @ (Errno::TOOBIG | Errno::RANGE | Errno::NOSPC)) => {
            if e == Errno::NOSPC && rustix::fs::fstatvfs(fd).is_ok_and(|s| s.f_bavail == 0) {
                return Err(VfsError::NoSpace);
            }
            if !device.refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    volume = %format_args!("{:032x}", device.volume),
                    attribute = ?String::from_utf8_lossy(name),
                    bytes = value.len(),
                    "this file system cannot store an attribute of this size ({e}); further ones are not logged"
                );
            }
            Err(VfsError::AttributeTooLarge)
        }
        Err(e) if refused(e, device) => Err(VfsError::Unsupported),
        Err(e) => Err(e.into()),
    }
}

pub(super) fn read(fd: &OwnedFd, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = vec![0; 4096];
    loop {
        match rustix::fs::fgetxattr(fd, name, &mut value[..]) {
            Ok(n) => {
                value.truncate(n);
                return Ok(value);
            }
            Err(Errno::RANGE) if value.len() < VALUE_MAX => value.resize(VALUE_MAX, 0),
            Err(e) => return Err(e),
        }
    }
}

impl Target<'_> {
    /// The names, each with a NUL at its end.
    pub(super) fn list(self) -> io::Result<Vec<u8>> {
        let mut small = [0; 512];
        match self.list_into(&mut small) {
            Ok(n) => return Ok(small[..n].to_vec()),
            Err(Errno::RANGE) => {}
            Err(e) => return Err(e),
        }
        let mut large = vec![0; LIST_MAX];
        let n = self.list_into(&mut large)?;
        large.truncate(n);
        Ok(large)
    }

    fn list_into(self, b: &mut [u8]) -> io::Result<usize> {
        match self {
            Target::Fd(fd) => rustix::fs::flistxattr(fd, b),
            Target::Path(path) => rustix::fs::llistxattr(path, b),
            Target::Followed(path) => rustix::fs::listxattr(path, b),
        }
    }

    pub(super) fn get(self, name: &str, b: &mut [u8]) -> io::Result<usize> {
        match self {
            Target::Fd(fd) => rustix::fs::fgetxattr(fd, name, b),
            Target::Path(path) => rustix::fs::lgetxattr(path, name, b),
            Target::Followed(path) => rustix::fs::getxattr(path, name, b),
        }
    }

    /// The value, of any length.
    pub(super) fn get_all(self, name: &str) -> io::Result<Vec<u8>> {
        let mut value = vec![0; VALUE_MAX];
        let n = self.get(name, &mut value)?;
        value.truncate(n);
        Ok(value)
    }

    pub(super) fn size(self, name: &[u8]) -> io::Result<usize> {
        match self {
            Target::Fd(fd) => rustix::fs::fgetxattr_query(fd, name),
            Target::Path(path) => rustix::fs::lgetxattr_query(path, name),
            Target::Followed(path) => rustix::fs::getxattr_query(path, name),
        }
    }
}

pub(super) fn split(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split(|b| *b == 0).filter(|n| !n.is_empty())
}

/// The name of a `user.*` attribute for clients; `None` for hidden ones.
fn shown(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(USER.as_bytes()).filter(|n| !n.is_empty() && n.len() <= NAME_MAX && !ours(n))
}

fn ours(name: &[u8]) -> bool {
    name.get(..OURS.len()).is_some_and(|n| n.eq_ignore_ascii_case(OURS.as_bytes()))
}

/// Whether the error means that this file cannot have `user.*` attributes, though the file system supports them.
fn refused(e: Errno, device: &Device) -> bool {
    let refused = matches!(e, Errno::OPNOTSUPP | Errno::NOSYS);
    if refused && device.attributes && !device.refused.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            volume = %format_args!("{:032x}", device.volume),
            "this file system now refuses user.* attributes, which it accepted before: {e}"
        );
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record() {
        let dos = Dos {
            attributes: Attributes::HIDDEN | Attributes::ARCHIVE,
            created: Some(Timestamp { seconds: -11_644_473_600, nanoseconds: 999_999_900 }),
            changed: None,
        };
        let golden = [
            1, 0, 1, 0, 0x22, 0, 0, 0, 0x00, 0x6f, 0xef, 0x49, 0xfd, 0xff, 0xff, 0xff, 0x9c, 0xc9, 0x9a, 0x3b,
        ];
        assert_eq!(dos.encode(), golden);
        assert_eq!(Dos::decode(&golden), Some(dos));
        let plain = Dos { attributes: Attributes::READONLY, created: None, changed: None };
        assert_eq!(Dos::decode(&plain.encode()), Some(plain));
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let changed = Some(ChangeTime { time: time(-1, 5), until: time(0x0102_0304_0506, 7) });
        let changed = Dos { changed, ..dos };
        let mut longer = golden.to_vec();
        longer[2] = 3;
        longer.extend([5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        longer.extend([6, 5, 4, 3, 2, 1, 0, 0, 7, 0, 0, 0]);
        assert_eq!(changed.encode(), longer);
        assert_eq!(Dos::decode(&longer), Some(changed));
        assert_eq!(Dos::decode(&longer[..43]), None);
    }

    #[test]
    fn a_change_time_holds_until_the_next_change() {
        let time = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let changed = Some(ChangeTime { time: time(5), until: time(100) });
        let dos = Dos { attributes: Attributes::empty(), created: None, changed };
        assert_eq!(dos.changed_at(time(100)), time(5));
        assert_eq!(dos.changed_at(time(101)), time(101));
    }

    #[test]
    fn a_damaged_record_is_none() {
        let good = Dos { attributes: Attributes::HIDDEN, created: None, changed: None }.encode();
        assert_eq!(Dos::decode(&good[..19]), None);
        assert_eq!(Dos::decode(&[2; 20]), None);
        let mut nanoseconds = good.clone();
        nanoseconds[16..20].fill(0xff);
        assert_eq!(Dos::decode(&nanoseconds), None);
        let mut attributes = good;
        attributes[4..8].fill(0xff);
        assert_eq!(Dos::decode(&attributes).map(|d| d.attributes), Some(RECORD_ATTRIBUTES));
    }
}
