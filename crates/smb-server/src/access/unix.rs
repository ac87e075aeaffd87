//! Owner, group and mode of files for clients with POSIX extensions: read from a descriptor, and converted into one.
//!
//! The mode is that of the descriptor's entry `S-1-5-88-3-MODE`. A descriptor without one (Windows made it) has the
//! bits that come closest to what owner, group and Everyone may do. A mode that is set through an open with POSIX
//! extensions replaces the access control list: the new list is computed from it, as for a file without a stored
//! descriptor.
//!
//! A number is shown as `S-1-5-88-1-UID` or `S-1-5-88-2-GID`. An owner without a number (an account that no user of the
//! machine is mapped to) is shown by its own SID; the Linux client shows such a file as owned by the user who mounted.

use smb_wire::AccessMask;
use smb_wire::security::{ControlFlags, SecurityDescriptorBuf, Sid};
use vfs::Kind;

use super::{effective, nfs, of_buf, posix};
use crate::identity::User;

/// The bits of a mode that are kept.
const PERMISSIONS: u32 = 0o7777;
/// The mode that the Linux client sends for "no mode".
const NO_MODE: u32 = 0xFFFF;
/// The mode of a file or directory that is created without one.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Owner, group and mode as clients with POSIX extensions see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unix {
    pub(crate) mode: u32,
    pub(crate) owner: Sid,
    pub(crate) group: Sid,
}

/// Owner, group and mode in a file's descriptor, as shown to `user`.
pub(crate) fn of(user: &User, descriptor: Option<&[u8]>) -> Unix {
    let d = effective(descriptor);
    let owner = d.owner.unwrap_or(Sid::BUILTIN_ADMINISTRATORS);
    let group = d.group.unwrap_or(Sid::BUILTIN_ADMINISTRATORS);
    let (uid, gid) = (uid(user, &d, &owner), gid(&d, &group));
    Unix {
        mode: mode(&d).unwrap_or_else(|| closest(&d)),
        owner: uid.map_or(owner, nfs::owner),
        group: gid.map_or(group, nfs::group),
    }
}

/// The descriptor of a new file with the mode that its creator sends.
pub(crate) fn for_new(user: &User, descriptor: &[u8], mode: u32, kind: Kind) -> Vec<u8> {
    let mode = match (mode, kind) {
        (NO_MODE, Kind::File) => FILE_MODE,
        (NO_MODE, Kind::Directory) => DIRECTORY_MODE,
        (mode, _) => mode,
    };
    with_mode(user, descriptor, mode, kind)
}

/// A descriptor that was changed through an open with POSIX extensions: if it has a mode, its access control list is
/// computed from that.
pub(crate) fn changed(user: &User, descriptor: Vec<u8>, kind: Kind) -> Vec<u8> {
    match mode(&effective(Some(&descriptor))) {
        Some(mode) => with_mode(user, &descriptor, mode, kind),
        None => descriptor,
    }
}

fn with_mode(user: &User, descriptor: &[u8], mode: u32, kind: Kind) -> Vec<u8> {
    let mut d = effective(Some(descriptor));
    let owner = d.owner.unwrap_or(user.sid);
    let group = d.group.unwrap_or(owner);
    let ids = (uid(user, &d, &owner), gid(&d, &group));
    d.control = (d.control | ControlFlags::DACL_PRESENT) & !ControlFlags::DACL_AUTO_INHERITED;
    d.dacl = Some(posix::dacl(ids, mode & PERMISSIONS, kind, &owner, &group));
    let mut out = Vec::new();
    d.encode(&mut out);
    out
}

/// The mode that a descriptor states.
fn mode(d: &SecurityDescriptorBuf) -> Option<u32> {
    stated(d, nfs::mode_of).map(|mode| mode & PERMISSIONS)
}

