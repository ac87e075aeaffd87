//! Owner, group and mode of files, and of the directories on their paths.
//!
//! The server reads and writes as its own user, so the system does not check a user's right to traverse a directory.
//! This module reports the directories on the file's real path that have no security descriptor and that not every user
//! may traverse ([`crate::Opened::closed`]): a symbolic link cannot bypass them.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::{self, Errno};

use super::stored::{self, StoredMetadata, Target};
use super::{Tree, device, link, node, resolve};
use crate::{Posix, VfsResult};

/// A file's POSIX access control list.
pub(super) const ACL: &str = "system.posix_acl_access";
/// The largest list read, in bytes: 1,000 entries, more than ext4 keeps.
pub(super) const ACL_MAX: usize = 4 + 8 * 1000;

/// Execute bits for owner, group and others: every user may traverse the directory.
const PASSABLE: u16 = 0o111;

/// A mode's bits, limited by a POSIX access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AclMode {
    /// The owning group's bits: in the mode they are replaced by the list's mask.
    group: u32,
    /// The upper bound of the others' bits: those that every named entry has, because named entries are not evaluated.
    others: u32,
}

impl AclMode {
    /// No bits: for a list that cannot be read.
    pub(super) const UNREADABLE: AclMode = AclMode { group: 0, others: 0 };

    /// Reads a list as the kernel gives it: a version (2, 32 bits), then entries of tag (16 bits), permissions (16 bits)
    /// and number (32 bits), little-endian.
    pub(super) fn decode(list: &[u8]) -> AclMode {
        const USER: u16 = 2;
        const GROUP_OWNER: u16 = 4;
        const GROUP: u16 = 8;
        const MASK: u16 = 0x10;
        let Some((head, entries)) = list.split_first_chunk::<4>() else { return AclMode::UNREADABLE };
        if u32::from_le_bytes(*head) != 2 {
            return AclMode::UNREADABLE;
        }
        let entries = entries.chunks_exact(8).map(|e| {
            let bits = u32::from(u16::from_le_bytes([e[2], e[3]]) & 7);
            (u16::from_le_bytes([e[0], e[1]]), bits)
        });
        let of = |tag: u16| entries.clone().find(|e| e.0 == tag).map_or(7, |e| e.1);
        let mask = of(MASK);
        let named = entries.clone().filter(|e| matches!(e.0, USER | GROUP));
        AclMode {
            group: of(GROUP_OWNER) & mask,
            others: named.fold(7, |least, (_, bits)| least & bits & mask),
        }
    }
}

/// Owner, group and mode of a file.
pub(super) fn of(stat: &Statx, stored: &StoredMetadata) -> Posix {
    let mut mode = u32::from(stat.stx_mode) & 0o7777;
    if let Some(acl) = stored.acl {
        mode = mode & !0o077 | acl.group << 3 | mode & acl.others;
    }
    Posix { uid: stat.stx_uid, gid: stat.stx_gid, mode }
}

/// The path of an open file.
pub(super) fn real_path(fd: &OwnedFd) -> Option<String> {
    rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).ok()?.into_string().ok()
}

impl Tree {
    /// [`crate::Opened::closed`] for the file `fd`, opened as `disk`; `direct`: no link was followed. `None` if the
    /// file was moved meanwhile.
    pub(super) fn restricted_directories(
        &self,
        fd: &OwnedFd,
        disk: &str,
        direct: bool,
    ) -> VfsResult<Option<Vec<Posix>>> {
        if disk.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let real = if direct { None } else { self.real_disk_path(fd) };
        // If the real path is unknown, the links on `disk` are followed again.
        let (path, links) = (real.as_deref().unwrap_or(disk), !direct && real.is_none());
        let mut restricted_directories = Vec::new();
        let root = node::statx(&*self.root)?;
        if root.stx_mode & PASSABLE != PASSABLE {
            let dir = self.open_at("", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            restricted_directories.extend(self.if_restricted(&dir, &root)?);
        }
        for (at, _) in path.match_indices('/') {
            match self.restricted_at(&path[..at], links) {
                Ok(found) => restricted_directories.extend(found),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(e) => return Err(resolve::path_error(e)),
            }
        }
        Ok(Some(restricted_directories))
    }

    /// The directory at `path` if not every user may traverse it. `links`: links on the path are followed; otherwise
    /// they fail with ELOOP.
    fn restricted_at(&self, path: &str, links: bool) -> io::Result<Option<Posix>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = if links {
            self.open_at(path, flags, Mode::empty())?
        } else {
            let seen = resolve::lstatx(&self.root, path)?;
            if link::is_link(&seen) {
                return Err(Errno::LOOP);
            }
            if seen.stx_mode & PASSABLE == PASSABLE {
                return Ok(None);
            }
            match self.open_and_check_links(path, flags) {
                (dir, true) => dir?,
                (_, false) => return Err(Errno::LOOP),
            }
        };
        let stat = node::statx(&dir)?;
        if stat.stx_mode & PASSABLE == PASSABLE { Ok(None) } else { self.if_restricted(&dir, &stat) }
    }

    /// The real path of a file below the root; `None` if that is unknown.
    fn real_disk_path(&self, fd: &OwnedFd) -> Option<String> {
        let real = real_path(fd)?;
        let below = |root: &str| {
            let rest = real.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/')?;
            Some(rest.to_owned())
        };
        // The root may have been moved since it was opened.
        below(&self.root_path).or_else(|| below(&real_path(&self.root)?))
    }

    fn if_restricted(&self, dir: &OwnedFd, stat: &Statx) -> io::Result<Option<Posix>> {
        let device = self.device(dir, device::number(stat))?;
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        if stored::has_security(Target::Followed(&path), &device) {
            return Ok(None);
        }
        Ok(Some(of(stat, &StoredMetadata::load(Target::Followed(&path), &device))))
    }
}

#[cfg(test)]
mod tests {
    use super::AclMode;

    #[test]
    fn lists() {
        let entry = |tag: u16, bits: u16, id: u32| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list =
            |entries: &[Vec<u8>]| AclMode::decode(&[&2u32.to_le_bytes()[..], &entries.concat()].concat());
        let none = u32::MAX;
        // user::rw-, user:1000:rw-, group::---, mask::rw-, other::r--: `ls` shows rw-rw-r--.
        let named = list(&[
            entry(1, 6, none),
            entry(2, 6, 1000),
            entry(4, 0, none),
            entry(0x10, 6, none),
            entry(0x20, 4, none),
        ]);
        assert_eq!(named, AclMode { group: 0, others: 6 });
        // A named user has no access. Named entries are not evaluated, so the others have no access either.
        let shut = list(&[entry(2, 0, 1000), entry(4, 5, none), entry(0x10, 7, none), entry(0x20, 5, none)]);
        assert_eq!(shut, AclMode { group: 5, others: 0 });
        assert_eq!(list(&[entry(4, 7, none), entry(0x10, 4, none)]), AclMode { group: 4, others: 7 }, "mask");
        for bad in [&[][..], &[2, 0, 0], &[3, 0, 0, 0, 1, 0, 7, 0]] {
            assert_eq!(AclMode::decode(bad), AclMode::UNREADABLE);
        }
    }
}
