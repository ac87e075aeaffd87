//! Owner, group and mode as SIDs of `S-1-5-88`: how the Linux client (`idsfromsid`, `modefromsid`) and Windows' NFS
//! server write POSIX identities into a descriptor.
//!
//! | SID                | place               | meaning                                                           |
//! |--------------------|---------------------|-------------------------------------------------------------------|
//! | `S-1-5-88-1-UID`   | owner, entry        | the user with that number; in the token of the account mapped to it |
//! | `S-1-5-88-2-GID`   | group, entry        | the group with that number; in the tokens of its members          |
//! | `S-1-5-88-3-MODE`  | entry without rights | file type and permission bits for clients; the server uses them in [`unix`](super::unix) only |
//!
//! A client's numbers need not be the server's. So any user may set such an owner: it is stored, and has an owner's
//! rights only for the account that this server maps to the number.

use smb_wire::security::Sid;

const NFS: u32 = 88;
const OWNER: u32 = 1;
const GROUP: u32 = 2;
const MODE: u32 = 3;

/// `S-1-5-88-1-UID`.
pub(crate) fn owner(uid: u32) -> Sid {
    sid(OWNER, uid)
}

/// `S-1-5-88-2-GID`.
pub(crate) fn group(gid: u32) -> Sid {
    sid(GROUP, gid)
}

/// `S-1-5-88-3-MODE`.
pub(crate) fn mode(bits: u32) -> Sid {
    sid(MODE, bits)
}

/// Whether a SID is an `S-1-5-88-1-UID`.
pub(crate) fn is_owner(s: &Sid) -> bool {
    s.authority() == 5 && matches!(s.sub_authorities(), [NFS, OWNER, _])
}

/// The number in an `S-1-5-88-1-UID`.
pub(crate) fn uid_of(s: &Sid) -> Option<u32> {
    value(s, OWNER)
}

/// The number in an `S-1-5-88-2-GID`.
pub(crate) fn gid_of(s: &Sid) -> Option<u32> {
    value(s, GROUP)
}

/// The mode in an `S-1-5-88-3-MODE`.
pub(crate) fn mode_of(s: &Sid) -> Option<u32> {
    value(s, MODE)
}

fn value(s: &Sid, wanted: u32) -> Option<u32> {
    match s.sub_authorities() {
        [NFS, part, value] if s.authority() == 5 && *part == wanted => Some(*value),
        _ => None,
    }
}

fn sid(part: u32, value: u32) -> Sid {
    Sid::new(5, &[NFS, part, value]).expect("three sub-authorities")
}