/// The number of a descriptor's owner: from its SID, from the token of `user` where that is the owner, or from an entry
/// without rights.
fn uid(user: &User, d: &SecurityDescriptorBuf, owner: &Sid) -> Option<u32> {
    let of_user = || user.groups.iter().filter(|_| user.sid == *owner).find_map(nfs::uid_of);
    let beside = || stated(d, nfs::uid_of).filter(|_| !is_number(owner));
    nfs::uid_of(owner).or_else(|| unix_number(owner, 1)).or_else(of_user).or_else(beside)
}

fn gid(d: &SecurityDescriptorBuf, group: &Sid) -> Option<u32> {
    let beside = || stated(d, nfs::gid_of).filter(|_| !is_number(group));
    nfs::gid_of(group).or_else(|| unix_number(group, 2)).or_else(beside)
}

/// Whether a SID is a number of a user or group itself.
fn is_number(s: &Sid) -> bool {
    s.authority() == 22 || nfs::uid_of(s).is_some() || nfs::gid_of(s).is_some()
}

/// The number in an `S-1-22-1-UID` or `S-1-22-2-GID`.
fn unix_number(s: &Sid, part: u32) -> Option<u32> {
    match s.sub_authorities() {
        [p, number] if s.authority() == 22 && *p == part => Some(*number),
        _ => None,
    }
}

/// The value in an entry without rights.
fn stated(d: &SecurityDescriptorBuf, of: impl Fn(&Sid) -> Option<u32>) -> Option<u32> {
    let dacl = d.dacl.as_ref()?.as_acl();
    dacl.iter().map_while(Result::ok).filter(|a| a.mask.is_empty()).find_map(|a| of(&a.sid))
}

/// The bits that come closest to what a descriptor allows.
fn closest(d: &SecurityDescriptorBuf) -> u32 {
    let bits = |sid: Sid| {
        let token =
            User { name: String::new(), workstation: String::new(), sid, groups: vec![Sid::EVERYONE] };
        let may = of_buf(&token, d);
        let bit = |right, value| if may.contains(right) { value } else { 0 };
        bit(AccessMask::READ_DATA, 4) | bit(AccessMask::WRITE_DATA, 2) | bit(AccessMask::EXECUTE, 1)
    };
    let owner = d.owner.map_or(0, bits);
    owner << 6 | d.group.map_or(0, bits) << 3 | bits(Sid::EVERYONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        let sid = |sub: &[u32]| Sid::new(5, sub).expect("short");
        User {
            name: String::new(),
            workstation: String::new(),
            sid: sid(&[21, 1, 2, 3, 1000]),
            groups: vec![Sid::EVERYONE, nfs::owner(500)],
        }
    }

    #[test]
    fn a_mode_there_and_back() {
        let me = user();
        let plain = super::super::for_new(&me, None, None, false).expect("made");
        for mode in [0o600, 0o640, 0o4755, 0o000, 0o100_644] {
            let made = for_new(&me, &plain, mode, Kind::File);
            let seen = of(&me, Some(&made));
            assert_eq!((seen.mode, seen.owner), (mode & 0o7777, nfs::owner(500)), "{mode:o}");
            let other = User { sid: Sid::EVERYONE, groups: Vec::new(), ..user() };
            assert_eq!(of(&other, Some(&made)), seen, "others see the same numbers");
            let may = super::super::maximal(&other, Some(&made));
            assert_eq!(may.contains(AccessMask::READ_DATA), mode & 4 != 0, "{mode:o}");
        }
        assert_eq!(of(&me, Some(&for_new(&me, &plain, NO_MODE, Kind::Directory))).mode, 0o755);
    }

    #[test]
    fn descriptors_of_windows() {
        let me = user();
        assert_eq!(of(&me, None).mode, 0o777, "full control for everyone");
        let private = super::super::for_new(&me, Some(b"?"), None, false).expect("made");
        assert_eq!(of(&me, Some(&private)).mode, 0o700, "the owner and the system");
        assert_eq!(changed(&me, private.clone(), Kind::File), private, "no mode decides nothing");
    }
}
