//! Descriptors as the Linux client builds them for mounts with `idsfromsid` and `modefromsid`.

use super::*;

/// The create context of a file that UID, GID with MODE makes: owner and group, then the mode, the owner and
/// "authenticated users" as entries.
fn of_create(uid: u32, gid: u32, mode: u32) -> Vec<u8> {
    let le = u32::to_le_bytes;
    let nfs =
        |part: u32, value: u32| [&[1, 3, 0, 0, 0, 0, 0, 5][..], &le(88), &le(part), &le(value)].concat();
    let dacl = [
        &[2, 0, 84, 0, 3, 0, 0, 0][..],
        &[1, 0, 28, 0, 0, 0, 0, 0],
        &nfs(3, mode),
        &[0, 0, 28, 0, 0, 0, 0, 0x10],
        &nfs(1, uid),
        &[0, 0, 20, 0, 0, 0, 0, 0x10, 1, 1, 0, 0, 0, 0, 0, 5, 11, 0, 0, 0],
    ];
    let head = [&[1, 0, 0x04, 0x80][..], &le(20), &le(40), &le(0), &le(60)].concat();
    [head, nfs(1, uid), nfs(2, gid), dacl.concat()].concat()
}

/// A user with the groups of a logged-on user: "authenticated users" too.
fn somebody(rid: u32) -> User {
    let mut user = user(rid);
    user.groups.push(Sid::AUTHENTICATED_USERS);
    user
}

#[test]
fn a_file_made_with_idsfromsid_and_modefromsid() {
    let me = somebody(1);
    let made = for_new(&me, None, Some(&of_create(1000, 100, 0o100_640)), false).expect("accepted");
    let d = SecurityDescriptor::decode(&made).expect("a descriptor");
    assert_eq!((d.owner, d.group), (Some(nfs::owner(1000)), Some(nfs::group(100))), "as sent");
    let entries: Vec<_> = d.dacl.expect("sent").iter().map(Result::unwrap).collect();
    assert_eq!(entries[0].sid, nfs::mode(0o100_640), "the client finds the mode again");
    assert_eq!((entries[0].ace_type, entries[0].mask), (DENY, AccessMask::empty()));
    assert_eq!(maximal(&me, Some(&made)), AccessMask::FILE_ALL_ACCESS);
}

// MS-DTYP 2.5.3.2: only the account that is mapped to the number has the owner's rights.
#[test]
fn a_posix_owner_is_a_name_until_it_is_mapped() {
    let (me, other) = (somebody(1), somebody(2));
    let mut mapped = somebody(3);
    mapped.groups.push(nfs::owner(1000));
    let owned = descriptor(nfs::owner(1000), &[]);
    assert_eq!(maximal(&me, Some(&owned)), AccessMask::empty());
    assert_eq!(maximal(&mapped, Some(&owned)), OWNER_MAY);
    // An entry that the folder passes on for "creator owner" applies to the creator, who would otherwise have no
    // access.
    let flags = AceFlags::OBJECT_INHERIT | AceFlags::INHERIT_ONLY;
    let parent = descriptor(sid(9), &[(ALLOW, flags, AccessMask::GENERIC_ALL, Sid::CREATOR_OWNER)]);
    let owner = SecurityDescriptorBuf { owner: Some(nfs::owner(1000)), ..Default::default() };
    let made = for_new(&me, Some(&parent), Some(&encoded(&owner)), false).expect("accepted");
    assert_eq!(maximal(&me, Some(&made)), AccessMask::FILE_ALL_ACCESS);
    assert_eq!(maximal(&other, Some(&made)), AccessMask::empty());
}

// chown of a mount with `idsfromsid`; the file cannot be given to another account (STATUS_INVALID_OWNER).
#[test]
fn chown_to_a_number() {
    let me = somebody(1);
    let mine = for_new(&me, None, None, false).expect("made");
    let to = |owner| encoded(&SecurityDescriptorBuf { owner: Some(owner), ..Default::default() });
    let given = changed(&me, Some(&mine), SecurityInformation::OWNER, &to(nfs::owner(7))).expect("accepted");
    assert_eq!(SecurityDescriptor::decode(&given).expect("one").owner, Some(nfs::owner(7)));
    for owner in [sid(2), nfs::group(7), nfs::mode(7)] {
        let refused = changed(&me, Some(&mine), SecurityInformation::OWNER, &to(owner));
        assert_eq!(refused, Err(NtStatus::INVALID_OWNER), "{owner}");
    }
}
