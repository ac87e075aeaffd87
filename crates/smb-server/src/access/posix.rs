//! The descriptor of a file that has none stored: computed from owner, group and mode (docs/access.md).
//!
//! The entries, in this order; all but the first row are omitted if they have no rights:
//!
//! | entry                              | rights                                                      | inherited by children |
//! |------------------------------------|-------------------------------------------------------------|------------|
//! | deny `S-1-5-88-1`, `-2`, `-3`      | none: owner, group and mode for the Linux client ([`nfs`])   | no         |
//! | allow Creator Owner (of a directory) | all                                                       | only       |
//! | allow Administrators               | all                                                         | yes        |
//! | deny the owner                     | what group or others have and the owner has not             | no         |
//! | allow the owner                    | the owner's bits                                            | no         |
//! | deny the group                     | what others have and the group has not                      | yes        |
//! | allow the group                    | the group's bits                                            | yes        |
//! | allow Everyone                     | the others' bits                                            | yes        |

use smb_auth::mechanism::UserLookup;
use smb_wire::AccessMask;
use smb_wire::security::{Ace, AceFlags, AceType, AclBuf, ControlFlags, SecurityDescriptorBuf, Sid};
use vfs::{Kind, Posix};

use super::nfs;
use crate::identity;

/// Rights that a class has in addition if it has any bit; these rights are never denied.
const ALWAYS: AccessMask =
    AccessMask::READ_CONTROL.union(AccessMask::SYNCHRONIZE).union(AccessMask::READ_ATTRIBUTES);
const STICKY: u32 = 0o1000;
const INHERITED: AceFlags = AceFlags::OBJECT_INHERIT.union(AceFlags::CONTAINER_INHERIT);

/// The machine's user `S-1-22-1-UID`.
pub(crate) fn user_sid(uid: u32) -> Sid {
    Sid::new(22, &[1, uid]).expect("two sub-authorities")
}

/// The machine's group `S-1-22-2-GID`.
pub(crate) fn group_sid(gid: u32) -> Sid {
    Sid::new(22, &[2, gid]).expect("two sub-authorities")
}

/// The descriptor of a file with this owner, group and mode.
pub(crate) fn descriptor(p: &Posix, kind: Kind, accounts: &dyn UserLookup) -> SecurityDescriptorBuf {
    let owner = accounts.owner_of(p.uid).map_or_else(|| user_sid(p.uid), |s| identity::sid_of(&s));
    let group = accounts.group_of(p.gid).map_or_else(|| group_sid(p.gid), |s| identity::sid_of(&s));
    SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT | ControlFlags::DACL_AUTO_INHERITED,
        owner: Some(owner),
        group: Some(group),
        sacl: None,
        dacl: Some(dacl((Some(p.uid), Some(p.gid)), p.mode, kind, &owner, &group)),
    }
}

/// The entries for a mode. The numbers of owner and group are shown to the Linux client where they are known.
pub(super) fn dacl(
    ids: (Option<u32>, Option<u32>),
    mode: u32,
    kind: Kind,
    owner: &Sid,
    group: &Sid,
) -> AclBuf {
    let directory = kind == Kind::Directory;
    let passed_on = if directory { INHERITED } else { AceFlags::empty() };
    let none = AceFlags::empty();
    let of = |shift: u32| rights(mode >> shift & 7, directory, mode & STICKY != 0);
    let (of_owner, of_group, of_others) = (owners(mode >> 6 & 7, directory), of(3), of(0));
    let mut acl = AclBuf::new();
    let mut push = |ace_type, flags, mask: AccessMask, sid: Sid| {
        acl.push(&Ace::new(ace_type, flags, mask, sid)).expect("ten short entries fit");
    };
    let format = if directory { 0o040_000 } else { 0o100_000 };
    let ids = [ids.0.map(nfs::owner), ids.1.map(nfs::group), Some(nfs::mode(format | mode))];
    for sid in ids.into_iter().flatten() {
        push(AceType::ACCESS_DENIED, none, AccessMask::empty(), sid);
    }
    let all = AccessMask::FILE_ALL_ACCESS;
    // First, so that a deny entry of a group does not lock creators out of their own files.
    if directory {
        push(AceType::ACCESS_ALLOWED, INHERITED | AceFlags::INHERIT_ONLY, all, Sid::CREATOR_OWNER);
    }
    let entries = [
        (AceType::ACCESS_ALLOWED, passed_on, all, Sid::BUILTIN_ADMINISTRATORS),
        (AceType::ACCESS_DENIED, none, (of_group | of_others) & !of_owner & !ALWAYS, *owner),
        (AceType::ACCESS_ALLOWED, none, of_owner, *owner),
        (AceType::ACCESS_DENIED, passed_on, of_others & !of_group & !ALWAYS, *group),
        (AceType::ACCESS_ALLOWED, passed_on, of_group, *group),
        (AceType::ACCESS_ALLOWED, passed_on, of_others, Sid::EVERYONE),
    ];
    for (ace_type, flags, mask, sid) in entries.into_iter().filter(|e| !e.2.is_empty()) {
        push(ace_type, flags, mask, sid);
    }
    acl
}

/// The rights that three bits grant. The right to read a file includes the right to execute it: to Windows a file is a
/// program by its name. The right to write a directory includes the right to delete its children, unless it is sticky.
fn rights(bits: u32, directory: bool, sticky: bool) -> AccessMask {
    let mut mask = AccessMask::empty();
    if bits & 4 != 0 {
        mask |= AccessMask::FILE_GENERIC_READ;
        mask.set(AccessMask::EXECUTE, !directory);
    }
    if bits & 2 != 0 {
        mask |= AccessMask::FILE_GENERIC_WRITE | AccessMask::READ_ATTRIBUTES;
        mask.set(AccessMask::DELETE_CHILD, directory && !sticky);
    }
    if bits & 1 != 0 {
        mask |= AccessMask::FILE_GENERIC_EXECUTE;
    }
    mask
}

/// The rights that the owner's bits grant: in addition to [`rights`], to see and change the mode and the times, and
/// with the write bit, to delete.
fn owners(bits: u32, directory: bool) -> AccessMask {
    let change = AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER | AccessMask::WRITE_ATTRIBUTES;
    let mut mask = rights(bits, directory, false) | ALWAYS | change;
    mask.set(AccessMask::DELETE, bits & 2 != 0);
    mask
}

#[cfg(test)]
mod tests;
